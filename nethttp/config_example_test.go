package nethttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// Plans, a cost by the request and your own answer. The windows of the two plans
// share their state, so a user who upgrades keeps what was used. A plan without a limit
// is skipped.
func ExampleConfig() {
	store := memorystore.New(nil)
	free := core.Must(core.New(store, core.FixedWindow(10, time.Hour)))
	paid := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))

	exports := nethttp.Config{
		Limiter: func(r *http.Request) (*core.Limiter, error) {
			switch plan := r.Header.Get("X-Plan"); plan {
			case "free":
				return free, nil
			case "paid":
				return paid, nil
			default:
				return nil, fmt.Errorf("no such plan: %q", plan) // 500, and in the log
			}
		},
		Skip: func(r *http.Request) bool { return r.Header.Get("X-Plan") == "unlimited" },
		Cost: func(r *http.Request) (int, error) {
			if r.FormValue("format") == "pdf" {
				return 8, nil
			}
			return 1, nil
		},
		Deny: func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintf(w, "upgrade, or come back in %s", d.RetryAfter.Round(time.Minute))
		},
	}
	h := exports.Limit(free, keyfuncs.Header("X-User-ID"), keyfuncs.Action("export"))(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an export") }))

	for _, plan := range []string{"free", "free", "paid", "unlimited"} {
		r := httptest.NewRequest("GET", "/export?format=pdf", nil)
		r.Header.Set("X-User-ID", "alice")
		r.Header.Set("X-Plan", plan)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(plan, w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Body)
	}
	// Output:
	// free 200 2 an export
	// free 429 2 upgrade, or come back in 1h0m0s
	// paid 200 984 an export
	// unlimited 200  an export
}

// A funnel that smooths: a request that may pass within a second waits for its turn. Any
// other is refused.
func ExampleConfig_maxWait() {
	likes := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(100*time.Millisecond))))
	h := nethttp.Config{MaxWait: time.Second}.Limit(likes, keyfuncs.RemoteIP, keyfuncs.Action("like"))(http.HandlerFunc(reply201))

	begun := time.Now()
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/likes", nil))
		fmt.Println(w.Code)
	}
	fmt.Println("in at least 200 ms:", time.Since(begun) >= 200*time.Millisecond)
	// Output:
	// 201
	// 201
	// 201
	// in at least 200 ms: true
}

// A request that the server fails to serve costs nothing.
func ExampleConfig_finalCost() {
	exports := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(2, time.Hour)))
	export := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("broken") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := nethttp.Config{FinalCost: func(_ *http.Request, status int) int {
		if status >= 500 {
			return 0
		}
		return 1
	}}.Limit(exports, keyfuncs.RemoteIP, keyfuncs.Action("export"))(export)

	for _, target := range []string{"/?broken", "/?broken", "/?broken", "/", "/", "/"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", target, nil))
		fmt.Println(target, w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// /?broken 500 1
	// /?broken 500 1
	// /?broken 500 1
	// / 200 1
	// / 200 0
	// / 429 0
}

// At a login right passwords count nothing, and five wrong ones lock the name for the client's address.
func ExampleConfig_onlyFailures() {
	failures := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, 15*time.Minute)))
	checkPassword := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	h := nethttp.Config{OnlyFailures: func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }}.
		Limit(failures, keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP), keyfuncs.Action("login"))(checkPassword)

	for _, try := range []struct {
		password string
		times    int
	}{{"secret", 100}, {"a guess", 5}, {"secret", 1}} {
		codes := map[int]int{}
		for range try.times {
			r := httptest.NewRequest("POST", "/login", nil)
			r.SetBasicAuth("alice", try.password)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			codes[w.Code]++
		}
		fmt.Println(try.password, codes)
	}
	// Output:
	// secret map[200:100]
	// a guess map[401:5]
	// secret map[429:1]
}

// Plans with funnels. A funnel of other numbers is another funnel, so each plan has its
// own state: a user who upgrades begins with a full quota, and a user who goes back finds
// the old one as it was. Windows of one length share their state, as in the example of Config.
func ExampleConfig_plans() {
	store := memorystore.New(nil)
	plans := map[string]*core.Limiter{
		"free": core.Must(core.New(store, core.Funnel(2, core.Per(2, time.Hour)))),
		"paid": core.Must(core.New(store, core.Funnel(100, core.Per(100, time.Hour)))),
	}
	h := nethttp.Config{
		Limiter: func(r *http.Request) (*core.Limiter, error) {
			if l, ok := plans[r.Header.Get("X-Plan")]; ok {
				return l, nil
			}
			return nil, fmt.Errorf("no such plan: %q", r.Header.Get("X-Plan"))
		},
	}.Limit(plans["free"], keyfuncs.Header("X-User-ID"), keyfuncs.Action("export"))(http.HandlerFunc(reply201))

	for _, plan := range []string{"free", "free", "free", "paid", "free"} {
		r := httptest.NewRequest("POST", "/export", nil)
		r.Header.Set("X-User-ID", "alice")
		r.Header.Set("X-Plan", plan)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(plan, w.Code, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	// Output:
	// free 201 1 of 2
	// free 201 0 of 2
	// free 429 0 of 2
	// paid 201 99 of 100
	// free 429 0 of 2
}

// To change limits while the program runs, keep the limiter in an atomic.Pointer that
// Config.Limiter reads. Past actions count towards the new numbers.
func ExampleConfig_changes() {
	store := memorystore.New(nil)
	perHour := func(n int) *core.Limiter { return core.Must(core.New(store, core.SlidingWindow(n, time.Hour))) }
	var now atomic.Pointer[core.Limiter]
	now.Store(perHour(5))

	h := nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return now.Load(), nil }}.
		Limit(now.Load(), keyfuncs.RemoteIP, keyfuncs.Action("export"))(http.HandlerFunc(reply201))
	ask := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/export", nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	for range 4 {
		ask()
	}
	now.Store(perHour(3)) // too many already
	ask()
	now.Store(perHour(8))
	ask()
	// Output:
	// 201 4 of 5
	// 201 3 of 5
	// 201 2 of 5
	// 201 1 of 5
	// 429 0 of 3
	// 201 3 of 8
}
