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

// A skin for a framework whose request is *http.Request.
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
