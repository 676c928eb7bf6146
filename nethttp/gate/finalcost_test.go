package gate_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
	"pgregory.net/rapid"
)

// failedIsFree is the recipe that a client may try to cheat.
var failedIsFree = finalCost(1, func(status int) int {
	if status >= 500 {
		return 0
	}
	return 1
})

// leavingCosts3 charges 3 for a client that leaves, and 1 for all else.
var leavingCosts3 = finalCost(1, func(status int) int {
	if status == 499 {
		return 3
	}
	return 1
})

// What is left of 5 after one request that costs nothing if it fails.
func TestWhichFailedRequestsAreRefunded(t *testing.T) {
	type ended func(w http.ResponseWriter, r *http.Request, leave func())
	for _, c := range []struct {
		name   string
		do     ended
		config *nethttp.Config // nil is failedIsFree
		left   int
	}{
		{"a failure is refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(500) }, nil, 5},
		{"a failure after a disconnect is not", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(500) }, nil, 4},
		{"a failure that began before the disconnect is not", func(w http.ResponseWriter, _ *http.Request, leave func()) { w.WriteHeader(502); leave() }, nil, 4},
		{"what costs more is charged to a client that has left", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(401) },
			finalCost(1, func(int) int { return 3 }), 2},
		{"a panic before a response is a failure", func(http.ResponseWriter, *http.Request, func()) { panic("mine") }, nil, 5},
		{"a panic after a disconnect is not refunded", func(_ http.ResponseWriter, _ *http.Request, leave func()) { leave(); panic("mine") }, nil, 4},
		{"a panic after a response that is charged is not refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = io.WriteString(w, "x")
			panic("mine")
		}, nil, 4},
		{"a panic in the middle of a file is not refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = io.Copy(w, struct{ io.Reader }{io.MultiReader(file("some bytes"), panics{})}) // MultiReader would write itself
		}, nil, 4},
		{"a panic after a response that is free is refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			w.WriteHeader(503)
			_, _ = io.WriteString(w, "x")
			panic("mine")
		}, nil, 5},
		{"http.ErrAbortHandler before a response is not refunded", func(http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) }, nil, 4},
		{"http.ErrAbortHandler after a response is not refunded", func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = io.WriteString(w, "x")
			panic(http.ErrAbortHandler)
		}, nil, 4},
		{"http.ErrAbortHandler before a response costs what 499 costs", func(http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) }, leavingCosts3, 2},
		{"so does a failure after a disconnect", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(502) }, leavingCosts3, 2},
		{"so does a success that the client was not told", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(200) }, leavingCosts3, 2},
		{"and one in a file", func(w http.ResponseWriter, _ *http.Request, leave func()) {
			leave()
			_, _ = io.Copy(w, struct{ io.Reader }{file("some bytes")})
		}, leavingCosts3, 2},
		{"and a flush", func(w http.ResponseWriter, _ *http.Request, leave func()) {
			leave()
			_ = http.NewResponseController(w).Flush()
		}, leavingCosts3, 2},
		{"and no answer", func(_ http.ResponseWriter, _ *http.Request, leave func()) { leave() }, leavingCosts3, 2},
		{"a success that the client was told does not", func(w http.ResponseWriter, _ *http.Request, leave func()) { w.WriteHeader(200); leave() }, leavingCosts3, 4},
		{"nor a mistake of the client", func(w http.ResponseWriter, _ *http.Request, leave func()) { leave(); w.WriteHeader(404) }, leavingCosts3, 4},
		{"nothing that costs nothing in the end is well", func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(200) },
			finalCost(0, func(int) int { return 0 }), 5},
		{"a deadline inside is not a disconnect", func(w http.ResponseWriter, r *http.Request, _ func()) {
			ctx, cancel := context.WithTimeout(r.Context(), 0)
			defer cancel()
			<-ctx.Done()
			w.WriteHeader(504)
		}, nil, 5},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				cfg := c.config
				if cfg == nil {
					cfg = failedIsFree
				}
				limiter := core.Must(core.New(memory(), slidingFive))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				ran, log := gatetest.NewRan(t, 1), gatetest.Capture(t)
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits: []gatetest.Limit{{Limiter: limiter, Config: cfg}},
					Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
						ran.Now()
						c.do(w, r, leave)
					},
				}}}.Filled())
				r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
				r.Header.Set("X-User-ID", "alice")
				catches(h).ServeHTTP(httptest.NewRecorder(), r)
				if d, err := limiter.Peek(t.Context(), "alice", "reply"); err != nil || d.Remaining != c.left {
					t.Errorf("%d remain, want %d; %v", d.Remaining, c.left, err)
				}
				if said := log.Take(pkg(ad.Name)); said != nil {
					t.Errorf("log: %q", said)
				}
			})
		}
	}
}

// A call is what becomes of a request that passes.
type call struct {
	status int // 0: the handler writes nothing
	panics any
	leaves int // before the response, after it, or never
}

const (
	stays = iota
	leavesBefore
	leavesAfter
)

// costs is what the call has cost in the end, of an action that costs 1 on entry, 3 with
// a wrong password, and nothing if it fails.
func (c *call) costs() int {
	left := c.leaves != stays || c.panics == http.ErrAbortHandler
	switch {
	case c.status == 401:
		return 3
	case c.status >= 500, c.status == 0 && c.panics != nil:
		if !left {
			return 0
		}
	}
	return 1
}

// Whatever clients and handlers do, one request after the other: what is left is the quota
// less what each of them has cost, recounted.
func TestCallsAreChargedWhatTheyCost(t *testing.T) {
	const quota = 12
	config := finalCost(1, func(status int) int {
		switch {
		case status == 401:
			return 3
		case status >= 500:
			return 0
		}
		return 1
	})
	calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) call {
		return call{
			status: rapid.SampledFrom([]int{0, 200, 204, 304, 401, 404, 500, 502}).Draw(rt, "status"),
			panics: rapid.SampledFrom([]any{nil, nil, "mine", http.ErrAbortHandler}).Draw(rt, "panics"),
			leaves: rapid.SampledFrom([]int{stays, stays, leavesBefore, leavesAfter}).Draw(rt, "leaves"),
		}
	}), 1, 25)
	for name, open := range stores {
		for _, ad := range adapters {
			t.Run(name+"/"+ad.Name, func(t *testing.T) {
				limiter := core.Must(core.New(open(t), core.SlidingWindow(quota, time.Hour)))
				runs := 0
				rapid.Check(t, func(rt *rapid.T) {
					runs++
					user, left := fmt.Sprint("u", runs), quota
					var v *call
					var leave func()
					ran := false
					h := catches(ad.Mount(gatetest.App{Routes: []gatetest.Route{{
						Limits: []gatetest.Limit{{Limiter: limiter, Config: config}},
						Handler: func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
							ran = true
							if v.leaves == leavesBefore {
								leave()
							}
							if v.status != 0 {
								w.WriteHeader(v.status)
								_ = http.NewResponseController(w).Flush() // with Gin the response begins only now
							}
							if v.leaves == leavesAfter {
								leave()
							}
							if v.panics != nil {
								panic(v.panics)
							}
						},
					}}}.Filled()))
					for i, one := range calls.Draw(rt, "calls") {
						ctx, cancel := context.WithCancel(context.Background())
						v, leave, ran = &one, cancel, false
						r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
						r.Header.Set("X-User-ID", user)
						h.ServeHTTP(httptest.NewRecorder(), r)
						cancel()
						if ran != (left > 0) {
							rt.Fatalf("call %d, with %d left: the handler ran: %t", i, left, ran)
						}
						if ran {
							left = max(0, left-one.costs())
						}
						if d, err := limiter.Peek(context.Background(), user, "reply"); err != nil || d.Remaining != left {
							rt.Fatalf("after call %d, %+v: %d remain, want %d; %v", i, one, d.Remaining, left, err)
						}
					}
				})
			})
		}
	}
}

// After a deadline that a middleware outside has set, nothing is refunded: a client may send its body slowly.
func TestADeadlineOutsideIsNotRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or a busy machine is at the deadline too early
		limiter := core.Must(core.New(memory(), slidingFive))
		h := failedIsFree.Limit(limiter, keyfuncs.Everyone, keyfuncs.Action("x"))(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done(); w.WriteHeader(504) }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if d, err := limiter.Peek(t.Context(), "~everyone", "x"); err != nil || w.Code != 504 || d.Remaining != 4 {
			t.Errorf("%d, %d remain, %v", w.Code, d.Remaining, err)
		}
	})
}

// What panics before anything is sent is answered with 500 by the server.
func TestAStatusThatDoesNotExistCountsAsAPanic(t *testing.T) {
	var got int
	cfg := nethttp.Config{FinalCost: func(_ *http.Request, status int) int { got = status; return 1 }}
	h := cfg.Limit(core.Must(core.New(memory(), slidingFive)), keyfuncs.Everyone, keyfuncs.Action("x"))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}()
	if got != 500 {
		t.Errorf("the final cost is that of %d", got)
	}
}

// 30 clients that hang up get no more handlers than five: behind a handler that heeds its
// context, behind a proxy, which then answers 502, and in the middle of a download through
// a proxy, which then panics with http.ErrAbortHandler.
func TestADisconnectIsNotRefunded(t *testing.T) {
	onEach(t, func(t *testing.T, ad gatetest.Adapter, s *gatetest.Server) {
		var mu sync.Mutex
		var runs []string
		runsUntilLeft := func(r *http.Request, answer func()) {
			mu.Lock()
			runs = append(runs, r.Method)
			mu.Unlock()
			answer()
			select {
			case <-r.Context().Done():
			case <-time.After(20 * time.Second): // or the test never ends
			}
		}
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runsUntilLeft(r, func() {})
			w.WriteHeader(500)
		})
		download := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			runsUntilLeft(r, func() {
				_, _ = w.Write(make([]byte, 64<<10))
				_ = http.NewResponseController(w).Flush()
			})
		})
		proxy := func(h http.Handler) http.Handler {
			backend := httptest.NewServer(h)
			t.Cleanup(backend.Close)
			to, _ := url.Parse(backend.URL)
			return &httputil.ReverseProxy{
				Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
				ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(502) },
				ErrorLog:      log.New(io.Discard, "", 0),
				FlushInterval: -1,
			}
		}
		for _, c := range []struct {
			name    string
			h       http.Handler
			answers bool
		}{
			{"handler", slow, false},
			{"proxy", proxy(slow), false},
			{"download", proxy(download), true},
		} {
			t.Run(c.name, func(t *testing.T) {
				runs = nil
				limiter := core.Must(core.New(memory(), slidingFive))
				var handlers sync.WaitGroup
				s.Mount(ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits: []gatetest.Limit{{Limiter: limiter, Config: failedIsFree}},
					Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
						handlers.Add(1)
						defer handlers.Done()
						c.h.ServeHTTP(w, r)
					},
				}}}.Filled()))
				refused := 0
				for range 30 {
					ctx, leave := context.WithCancel(t.Context())
					begun := make(chan struct{})
					go func() {
						defer close(begun)
						for end := time.Now().Add(10 * time.Second); !c.answers && time.Now().Before(end) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
							mu.Lock()
							n := len(runs)
							mu.Unlock()
							if n > 0 {
								leave()
							}
						}
					}()
					req, _ := http.NewRequestWithContext(ctx, "POST", s.URL+"/replies/7", nil)
					req.Header.Set("X-User-ID", "alice")
					resp, err := s.Client().Do(req)
					if err == nil {
						if c.answers && resp.StatusCode == 200 {
							_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
							leave()
						}
						if resp.Body.Close(); resp.StatusCode == 429 {
							refused++
						}
					}
					leave()
					<-begun
					handlers.Wait()
					mu.Lock()
					passed := len(runs)
					runs = slices.Delete(runs, 0, passed)
					mu.Unlock()
					if refused > 0 && passed > 0 {
						t.Fatal("a request passed after one was refused")
					}
				}
				if refused != 25 {
					t.Errorf("%d were refused, want 25", refused)
				}
			})
		}
	})
}
