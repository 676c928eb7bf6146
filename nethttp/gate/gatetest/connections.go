package gatetest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// onEach runs f for every adapter and protocol.
func onEach(t *testing.T, adapters []Adapter, f func(*testing.T, Adapter, *Server)) {
	servers := Serve(t)
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			for _, s := range servers {
				t.Run(s.Proto, func(t *testing.T) { f(t, ad, s) })
			}
		})
	}
}

// onEachConfig is onEach without and with a wrapped ResponseWriter.
func onEachConfig(t *testing.T, adapters []Adapter, f func(*testing.T, Adapter, *Server, *nethttp.Config)) {
	onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
		t.Run("as it is", func(t *testing.T) { f(t, ad, s, nil) })
		t.Run("wrapped", func(t *testing.T) { f(t, ad, s, asCharged) })
	})
}

func post(t *testing.T, s *Server) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/replies/7", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User-ID", "alice")
	return s.Client().Do(req)
}

// asCharged keeps what was charged, and so wraps the ResponseWriter for nothing.
var asCharged = &nethttp.Config{Keep: true, FinalCost: func(*http.Request, int) int { return 1 }}

// What is flushed arrives while the handler still runs, and the headers with it.
func testStreaming(t *testing.T, adapters []Adapter) {
	onEachConfig(t, adapters, func(t *testing.T, ad Adapter, s *Server, cfg *nethttp.Config) {
		if ad.NoStreams {
			t.Skip("not on this fixture: the framework cannot")
		}
		read := make(chan struct{})
		s.Mount(ad.Mount(App{Routes: handled(cfg, func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
			_, _ = io.WriteString(w, "one\n")
			w.(http.Flusher).Flush()
			select {
			case <-read:
			case <-r.Context().Done(): // the client gave up
			}
			_, _ = io.WriteString(w, "two\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		})(Decides(allowed)())}))
		resp, err := post(t, s)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("X-RateLimit-Remaining"); got != "4" {
			t.Errorf("X-RateLimit-Remaining is %q", got)
		}
		lines := bufio.NewReader(resp.Body)
		for i, want := range []string{"one\n", "two\n"} {
			if got, err := lines.ReadString('\n'); got != want || err != nil {
				t.Fatalf("got %q, %v; want %q", got, err, want)
			}
			if i == 0 {
				close(read)
			}
		}
		if _, err := lines.ReadByte(); err != io.EOF { // the handler has returned
			t.Errorf("after all lines: %v", err)
		}
	})
}

// A handler may take the connection, in either way. What was charged for it stays.
func testHijack(t *testing.T, adapters []Adapter) {
	taken := func(way string) Handler {
		return func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
			hijack := http.NewResponseController(w).Hijack
			if way == "Hijacker" {
				hijack = w.(http.Hijacker).Hijack
			}
			conn, rw, err := hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\ntaken")
			_ = rw.Flush()
		}
	}
	for _, ad := range adapters {
		for name, cfg := range map[string]*nethttp.Config{"as it is": nil, "with FinalCost": finalCost(1, never)} {
			for _, way := range []string{"Hijacker", "ResponseController"} {
				t.Run(ad.Name+"/"+name+"/"+way, func(t *testing.T) {
					if ad.NoHijack {
						t.Skip("not on this fixture: the framework cannot")
					}
					log := Capture(t)
					s := Serve(t)[0]
					s.Mount(ad.Mount(App{Routes: handled(cfg, taken(way))(Decides(allowed)())}))
					resp, err := post(t, s)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if body, _ := io.ReadAll(resp.Body); string(body) != "taken" {
						t.Errorf("got %q", body)
					}
					s.Close() // the handler has returned
					if got := log.Take(ad.pkg()); got != nil {
						t.Errorf("log: %q", got)
					}
				})
			}
		}
	}
}

// The rest of what a ResponseController does reaches the connection.
func testResponseController(t *testing.T, adapters []Adapter) {
	onEachConfig(t, adapters, func(t *testing.T, ad Adapter, s *Server, cfg *nethttp.Config) {
		ran := NewRan(t, 1)
		s.Mount(ad.Mount(App{Routes: handled(cfg, func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
			ran.Now()
			rc := http.NewResponseController(w)
			if err := rc.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if err := rc.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "done")
		})(Decides(allowed)())}))
		resp, err := post(t, s)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	})
}

// A Deny that would rather drop the connection than answer: where there is none to
// drop, as with HTTP/2, it has answered nothing, and the default answer stands.
func testDenyDropsTheConnection(t *testing.T, adapters []Adapter) {
	cfg := &nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			conn.Close()
		}
	}}
	allow := Inside{Limiter: core.Must(core.New(Decides(refusal)(), core.FixedWindow(5, time.Minute))), User: "alice", Action: "reply", Cost: 1, Config: cfg}
	for name, routes := range map[string][]Route{"Limit": reply(cfg)(Decides(refusal)()), "Allow": {{Inside: []Inside{allow}}}} {
		t.Run(name, func(t *testing.T) {
			onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
				if ad.NoHijack || ad.HijackPanics && s.Proto == "HTTP/2.0" {
					t.Skip("not on this fixture: the framework cannot")
				}
				s.Mount(ad.Mount(App{Routes: routes}))
				resp, err := post(t, s)
				if s.Proto == "HTTP/1.1" {
					if err == nil {
						resp.Body.Close()
						t.Errorf("got %s, want no response", resp.Status)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != 429 {
					t.Errorf("got %s, want 429", resp.Status)
				}
			})
		})
	}
}

// Early hints of a Deny or a Fail are no answer.
func testDenyWithEarlyHints(t *testing.T, adapters []Adapter) {
	onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
		s.Mount(ad.Mount(App{Routes: reply(&nethttp.Config{
			Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) { w.WriteHeader(http.StatusEarlyHints) },
			Fail: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusEarlyHints) },
		})(Decides(refusal)())}))
		for user, want := range map[string]int{"alice": 429, "": 400} {
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/replies/7", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-User-ID", user)
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || resp.Header.Get("Content-Type") != "application/problem+json" || len(body) == 0 {
				t.Errorf("%s: got %s %v %q, want %d", s.Proto, resp.Status, resp.Header, body, want)
			}
		}
	})
}

// 40 requests at once over a limit of 5: five pass, whoever they are, and every
// response has its own headers.
func testConcurrentRequests(t *testing.T, adapters []Adapter) {
	onEach(t, adapters, func(t *testing.T, ad Adapter, s *Server) {
		s.Mount(ad.Mount(App{Routes: reply(&nethttp.Config{Keep: true, Headers: gate.XRateLimitAndIETF})(memory())}))
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			seen = map[string]int{}
		)
		for range 40 {
			wg.Go(func() {
				resp, err := post(t, s)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				mu.Lock()
				defer mu.Unlock()
				seen[fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-RateLimit-Remaining"))]++
			})
		}
		wg.Wait()
		for i := range 5 {
			if key := fmt.Sprintf("200 %d", i); seen[key] != 1 {
				t.Errorf("%q came %d times, want once: %v", key, seen[key], seen)
			}
		}
		if seen["429 0"] != 35 {
			t.Errorf("35 should be refused: %v", seen)
		}
	})
}

// The files of an upload, which the server removes by the request that it knows, go
// also where the handler has another one, and if it panics.
func testUploadsAreRemoved(t *testing.T, adapters []Adapter) {
	for _, ad := range adapters {
		for name, cfg := range map[string]*nethttp.Config{"plain": nil, "Keep": {Keep: true}, "FinalCost": finalCost(1, func(int) int { return 1 }), "both": asCharged} {
			t.Run(ad.Name+"/"+name, func(t *testing.T) { uploadsAreRemoved(t, ad, cfg) })
		}
	}
}

func uploadsAreRemoved(t *testing.T, ad Adapter, cfg *nethttp.Config) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // Windows
	files := func() int {
		all, _ := os.ReadDir(dir)
		return len(all)
	}
	ran := NewRan(t, 2)
	routes := reply(cfg)(memory())
	routes[0].Handler = func(_ http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
		ran.Now()
		if err := r.ParseMultipartForm(1); err != nil || files() == 0 {
			t.Errorf("%d files, %v", files(), err)
		}
		if r.Header.Get("X-Panic") != "" {
			panic(http.ErrAbortHandler)
		}
	}
	s := httptest.NewServer(catches(ad.Mount(App{Routes: routes})))
	for _, panics := range []string{"", "yes"} {
		const body = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n1234\r\n--b--\r\n"
		r, err := http.NewRequest("POST", s.URL+"/replies/7", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"X-User-Id": {"alice"}, "X-Panic": {panics}, "Content-Type": {"multipart/form-data; boundary=b"}}
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	s.Close() // which waits for the requests
	if n := files(); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// catches is a recovery further out than all else.
func catches(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		h.ServeHTTP(w, r)
	})
}

// ask is a request of alice without a network, for fake time.
func ask(h http.Handler) *http.Response {
	r := httptest.NewRequest("POST", "/replies/7", nil)
	r.Header.Set("X-User-ID", "alice")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}
