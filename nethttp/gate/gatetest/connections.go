package gatetest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
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

// After a refusal with Retry-After: n the request passes n seconds later. One
// second earlier it does not.
func testRetryAfterIsHonest(t *testing.T, adapters []Adapter) {
	for _, ad := range adapters {
		for _, l := range []core.Limit{
			core.SlidingWindow(2, 10*time.Second),
			core.MovingWindow(2, 10*time.Second+time.Millisecond),
			core.FixedWindow(2, 10*time.Second),
			core.TokenBucket(2, core.Per(7, time.Minute)),
			core.Funnel(2, core.Per(7, time.Minute)),
			core.Funnel(2, core.Per(1000, time.Second)),
		} {
			t.Run(ad.Name+"/"+l.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := ad.Mount(App{Routes: reply(nil, l)(memorystore.New(nil))})
					var resp *http.Response
					for range 3 {
						time.Sleep(300 * time.Microsecond)
						resp = ask(h)
					}
					if resp.StatusCode != 429 {
						t.Fatalf("the third request is %s", resp.Status)
					}
					n, err := strconv.Atoi(resp.Header.Get("Retry-After"))
					if err != nil || n < 1 {
						t.Fatalf("Retry-After: %q", resp.Header.Get("Retry-After"))
					}
					time.Sleep(time.Duration(n-1) * time.Second)
					if n > 1 {
						if early := ask(h); early.StatusCode != 429 {
							t.Errorf("a second too early it is %s", early.Status)
						}
					}
					time.Sleep(time.Second)
					if late := ask(h); late.StatusCode != 200 {
						t.Errorf("after Retry-After: %d it is %s", n, late.Status)
					}
				})
			})
		}
	}
}

// X-RateLimit-Reset is the second of the clock's in which the limit is whole; what
// is between two seconds is the later one.
func testResetSecond(t *testing.T, adapters []Adapter) {
	const midnight = 946684800 // 2000-01-01, when synctest's clock starts
	for _, c := range []struct {
		name         string
		sleep, after time.Duration
		want         int64
	}{
		{"on the second", 0, time.Minute, midnight + 60},
		{"on the second and nothing to wait for", 0, 0, midnight},
		{"a nanosecond later", 1, time.Minute, midnight + 61},
		{"a microsecond to wait", 0, time.Microsecond, midnight + 1},
		{"two halves are one second", time.Second / 2, time.Second / 2, midnight + 1},
		{"two halves and a nanosecond are two", time.Second/2 + 1, time.Second / 2, midnight + 2},
		{"beyond 2038", 0, 100 * 365 * 24 * time.Hour, midnight + 100*365*24*3600},
	} {
		for _, ad := range adapters {
			t.Run(ad.Name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(c.sleep)
					h := ad.Mount(App{Routes: reply(nil)(Decides(core.Decision{Allowed: true, Remaining: 1, ResetAfter: c.after})())})
					if got := ask(h).Header.Get("X-RateLimit-Reset"); got != strconv.FormatInt(c.want, 10) {
						t.Errorf("got %s, want %d", got, c.want)
					}
				})
			})
		}
	}
}

// With SpreadRetryAfter clients that are refused together, of many users or workers of one, are told to come back in
// different seconds of a tenth of the wait, and each second gets about as many.
func testSpread(t *testing.T, adapters []Adapter) {
	const wait = 600
	retry := wait * time.Second
	store := Answers(func(core.Charge) (core.Decision, error) { return core.Decision{Limit: 5, RetryAfter: retry}, nil })
	inside := func(own *nethttp.Config) []Inside {
		return []Inside{{Limiter: core.Must(core.New(store, fivePerMinute)), User: "alice", Action: "inner", Cost: 1, Config: own}}
	}
	skips := func(*http.Request) bool { return true }
	exact := func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprint(w, d.RetryAfter)
	}
	for _, mode := range []struct {
		name   string
		cfg    nethttp.Config
		inside []Inside
	}{
		{"seconds until the reset", nethttp.Config{Headers: gate.XRateLimitDelta}, nil},
		{"the IETF's headers", nethttp.Config{Headers: gate.IETF}, nil},
		{"Deny gets the exact wait", nethttp.Config{Deny: exact, Headers: gate.XRateLimitDelta}, nil},
		{"Allow inside", nethttp.Config{Skip: skips, Headers: gate.XRateLimitDelta}, inside(nil)},
		{"Allow with its own", nethttp.Config{}, inside(&nethttp.Config{SpreadRetryAfter: true, Headers: gate.XRateLimitDelta})},
	} {
		for _, ad := range adapters {
			t.Run(mode.name+"/"+ad.Name, func(t *testing.T) {
				route := Route{Inside: mode.inside}
				if mode.name != "Allow with its own" {
					mode.cfg.SpreadRetryAfter = true
					route.Limits = []Limit{{Limiter: core.Must(core.New(store, fivePerMinute)), Config: &mode.cfg}}
				}
				h := ad.Mount(App{Routes: []Route{route}}.Filled())
				told := func(user string) int {
					w := Do(h, "POST", "/replies/7", "X-User-ID", user)
					n, err := strconv.Atoi(w.Header().Get("Retry-After"))
					second, body := fmt.Sprint(n), fmt.Sprintf(`"retry_after":%d}`, n)
					if mode.cfg.Deny != nil {
						body = retry.String()
					}
					reset := w.Header().Get("X-RateLimit-Reset")
					if mode.cfg.Headers == gate.IETF {
						_, reset, _ = strings.Cut(w.Header().Get("RateLimit"), ";t=")
					}
					if err != nil || reset != second || !strings.Contains(w.Body.String(), body) {
						t.Fatalf("%v: the response does not agree: %v %s", err, w.Header(), w.Body)
					}
					if exact := int((retry + time.Second - 1) / time.Second); n < exact || n > exact+int(retry/10/time.Second) {
						t.Errorf("%s waits %d, of %v", user, n, retry)
					}
					return n
				}
				together := func(n, most int, user func(i int) string) {
					t.Helper()
					seconds := map[int]int{}
					for i := range n {
						seconds[told(user(i))]++
					}
					for second, clients := range seconds {
						if clients > most {
							t.Errorf("of %d clients %d come after %d seconds", n, clients, second)
						}
					}
				}
				if mode.name == "seconds until the reset" {
					retry = wait * time.Second
					together(1000, 40, func(i int) string { return fmt.Sprint("user-", i) }) // 16 on average
				}
				for _, share := range []struct{ wait, workers, most int }{{600, 40, 2}, {60, 40, 8}, {100, 110, 13}, {10, 40, 22}, {9, 40, 40}} {
					retry = time.Duration(share.wait) * time.Second
					together(share.workers, share.most, func(int) string { return "alice" })
				}
				for s := wait; s > 0; s -= 7 { // a client that asks again
					retry = time.Duration(s)*time.Second - time.Millisecond
					told("alice")
				}
			})
		}
	}
}
