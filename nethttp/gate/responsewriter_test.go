package gate_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// Writers that can do what their names say.
type (
	plain   struct{ http.ResponseWriter }
	flushes struct{ http.ResponseWriter }
	pushes  struct{ http.ResponseWriter }
	both    struct{ http.ResponseWriter }
	reads   struct{ http.ResponseWriter }
	hijacks struct{ http.ResponseWriter }
	unwraps struct{ http.ResponseWriter }
	closes  struct{ http.ResponseWriter }
)

var closed = make(chan bool)

func (flushes) Flush()                              {}
func (pushes) Push(string, *http.PushOptions) error { return errBoom }
func (both) Flush()                                 {}
func (both) Push(string, *http.PushOptions) error   { return errBoom }
func (reads) ReadFrom(io.Reader) (int64, error)     { return 42, nil }
func (closes) CloseNotify() <-chan bool             { return closed }
func (u unwraps) Unwrap() http.ResponseWriter       { return u.ResponseWriter }
func (hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, nil
}

// file is a reader that does not write itself.
func file(s string) io.Reader { return io.LimitReader(strings.NewReader(s), 100) }

// panics is a reader that fails in the worst way.
type panics struct{}

func (panics) Read([]byte) (int, error) { panic("mine") }

// What a handler finds by its type is what the server's writer is, for what it could
// not do without an error.
func TestWatchKeepsWhatTheWriterCan(t *testing.T) {
	rec := httptest.NewRecorder()
	for _, c := range []struct {
		name         string
		w            http.ResponseWriter
		flush, push  bool
		controllable bool // a ResponseController can flush it
	}{
		{"a plain writer", plain{rec}, false, false, false},
		{"one that flushes", flushes{rec}, true, false, true},
		{"one that pushes", pushes{rec}, false, true, false},
		{"one that does both", both{rec}, true, true, true},
		{"a wrapper of one that flushes", unwraps{rec}, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := gate.Watch(c.w, nil)
			_, flush := w.(http.Flusher)
			p, push := w.(http.Pusher)
			if flush != c.flush || push != c.push {
				t.Errorf("flushes %t, pushes %t; want %t, %t", flush, push, c.flush, c.push)
			}
			if push && p.Push("/x", nil) != errBoom {
				t.Error("the push does not arrive")
			}
			if err := http.NewResponseController(w).Flush(); (err == nil) != c.controllable || err != nil && !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Flush: %v", err)
			}
			if _, _, err := w.(http.Hijacker).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("Hijack: %v", err)
			}
			if _, ok := w.(io.ReaderFrom); !ok {
				t.Error("it does not read from")
			}
		})
	}
	w, _ := gate.Watch(reads{rec}, nil)
	if n, err := io.Copy(w, file("x")); n != 42 || err != nil {
		t.Errorf("the writer's own ReadFrom is not used: %d, %v", n, err)
	}
}

// Gin's c.Stream asks the server's writer for it without a question.
func TestWatchNoticesADisconnect(t *testing.T) {
	type notifier interface{ CloseNotify() <-chan bool }
	w, _ := gate.Watch(closes{httptest.NewRecorder()}, nil)
	if w.(notifier).CloseNotify() != (<-chan bool)(closed) {
		t.Error("the channel is another")
	}
	w, _ = gate.Watch(plain{httptest.NewRecorder()}, nil)
	select {
	case <-w.(notifier).CloseNotify():
		t.Error("nobody knows that the client has left")
	default:
	}

	engine := gin.New()
	engine.GET("/", func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool { n++; _, _ = io.WriteString(w, "x"); return n < 3 })
	})
	for _, s := range gatetest.Serve(t) {
		s.Mount(asCharged.Limit(five(memory()), keyfuncs.Everyone, keyfuncs.Action("x"))(engine))
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "xxx" || err != nil {
			t.Errorf("%s: %q, %v", s.Proto, body, err)
		}
		resp.Body.Close()
	}
}

// The status is that of the response, whatever was done to write it.
func TestWatchTellsTheStatus(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(http.ResponseWriter)
		want int
	}{
		{"nothing is 200", func(http.ResponseWriter) {}, 200},
		{"a status", func(w http.ResponseWriter) { w.WriteHeader(404) }, 404},
		{"a status and a body", func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = w.Write([]byte("x")) }, 404},
		{"a body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) }, 200},
		{"an empty body", func(w http.ResponseWriter) { _, _ = w.Write(nil); w.WriteHeader(500) }, 200},
		{"a string", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); w.WriteHeader(500) }, 200},
		{"a file", func(w http.ResponseWriter) { _, _ = io.Copy(w, file("x")); w.WriteHeader(500) }, 200},
		{"an empty file is none", func(w http.ResponseWriter) { _, _ = io.Copy(w, file("")); w.WriteHeader(500) }, 500},
		{"a flush", func(w http.ResponseWriter) { w.(http.Flusher).Flush(); w.WriteHeader(500) }, 200},
		{"a controller's flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush(); w.WriteHeader(500) }, 200},
		{"hints are none", func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(404) }, 404},
		{"the first counts", func(w http.ResponseWriter) { w.WriteHeader(404); w.WriteHeader(500) }, 404},
		{"other protocols", func(w http.ResponseWriter) { w.WriteHeader(101); w.WriteHeader(500) }, 101},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, answered := gate.Watch(httptest.NewRecorder(), nil)
			c.do(w)
			if status, begun := answered(); status != c.want || begun != (c.name != "nothing is 200") {
				t.Errorf("got %d, begun %t, want %d", status, begun, c.want)
			}
		})
	}
	w, answered := gate.Watch(hijacks{httptest.NewRecorder()}, nil)
	_, _, _ = w.(http.Hijacker).Hijack()
	if status, begun := answered(); status != 0 || !begun {
		t.Errorf("a connection that was taken over: %d, begun %t", status, begun)
	}
	w, answered = gate.Watch(plain{httptest.NewRecorder()}, nil)
	_ = http.NewResponseController(w).Flush()
	if _, begun := answered(); begun {
		t.Error("a flush that is not supported has begun the response")
	}
	w.WriteHeader(500)
	if status, begun := answered(); status != 500 || !begun {
		t.Errorf("after a flush that is not supported: %d, begun %t", status, begun)
	}
}

// What a Deny does to the connection without writing is not an answer; what it
// flushes is.
func TestDenyWithAResponseController(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*http.ResponseController) error
		want int
	}{
		{"a deadline is not an answer", func(rc *http.ResponseController) error { return rc.SetWriteDeadline(time.Now().Add(time.Hour)) }, 429},
		{"a flush answers 200", (*http.ResponseController).Flush, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range gatetest.Serve(t) {
				s.Mount(mountNetHTTP(gatetest.App{Routes: reply(&nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
					if err := c.do(http.NewResponseController(w)); err != nil {
						t.Error(err)
					}
				}})(decides(refusal)())}.Filled()))
				resp, err := post(t, s)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body) // until Deny has returned
				resp.Body.Close()
				if resp.StatusCode != c.want {
					t.Errorf("%s: got %s, want %d", s.Proto, resp.Status, c.want)
				}
			}
		})
	}
}
