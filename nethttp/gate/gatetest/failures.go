package gatetest

// OnlyFailures: attempts that may turn out right.

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// A login checks a password for 300 ms. Its limiter locks a user after five failures.
type login struct {
	t       *testing.T
	h       http.Handler
	store   core.Store
	limiter *core.Limiter
	checked int
	mu      sync.Mutex
}

func wrong(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }

func newLogin(t *testing.T, ad Adapter, cfg *nethttp.Config, and ...Limit) *login {
	store := memory()
	l := &login{t: t, store: store, limiter: core.Must(core.Must(core.New(store, core.SlidingWindow(5, 15*time.Minute))).With(core.BanPolicy{
		Refusals: 1, Within: time.Minute, Bans: []time.Duration{15 * time.Minute},
	}))}
	for i := range and {
		and[i].Limiter = core.Must(core.New(store, core.SlidingWindow(7, time.Hour)))
	}
	limit := Limit{Limiter: l.limiter, Config: cfg, And: and}
	l.h = ad.Mount(App{Recovers: true, Routes: []Route{{Limits: []Limit{limit}, Handler: l.check}}})
	return l
}

// check answers as the header Password says.
func (l *login) check(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
	l.mu.Lock()
	l.checked++
	l.mu.Unlock()
	time.Sleep(check)
	switch r.Header.Get("Password") {
	case "right":
		w.WriteHeader(http.StatusOK)
	case "fails":
		w.WriteHeader(http.StatusInternalServerError)
	case "panics":
		panic("check")
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// try sends n attempts at the same time, and returns how many got each status. A refusal is a problem of the
// type that is wanted, "" for none, which for attempts in progress says to come back soon.
func (l *login) try(n int, password, refusals string) map[int]int {
	l.t.Helper()
	var mu sync.Mutex
	codes := map[int]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			w := Do(l.h, "POST", "/replies/7", "X-User-ID", "alice", "Password", password)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
			if w.Code != http.StatusTooManyRequests {
				return
			}
			var problem struct{ Type string }
			_ = json.Unmarshal(w.Body.Bytes(), &problem)
			retry := w.Header().Get("Retry-After")
			if !strings.HasSuffix(problem.Type, refusals) || refusals == "#in-flight" && retry != "1" {
				l.t.Errorf("a refusal of type %q with Retry-After %q, want %s", problem.Type, retry, refusals)
			}
		})
	}
	all.Wait()
	return codes
}

// hangingUp is how handlers answer a client that hangs up after 100 ms of 300, and how many failures that is.
var hangingUp = []struct {
	name   string
	handle http.HandlerFunc
	fails  int
}{
	{"wrong", func(w http.ResponseWriter, _ *http.Request) { time.Sleep(check); w.WriteHeader(401) }, 1},
	{"right, which it is not told", func(w http.ResponseWriter, _ *http.Request) { time.Sleep(check); w.WriteHeader(200) }, 1},
	{"right, which it is not told in a body", func(w http.ResponseWriter, _ *http.Request) { time.Sleep(check); _, _ = io.WriteString(w, "ok") }, 1},
	{"right, which it was told before", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(check)
	}, 0},
	{"an error, which it was told before", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(502)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(check)
	}, 1},
	{"nothing", func(http.ResponseWriter, *http.Request) { time.Sleep(check) }, 1},
	{"a query that fails", func(w http.ResponseWriter, r *http.Request) { left(r); w.WriteHeader(500) }, 1},
	{"a query that fails, and a redirect", func(w http.ResponseWriter, r *http.Request) {
		left(r)
		http.Redirect(w, r, "/login?error", http.StatusSeeOther)
	}, 1},
	{"a panic", func(_ http.ResponseWriter, r *http.Request) { left(r); panic("check") }, 1},
	{"http.ErrAbortHandler", func(_ http.ResponseWriter, r *http.Request) { left(r); panic(http.ErrAbortHandler) }, 1},
	{"http.ErrAbortHandler of a client that stays", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 1},
	{"a proxy", (&httputil.ReverseProxy{
		Rewrite:      func(*httputil.ProxyRequest) {},
		Transport:    roundTrips(func(r *http.Request) (*http.Response, error) { left(r); return nil, r.Context().Err() }),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}).ServeHTTP, 1},
	{"http.TimeoutHandler", http.TimeoutHandler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(check) }), time.Hour, "late").ServeHTTP, 1},
}

// check is how long a password is checked.
const check = 300 * time.Millisecond

type roundTrips func(*http.Request) (*http.Response, error)

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// testHangingUp has clients hang up: cancel is called after 100 ms.
func testHangingUp(t *testing.T, ad Adapter, until func(context.Context) (context.Context, context.CancelFunc)) {
	for _, c := range hangingUp {
		if ad.NoStreams && strings.HasSuffix(c.name, "before") {
			continue // the client is told when the handler has returned
		}
		l := newLogin(t, ad, &nethttp.Config{OnlyFailures: wrong})
		l.h = catches(ad.Mount(App{Routes: []Route{{
			Limits:  []Limit{{Limiter: l.limiter, Config: &nethttp.Config{OnlyFailures: wrong}}},
			Handler: func(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) { c.handle(w, r) },
		}}}))
		ctx, leave := until(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		r := httptest.NewRequestWithContext(ctx, "POST", "/replies/7", nil)
		r.Header.Set("X-User-ID", "alice")
		l.h.ServeHTTP(httptest.NewRecorder(), r)
		if n, _ := l.failures(); n != c.fails {
			t.Errorf("%s: %d failures count, want %d", c.name, n, c.fails)
		}
		time.Sleep(check) // until the handler in a TimeoutHandler has returned
	}
}

// failures is how many failures count, and whether alice is banned.
func (l *login) failures() (n int, banned bool) {
	l.t.Helper()
	s, err := l.limiter.Status(l.t.Context(), "alice", "reply")
	if err != nil {
		l.t.Fatal(err)
	}
	return 5 - s.Limits[0].Remaining, s.Ban.Banned
}

func (l *login) counts(want int) {
	l.t.Helper()
	if n, banned := l.failures(); n != want || banned {
		l.t.Errorf("%d failures count, banned %v; want %d", n, banned, want)
	}
}

// "a user is refused after n failed attempts, whether these come one after the other or at the same time"
func testOnlyFailures(t *testing.T, adapters []Adapter) {
	only := &nethttp.Config{OnlyFailures: wrong}
	for _, c := range []struct {
		name string
		run  func(t *testing.T, ad Adapter)
	}{
		{"right ones at the same time never count", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, only)
			for range 20 {
				if codes := l.try(10, "right", "#in-flight"); codes[200] != 5 || codes[429] != 5 {
					t.Errorf("%v", codes)
				}
				l.counts(0)
			}
		}},
		{"right ones that wait all pass", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, &nethttp.Config{OnlyFailures: wrong, MaxWait: 2 * time.Second})
			if codes := l.try(20, "right", ""); codes[200] != 20 {
				t.Errorf("%v", codes)
			}
			l.counts(0)
		}},
		{"n failures lock one after the other", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, only)
			for i := range 5 {
				if codes := l.try(1, "wrong", ""); codes[401] != 1 {
					t.Errorf("guess %d: %v", i, codes)
				}
				l.counts(i + 1)
			}
			if codes := l.try(3, "right", "#banned"); codes[429] != 3 {
				t.Errorf("%v", codes)
			}
		}},
		{"of a thousand wrong ones at the same time at most 2n are checked", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, only)
			l.try(1000, "wrong", "#in-flight")
			l.try(1, "right", "#banned")
			if _, banned := l.failures(); !banned || l.checked > 10 {
				t.Errorf("banned %v, %d were checked", banned, l.checked)
			}
		}},
		{"of a thousand that wait too", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, &nethttp.Config{OnlyFailures: wrong, MaxWait: 2 * time.Second})
			l.try(1000, "wrong", "")
			l.try(1, "right", "#banned")
			if _, banned := l.failures(); !banned || l.checked > 10 {
				t.Errorf("banned %v, %d were checked", banned, l.checked)
			}
		}},
		{"failures after right ones lock as well", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, only)
			l.try(4, "wrong", "")
			l.try(4, "right", "")
			l.counts(4)
			l.try(1, "wrong", "")
			l.try(1, "right", "#banned")
		}},
		{"what the function does not call a failure is none", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, only)
			if codes := l.try(5, "fails", ""); codes[500] != 5 {
				t.Errorf("%v", codes)
			}
			if codes := l.try(5, "panics", ""); codes[500] != 5 {
				t.Errorf("%v", codes)
			}
			l.counts(0)
		}},
		{"a panic is a 500, and frees its slot", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, &nethttp.Config{OnlyFailures: func(_ *http.Request, status int) bool { return status == 500 }})
			l.try(4, "panics", "")
			l.counts(4)
			if codes := l.try(1, "panics", ""); codes[500] != 1 {
				t.Errorf("%v", codes)
			}
		}},
		{"it costs what it would have", func(t *testing.T, ad Adapter) {
			l := newLogin(t, ad, &nethttp.Config{OnlyFailures: wrong, Cost: func(*http.Request) (int, error) { return 2, nil }})
			l.try(1, "right", "")
			l.counts(0)
			l.try(1, "wrong", "")
			l.counts(2)
		}},
		{"nothing is gained by hanging up", func(t *testing.T, ad Adapter) { testHangingUp(t, ad, context.WithCancel) }},
		{"nor by a deadline of a middleware outside", func(t *testing.T, ad Adapter) {
			testHangingUp(t, ad, func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 50*time.Millisecond)
			})
		}},
		{"a limiter that is picked counts them too", func(t *testing.T, ad Adapter) {
			cfg := &nethttp.Config{OnlyFailures: wrong}
			l := newLogin(t, ad, cfg)
			picks := *cfg
			picks.Limiter = func(*http.Request) (*core.Limiter, error) { return l.limiter, nil }
			l.h = ad.Mount(App{Routes: []Route{{Limits: []Limit{{Limiter: Five(l.store), Config: &picks}}, Handler: l.check}}})
			l.try(10, "right", "#in-flight")
			l.counts(0)
			l.try(5, "wrong", "")
			l.try(1, "right", "#banned")
		}},
		{"so do all subjects", func(t *testing.T, ad Adapter) {
			everyone := Limit{User: keyfuncs.Everyone}
			l := newLogin(t, ad, only, everyone)
			l.try(5, "right", "")
			l.counts(0)
			l.try(2, "wrong", "")
			l.counts(2)
			d, err := core.Must(core.New(l.store, core.SlidingWindow(7, time.Hour))).Peek(t.Context(), "~everyone", "reply")
			if err != nil || d.Remaining != 5 {
				t.Errorf("%+v, %v; want 5 of 7 left", d, err)
			}
		}},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				Capture(t) // of the panics
				synctest.Test(t, func(t *testing.T) { c.run(t, ad) })
			})
		}
	}
}
