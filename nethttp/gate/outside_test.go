package gate_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// The adapter of the example is right, and an adapter's author needs nothing else than Mount to see it.
func TestAnAdapterFromOutside(t *testing.T) {
	gatetest.Run(t, gatetest.Adapter{Name: "mylimit", Mount: mountExample})
}

func mountExample(a gatetest.App) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range a.Routes {
		handle := func(c *exchange) {
			for _, in := range rt.Inside {
				var cfg *gate.Config[*exchange]
				if in.Config != nil {
					lifted := exampleConfig(*in.Config)
					cfg = &lifted
				}
				d := gate.Allow(framework{}, c, cfg, in.Limiter, in.User, in.Action, in.Cost)
				if in.Decided(d); !d.Allowed && !in.Ignored {
					return
				}
			}
			if rt.Settles != nil {
				rt.Settles(c.w, c.r, func(actual int) error { return gate.Settle(framework{}, c, actual) })
				return
			}
			if rt.Holds != nil {
				rt.Holds(c.w, c.r, func() func() { return gate.Hold(c.r) })
				return
			}
			rt.Handler(c.w, c.r, func() (core.Decision, bool) { return gate.Decision[*exchange](c.r) })
		}
		for _, l := range slices.Backward(rt.Limits) {
			cfg := nethttp.Config{}
			if l.Config != nil {
				cfg = *l.Config
			}
			key := func(f keyfuncs.Func) func(*exchange) (string, error) {
				return func(c *exchange) (string, error) { return f(c.r) }
			}
			var subjects []gate.Subject[*exchange]
			for _, l := range append([]gatetest.Limit{l}, l.And...) {
				action := l.Action
				if l.Routed {
					action = keyfuncs.Route
				}
				subjects = append(subjects, gate.Subject[*exchange]{Limiter: l.Limiter, User: key(l.User), Action: key(action), Guests: l.Guests})
			}
			g, next := gate.New(framework{}, exampleConfig(cfg), subjects...), handle
			handle = func(c *exchange) { _ = g.Serve(c, func(c *exchange) error { next(c); return nil }) }
		}
		mux.HandleFunc(rt.Method+" "+rt.Path, func(w http.ResponseWriter, r *http.Request) {
			if a.Recovers {
				defer func() {
					if recover() != nil {
						w.WriteHeader(http.StatusInternalServerError)
					}
				}()
			}
			set(w.Header(), rt.Outside)
			handle(&exchange{w, r})
		})
	}
	return mux
}

func exampleConfig(cfg nethttp.Config) gate.Config[*exchange] {
	return gatetest.Lifted(cfg, func(c *exchange) (http.ResponseWriter, *http.Request) { return c.w, c.r })
}
