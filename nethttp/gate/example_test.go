package gate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// An adapter for a framework whose request is *http.Request.
func Example() {
	limit := func(limiter *core.Limiter, user, action keyfuncs.Func) func(http.Handler) http.Handler {
		g := gate.New("mylimit", limiter, user, action, gate.Rules[*http.Request]{})
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var o gate.Outcome
				g.Enter(&o, r, r, w.Header())
				if !o.Pass {
					o.Problem().Write(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}

	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute)))
	handler := limit(replies, keyfuncs.RemoteIP, keyfuncs.Action("reply"))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
		fmt.Printf("%d %q %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "0" ""
	// 429 "0" "60"
}

// An adapter's Allow, for a handler that asks for a decision itself.
func ExampleDecide() {
	allow := func(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) bool {
		o := gate.Decide("mylimit", gate.Style{}, r, w.Header(), limiter, user, action, cost)
		if !o.Pass {
			o.Problem().Write(w, r)
		}
		return o.Pass
	}

	items := core.Must(core.New(memorystore.New(nil), core.Funnel(10, core.Every(time.Minute))))
	for range 2 {
		w := httptest.NewRecorder()
		fmt.Print(allow(w, httptest.NewRequest("POST", "/", nil), items, "laoqian", "item", 6), " ")
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// true 200 4
	// false 429 4
}

// An adapter with a FinalCost: a request that fails costs nothing.
func ExampleGate_Run() {
	posts := core.Must(core.New(memorystore.New(nil), core.FixedWindow(2, time.Hour)))
	g := gate.New("mylimit", posts, keyfuncs.RemoteIP, keyfuncs.Action("post"), gate.Rules[*http.Request]{
		FinalCost: func(_ *http.Request, status int) int {
			if status >= 500 {
				return 0
			}
			return 1
		},
	})
	serve := func(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
		var o gate.Outcome
		g.Enter(&o, r, r, w.Header())
		if !o.Pass {
			o.Problem().Write(w, r)
			return
		}
		w, answered := gate.Watch(w)
		g.Run(r, r, &o, func(r *http.Request) { next(w, r) }, answered)
	}

	for _, status := range []int{500, 500, 201, 201, 201} {
		w := httptest.NewRecorder()
		serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }, w, httptest.NewRequest("POST", "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 500
	// 500
	// 201
	// 201
	// 429
}
