package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func five(s core.Store) *core.Limiter { return core.Must(core.New(s, fivePerMinute)) }

// What is forgotten at start-up is said there, by the adapter's name, with what to
// change.
func TestStartUp(t *testing.T) {
	ok := five(memory())
	action := keyfuncs.Action("reply")
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"net/http: no limiter", func() { nethttp.Limit(nil, xUserID, action) }, "nethttp: Limit: the limiter is nil; make one with core.New"},
		{"net/http: no user", func() { nethttp.Limit(ok, nil, action) }, "nethttp: Limit: the user's key function is nil; say whom to limit"},
		{"net/http: no action", func() { nethttp.Limit(ok, xUserID, nil) }, "nethttp: Limit: the action's key function is nil; say what to limit"},
		{"net/http: no handler", func() { nethttp.Limit(ok, xUserID, action)(nil) }, "nethttp: Limit: the handler is nil"},
		{"net/http: the long form", func() { nethttp.Config{Keep: true}.Limit(nil, xUserID, action) }, "nethttp: Limit: the limiter is nil"},
		{"net/http: a negative MaxWait", func() { nethttp.Config{MaxWait: -1}.Limit(ok, xUserID, action) }, "nethttp: Limit: MaxWait -1ns is negative; 0 holds nobody"},
		{"Gin: a negative MaxWait", func() { ginlimit.Config{MaxWait: -1}.Limit(ok, ginlimit.Value("user"), ginlimit.Route) }, "ginlimit: Limit: MaxWait -1ns is negative"},
		{"Echo: a negative MaxWait", func() { echolimit.Config{MaxWait: -1}.Limit(ok, echolimit.Value("user"), echolimit.Route) }, "echolimit: Limit: MaxWait -1ns is negative"},
		{"net/http: a negative MaxWaiting", func() { nethttp.Config{MaxWaiting: -1}.Limit(ok, xUserID, action) }, "nethttp: Limit: MaxWaiting -1 is negative; 0 is 1000"},
		{"Gin: a negative MaxWaiting", func() { ginlimit.Config{MaxWaiting: -1}.Limit(ok, ginlimit.Value("user"), ginlimit.Route) }, "ginlimit: Limit: MaxWaiting -1 is negative"},
		{"Echo: a negative MaxWaiting", func() { echolimit.Config{MaxWaiting: -1}.Limit(ok, echolimit.Value("user"), echolimit.Route) }, "echolimit: Limit: MaxWaiting -1 is negative"},
		{"Gin: no limiter", func() { ginlimit.Limit(nil, ginlimit.Value("user"), ginlimit.Route) }, "ginlimit: Limit: the limiter is nil; make one with core.New"},
		{"Gin: no user", func() { ginlimit.Limit(ok, nil, ginlimit.Route) }, "ginlimit: Limit: the user's key function is nil; say whom to limit"},
		{"Gin: no action", func() { ginlimit.Limit(ok, ginlimit.Value("user"), nil) }, "ginlimit: Limit: the action's key function is nil; say what to limit"},
		{"Gin: nothing to make a key function from", func() { ginlimit.From(nil) }, "ginlimit: From: the key function is nil"},
		{"Echo: no limiter", func() { echolimit.Limit(nil, echolimit.Value("user"), echolimit.Route) }, "echolimit: Limit: the limiter is nil; make one with core.New"},
		{"Echo: no user", func() { echolimit.Limit(ok, nil, echolimit.Route) }, "echolimit: Limit: the user's key function is nil; say whom to limit"},
		{"Echo: no action", func() { echolimit.Limit(ok, echolimit.Value("user"), nil) }, "echolimit: Limit: the action's key function is nil; say what to limit"},
		{"Echo: nothing to make a key function from", func() { echolimit.From(nil) }, "echolimit: From: the key function is nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, c.want) {
					t.Errorf("panicked with %q, want %q", got, c.want)
				}
			}()
			c.do()
		})
	}
}

// A limit around the mux has no pattern to count by. That is a mistake in the
// program: 500 for every request, and one line in the log.
func TestRouteOutsideTheMux(t *testing.T) {
	log := capture(t)
	store := &asked{Store: memory()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /replies/{id}", func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") })
	h := nethttp.Limit(five(store), xUserID, keyfuncs.Route)(mux)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				resp := ask(h)
				body, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != 500 || string(body) != broken.body || resp.Header.Get("X-RateLimit-Limit") != "" {
					t.Errorf("got %s %v %s", resp.Status, resp.Header, body)
				}
			}
		})
	}
	wg.Wait()
	want := []string{cannot + "action: " + keyfuncs.ErrNoRoute.Error()}
	if got := log.take("nethttp"); !slices.Equal(got, want) {
		t.Errorf("log:\n got %q\nwant %q", got, want)
	}
	if len(store.charges) > 0 {
		t.Errorf("charged: %q", store.charges)
	}
}

// Around the mux an Action limits also what the mux answers itself; on a pattern
// a limit does not see it.
func TestWhatTheMuxAnswersItself(t *testing.T) {
	store := &asked{Store: decides(allowed)()}
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	limit := nethttp.Limit(five(store), xUserID, keyfuncs.Action("x"))
	on := http.NewServeMux()
	on.Handle("GET /a", limit(done))
	on.Handle("GET /tree/", limit(done))
	around := http.NewServeMux()
	around.Handle("GET /a", done)
	around.Handle("GET /tree/", done)
	for _, c := range []struct {
		name, method, path string
		status             int
		on, around         int // charges
	}{
		{"a match", "GET", "/a", 200, 1, 1},
		{"404", "GET", "/none", 404, 0, 1},
		{"405", "POST", "/a", 405, 0, 1},
		{"a redirect to the slash", "GET", "/tree", 307, 0, 1},
		{"a redirect to the clean path", "GET", "/b/../a", 307, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range []struct {
				h    http.Handler
				want int
			}{{on, c.on}, {limit(around), c.around}} {
				store.charges = nil
				r := httptest.NewRequest(c.method, c.path, nil)
				r.Header.Set("X-User-ID", "laoqian")
				w := httptest.NewRecorder()
				m.h.ServeHTTP(w, r)
				if w.Code != c.status && !(c.status == 307 && w.Code == 301) {
					t.Errorf("status %d, want %d", w.Code, c.status)
				}
				if len(store.charges) != m.want || len(w.Header()["X-Ratelimit-Limit"]) != m.want {
					t.Errorf("charged %d times, headers %v; want %d", len(store.charges), w.Header(), m.want)
				}
			}
		})
	}
}

// The handler has the very writer that the server made.
func TestTheWriterIsNotWrapped(t *testing.T) {
	for _, cfg := range []nethttp.Config{{}, {Keep: true, Deny: func(http.ResponseWriter, *http.Request, core.Decision) {}}} {
		var got http.ResponseWriter
		h := cfg.Limit(five(memory()), xUserID, keyfuncs.Action("x"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w }))
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User-ID", "laoqian")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); got != http.ResponseWriter(w) {
			t.Errorf("got a %T", got)
		}
	}
}

// Without Keep the handler has the very request; with it, one that still has the
// mux's match and the context's values and end.
func TestTheRequestStaysWhole(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	defer cancel()
	for _, keep := range []bool{false, true} {
		mux := http.NewServeMux()
		var got *http.Request
		mux.Handle("GET /a/{id}", nethttp.Config{Keep: keep}.Limit(five(memory()), keyfuncs.Everyone, keyfuncs.Route)(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })))
		r := httptest.NewRequestWithContext(ctx, "GET", "/a/7", nil)
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if (got == r) == keep {
			t.Errorf("keep %t: the request is the same: %t", keep, got == r)
		}
		if got.PathValue("id") != "7" || got.Pattern != "GET /a/{id}" || got.Context().Value(key{}) != "v" {
			t.Errorf("keep %t: %q %q %v", keep, got.PathValue("id"), got.Pattern, got.Context().Value(key{}))
		}
		if _, ok := nethttp.Decision(got); ok != keep {
			t.Errorf("keep %t: there is a decision: %t", keep, ok)
		}
		if keep {
			if cancel(); got.Context().Err() == nil {
				t.Error("the kept context does not end with the request's")
			}
		}
	}
}

// A caller who has left is not the store's outage.
func TestACallerWhoLeft(t *testing.T) {
	log := capture(t)
	store := &asked{Store: memory()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := nethttp.Limit(five(store), xUserID, keyfuncs.Action("x"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("X-User-ID", "laoqian")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 503 || len(store.charges) > 0 {
		t.Errorf("got %d, charged %q", w.Code, store.charges)
	}
	if got := log.take("nethttp"); got != nil {
		t.Errorf("log: %q", got)
	}
}

// What a user has done counts under whatever numbers come next, whether another plan
// is picked or the limits change while the program runs: no change is an amnesty.
func TestNoChangeIsAnAmnesty(t *testing.T) {
	type ask struct{ max, status, remaining int }
	windows := []ask{
		{5, 200, 4}, {5, 200, 3}, {5, 200, 2}, {5, 200, 1},
		{3, 429, 0}, {3, 429, 0}, // more than there may be, read as if cut
		{9, 200, 4}, // and still there
		{5, 429, 0}, {9, 200, 3}, {9, 200, 2}, {9, 200, 1}, {9, 200, 0}, {5, 429, 0}, {9, 429, 0},
	}
	for _, c := range []struct {
		name  string
		limit func(max int) core.Limit
		asks  []ask
	}{
		{"sliding", func(n int) core.Limit { return core.SlidingWindow(n, time.Minute) }, windows},
		{"moving", func(n int) core.Limit { return core.MovingWindow(n, time.Minute) }, windows},
		{"fixed", func(n int) core.Limit { return core.FixedWindow(n, time.Minute) }, windows},
		{"elastic", func(n int) core.Limit { return core.ElasticWindow(n, time.Minute) }, windows},
		{"a funnel, each size of which counts by itself", func(n int) core.Limit { return core.Funnel(n, core.Every(time.Minute)) }, []ask{
			{3, 200, 2}, {3, 200, 1}, {5, 200, 4}, {3, 200, 0}, {3, 429, 0}, {5, 200, 3}, {5, 200, 2}, {3, 429, 0}, {5, 200, 1},
		}},
	} {
		for _, ad := range adapters {
			for _, settles := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/settle=%t", c.name, ad.name, settles), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						store := memorystore.New(nil)
						limiter := func(max int) *core.Limiter { return core.Must(core.New(store, c.limit(max))) }
						var now atomic.Pointer[core.Limiter]
						cfg := &nethttp.Config{Limiter: func(*http.Request) *core.Limiter { return now.Load() }}
						if settles {
							cfg.FinalCost = func(*http.Request, int) int { return 1 }
						}
						h := ad.mount(app{routes: []route{{limits: []limit{{limiter: limiter(5), config: cfg}}}}}.filled())
						for i, a := range c.asks {
							now.Store(limiter(a.max))
							r := httptest.NewRequest("POST", "/replies/7", nil)
							r.Header.Set("X-User-ID", "laoqian")
							w := httptest.NewRecorder()
							h.ServeHTTP(w, r)
							got := fmt.Sprint(w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("X-RateLimit-Limit"))
							if want := fmt.Sprint(a.status, strconv.Itoa(a.remaining), strconv.Itoa(a.max)); got != want {
								t.Errorf("%d: got %s, want %s", i+1, got, want)
							}
						}
					})
				})
			}
		}
	}
}

// Who has left is settled all the same: his charge was given back or was not.
func TestSettlingOutlivesTheClient(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.name, func(t *testing.T) {
			limiter := core.Must(core.New(memory(), slidingFive))
			ctx, leave := context.WithCancel(t.Context())
			h := ad.mount(app{routes: []route{{
				limits:  []limit{{limiter: limiter, config: unless(201)}},
				handler: func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) { leave() },
			}}}.filled())
			r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
			r.Header.Set("X-User-ID", "laoqian")
			h.ServeHTTP(httptest.NewRecorder(), r)
			if d, err := limiter.Peek(t.Context(), "laoqian", "reply"); err != nil || d.Remaining != 5 {
				t.Errorf("%d remain, %v", d.Remaining, err)
			}
		})
	}
}

// A panic of a hook is the server's to deal with; the handler does not run.
func TestAHookPanics(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.name, func(t *testing.T) {
			h := ad.mount(app{routes: func() []route {
				rt := reply(&nethttp.Config{Deny: func(http.ResponseWriter, *http.Request, core.Decision) { panic("mine") }})(decides(refusal)())
				rt[0].handler = func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) { t.Error("the handler ran") }
				return rt
			}()}.filled())
			defer func() {
				if v := recover(); v != "mine" {
					t.Errorf("recovered %v", v)
				}
			}()
			ask(h)
		})
	}
}

// A Failure says what was asked, and unwraps.
func TestFailure(t *testing.T) {
	var got error
	h := nethttp.Config{Fail: func(_ http.ResponseWriter, _ *http.Request, err error) { got = err }}.
		Limit(five(memory()), keyfuncs.Header("X-Missing"), keyfuncs.Action("x"))(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	var f *nethttp.Failure
	if !errors.As(got, &f) || f.Status != 400 || !errors.Is(got, keyfuncs.ErrNoKey) {
		t.Fatalf("got %#v", got)
	}
	if want := "nethttp: user: keyfuncs: the request has no key: the header X-Missing is missing or empty"; got.Error() != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The headers that a browser's script may read are those that we write.
func TestExposedHeaders(t *testing.T) {
	exposed := nethttp.ExposedHeaders()
	for i := range exposed {
		exposed[i] = http.CanonicalHeaderKey(exposed[i])
	}
	h := nethttp.Config{IETF: true}.Limit(five(decides(refusal)()), keyfuncs.Everyone, keyfuncs.Action("x"))(http.NotFoundHandler())
	safelisted := []string{"Cache-Control", "Content-Type"}
	for name := range ask(h).Header {
		if !slices.Contains(append(exposed, safelisted...), name) {
			t.Errorf("%s is not exposed", name)
		}
	}
	exposed[0] = "changed"
	if nethttp.ExposedHeaders()[0] == "changed" {
		t.Error("the caller has our own slice")
	}
}

// What a handler adds to one of our headers changes no other, and no other
// response.
func TestHeadersAreNotShared(t *testing.T) {
	h := nethttp.Config{IETF: true, ResetDelta: true}.Limit(five(decides(refusal)()), xUserID, keyfuncs.Action("x"))(http.NotFoundHandler())
	var first http.Header
	for range 2 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User-ID", "laoqian")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := w.Header() // the very map, not the copy in a Result
		if first == nil {
			first = got.Clone()
		}
		for name := range first {
			if !slices.Equal(got[name], first[name]) {
				t.Errorf("%s: %q, want %q", name, got[name], first[name])
			}
			_ = append(got[name], "mine")
		}
		for name := range first {
			if !slices.Equal(got[name], first[name]) {
				t.Errorf("after adding to others %s is %q, want %q", name, got[name], first[name])
			}
		}
	}
}

// Everything that is built of func(http.Handler) http.Handler takes a limit.
func TestChains(t *testing.T) {
	chain := []func(http.Handler) http.Handler{
		func(next http.Handler) http.Handler { return http.StripPrefix("/v1", next) },
		nethttp.Limit(five(memorystore.New(nil)), xUserID, keyfuncs.Action("x")),
		func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Minute, "late") },
	}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.URL.Path) })
	for _, m := range slices.Backward(chain) {
		h = m(h)
	}
	r := httptest.NewRequest("GET", "/v1/a", nil)
	r.Header.Set("X-User-ID", "laoqian")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 200 || w.Body.String() != "/a" || w.Header().Get("X-RateLimit-Remaining") != "4" {
		t.Errorf("got %d %q %v", w.Code, w.Body, w.Header())
	}
}
