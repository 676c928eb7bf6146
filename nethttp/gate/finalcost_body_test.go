package gate_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// A client that does not send its whole body, and so makes the handler fail, gets nothing
// back. Only if the client closes an HTTP/1 connection does net/http say that it has left.
func TestHalfABodyIsNotRefunded(t *testing.T) {
	const http1 = "POST /replies/7 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-User-Id: alice\r\n"
	for _, ad := range adapters {
		for _, c := range []struct {
			name, sent string
			closes     bool // the client, when it has sent that; else it waits for the answer
			left       int
		}{
			{"half", http1 + "Content-Length: 10\r\n\r\nhalf", true, 4},
			{"half, and then silence", http1 + "Content-Length: 10\r\n\r\nhalf", false, 4},
			{"half in chunks", http1 + "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", true, 4},
			{"all", http1 + "Content-Length: 4\r\n\r\nfull", false, 5},
			{"all, and the handler does not want it", http1 + "Content-Length: 4\r\n\r\nfull", false, 5},
			{"nothing to send", http1 + "\r\n", false, 5},
			{"half by HTTP/2", http2("10", "half", true), false, 4},
			{"half by HTTP/2, and then silence", http2("10", "half", false), false, 4},
			{"all by HTTP/2", http2("4", "full", true), false, 5},
			{"nothing to send by HTTP/2", http2("0", "", true), false, 5},
		} {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				limiter := core.Must(core.New(memory(), slidingFive))
				ran := gatetest.NewRan(t, 1)
				s := httptest.NewUnstartedServer(ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits: []gatetest.Limit{{Limiter: limiter, Config: failedIsFree}},
					Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
						ran.Now()
						unwanted := strings.HasSuffix(c.name, "want it")
						if unwanted {
							_ = r.Body.Close()
						}
						if _, err := io.ReadAll(r.Body); (err == nil) != (c.left == 5 && !unwanted) {
							t.Errorf("the body ends with %v", err)
						}
						w.WriteHeader(500)
					},
				}}}.Filled()))
				s.Config.Protocols = new(http.Protocols)
				s.Config.Protocols.SetHTTP1(true)
				s.Config.Protocols.SetUnencryptedHTTP2(true)
				if strings.HasSuffix(c.name, "silence") {
					s.Config.ReadTimeout = 50 * time.Millisecond
				}
				s.Start()
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(conn, c.sent)
				if c.closes {
					_ = conn.(*net.TCPConn).CloseWrite()
				}
				answered(t, conn, strings.HasPrefix(c.sent, "PRI"))
				_ = conn.Close()
				s.Close() // which waits for the handler
				if d, err := limiter.Peek(t.Context(), "alice", "reply"); err != nil || d.Remaining != c.left {
					t.Errorf("%d remain, want %d; %v", d.Remaining, c.left, err)
				}
			})
		}
	}
}

// http2 is what a client sends for a request: the preface, its settings, and a stream of two frames.
// No client of package net/http ends a stream before the body is complete.
func http2(length, body string, ends bool) string {
	frame := func(kind, flags byte, stream byte, payload string) string {
		return string([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}) + payload
	}
	var headers string
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/replies/7"}, {":authority", "x"}, {"x-user-id", "alice"}, {"content-length", length}} {
		headers += "\x00" + string(byte(len(h[0]))) + h[0] + string(byte(len(h[1]))) + h[1]
	}
	end := byte(0)
	if ends {
		end = 1
	}
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "") + frame(1, 4, 1, headers) + frame(0, end, 1, body)
}

// answered waits for the response.
func answered(t *testing.T, conn net.Conn, http2 bool) {
	t.Helper()
	if !http2 {
		_, _ = io.ReadAll(conn)
		return
	}
	for frame := make([]byte, 9); frame[3] != 1; { // until there are headers
		if _, err := io.ReadFull(conn, frame); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(frame[1])<<8|int64(frame[2])); err != nil {
			t.Fatal(err)
		}
	}
}

// A request that is answered before it has sent its body is not waited for: net/http must
// still find its own Body in its request.
func TestABodyThatIsWatchedIsNotWaitedFor(t *testing.T) {
	for _, ad := range adapters {
		for name, cfg := range map[string]*nethttp.Config{"FinalCost": failedIsFree, "and Keep": asCharged} {
			t.Run(ad.Name+"/"+name, func(t *testing.T) { answersBeforeTheBody(t, ad, cfg) })
		}
	}
}

func answersBeforeTheBody(t *testing.T, ad gatetest.Adapter, cfg *nethttp.Config) {
	s := httptest.NewServer(ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: five(memory()), Config: cfg}}}}}.Filled()))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, "POST /replies/7 HTTP/1.1\r\nHost: x\r\nX-User-Id: alice\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n")
	if got, err := bufio.NewReader(conn).ReadString('\n'); got != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("answered %q, %v", got, err)
	}
}
