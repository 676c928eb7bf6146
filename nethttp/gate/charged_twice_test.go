package gate_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

const chargedTwice = "WARN adapter: each request was charged twice for one action; the middleware is mounted twice, maybe on a group and on a route of it, or the limiters of two share a state: remove one, or give it another action | charged-twice"

// A middleware that is mounted twice is told of once, and so are two limiters that share a state. It is told by the
// numbers.
func TestChargedTwiceByTwoMiddlewares(t *testing.T) {
	window := func(s core.Store, max int) *core.Limiter {
		return core.Must(core.New(s, core.FixedWindow(max, time.Hour)))
	}
	users := []string{"alice", "bob", "carol", "dave", "erin"}
	for _, c := range []struct {
		name   string
		limits func(core.Store) []gatetest.Limit // outermost first
		want   bool
	}{
		{"one limiter", func(s core.Store) []gatetest.Limit {
			l := window(s, 1000)
			return []gatetest.Limit{{Limiter: l}, {Limiter: l}}
		}, true},
		{"a larger one inside", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 500)}, {Limiter: window(s, 1000)}}
		}, true},
		{"a smaller one inside", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: window(s, 500)}}
		}, true},
		{"two that share nothing", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: window(s, 500), Action: keyfuncs.Action("another")}}
		}, false},
		{"one limiter, for nothing", func(s core.Store) []gatetest.Limit {
			l := gatetest.Limit{Limiter: window(s, 1000), Config: costs(0, nil)}
			return []gatetest.Limit{l, l}
		}, false},
		{"two of the same numbers", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: window(memory(), 1000)}}
		}, false},
		{"another, of which each user has used one more", func(s core.Store) []gatetest.Limit {
			day := core.Must(core.New(s, core.FixedWindow(500, 24*time.Hour)))
			for _, user := range users {
				if _, err := day.Allow(t.Context(), user, "another"); err != nil {
					t.Fatal(err)
				}
			}
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: day, Action: keyfuncs.Action("another")}}
		}, false},
		{"other slots, of which each user has one more", func(s core.Store) []gatetest.Limit {
			few, many := core.Must(core.New(s, core.InFlight(10))), core.Must(core.New(s, core.InFlight(100)))
			for _, user := range users {
				if _, err := many.Allow(t.Context(), user, "another"); err != nil {
					t.Fatal(err)
				}
			}
			return []gatetest.Limit{{Limiter: few}, {Limiter: many, Action: keyfuncs.Action("another")}}
		}, false},
		{"a limit that costs nothing around one that does", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000), Config: costs(0, nil)}, {Limiter: window(s, 500), Action: keyfuncs.Action("another")}}
		}, false},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := gatetest.Capture(t)
				synctest.Test(t, func(t *testing.T) { // no second passes
					h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: c.limits(memory())}}}.Filled())
					for _, user := range users {
						if w := gatetest.Do(h, "POST", "/replies/7", "X-User-ID", user); w.Code != 200 {
							t.Fatalf("%d", w.Code)
						}
					}
				})
				if got := log.Take(pkg(ad.Name)); slices.Equal(got, []string{chargedTwice}) != c.want || !c.want && got != nil {
					t.Errorf("said %q; told: want %t", got, c.want)
				}
			})
		}
	}
}

// It is told too if a handler's Allow charges what the Limit around it has charged.
func TestChargedTwiceByAllow(t *testing.T) {
	warned := []string{"WARN adapter: each request was charged twice for one action; by a Limit, and by Allow in its handler: remove one, or give it another action | charged-twice"}
	for _, tt := range []struct {
		name   string
		inside func(s core.Store, l *core.Limiter) gatetest.Inside
		keep   bool // the Limit leaves a mark
		want   []string
	}{
		{"one limiter and action", func(_ core.Store, l *core.Limiter) gatetest.Inside {
			return gatetest.Inside{Limiter: l, Action: "reply", Cost: 1}
		}, false, warned},
		{"behind a mark", func(_ core.Store, l *core.Limiter) gatetest.Inside {
			return gatetest.Inside{Limiter: l, Action: "reply", Cost: 1}
		}, true, warned},
		{"a limiter that shares the state", func(s core.Store, _ *core.Limiter) gatetest.Inside {
			return gatetest.Inside{Limiter: core.Must(core.New(s, core.FixedWindow(900, time.Hour))), Action: "reply", Cost: 2}
		}, false, warned},
		{"another action", func(_ core.Store, l *core.Limiter) gatetest.Inside {
			return gatetest.Inside{Limiter: l, Action: "upload", Cost: 1}
		}, false, nil},
		{"another limiter of the same numbers", func(_ core.Store, _ *core.Limiter) gatetest.Inside {
			return gatetest.Inside{Limiter: core.Must(core.New(memory(), core.FixedWindow(1000, time.Hour))), Action: "reply", Cost: 1}
		}, false, nil},
		{"for nothing", func(_ core.Store, l *core.Limiter) gatetest.Inside {
			return gatetest.Inside{Limiter: l, Action: "reply"}
		}, false, nil},
	} {
		for _, ad := range adapters {
			t.Run(tt.name+"/"+ad.Name, func(t *testing.T) {
				log, store := gatetest.Capture(t), memory()
				l := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))
				in := tt.inside(store, l)
				in.User = "alice"
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{
					Limits: []gatetest.Limit{{Limiter: l, Config: &nethttp.Config{Keep: tt.keep}}}, Inside: []gatetest.Inside{in},
				}}}.Filled())
				for range 12 {
					if w := ask(h); w.StatusCode != 200 {
						t.Fatalf("%d", w.StatusCode)
					}
				}
				if got := log.Take(pkg(ad.Name)); !slices.Equal(got, tt.want) {
					t.Errorf("said %q, want %q", got, tt.want)
				}
			})
		}
	}
}
