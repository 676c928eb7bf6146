package nethttp_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

func TestChargedTwice(t *testing.T) {
	plenty := func() *core.Limiter {
		return core.Must(core.New(memorystore.New(nil), core.FixedWindow(1_000_000, time.Hour)))
	}
	a, b := plenty(), plenty()
	costs := func(n int) *nethttp.Config {
		return &nethttp.Config{Cost: func(*http.Request) (int, error) { return n, nil }}
	}
	other := keyfuncs.Action("other")
	for _, tt := range []struct {
		name   string
		routes []route
		said   bool
	}{
		{"one limit", []route{{limits: []limit{{limiter: a}}}}, false},
		{"one limit on two routes", []route{{limits: []limit{{limiter: a}}}, {path: "/others", limits: []limit{{limiter: a}}}}, false},
		{"the same one twice", []route{{limits: []limit{{limiter: a}, {limiter: a}}}}, true},
		{"with another between them", []route{{limits: []limit{{limiter: a}, {limiter: b, action: other}, {limiter: a}}}}, true},
		{"as a picker picks it", []route{{limits: []limit{
			{limiter: a}, {limiter: b, config: &nethttp.Config{Limiter: func(*http.Request) *core.Limiter { return a }}},
		}}}, true},
		{"another limiter", []route{{limits: []limit{{limiter: a}, {limiter: b}}}}, false},
		{"another user", []route{{limits: []limit{{limiter: a}, {limiter: a, user: keyfuncs.Everyone}}}}, false},
		{"another action", []route{{limits: []limit{{limiter: a}, {limiter: a, action: other}}}}, false},
		{"the outer one only looks", []route{{limits: []limit{{limiter: a, config: costs(0)}, {limiter: a}}}}, false},
		{"the inner one only looks", []route{{limits: []limit{{limiter: a}, {limiter: a, config: costs(0)}}}}, false},
		{"headers of somebody else's", []route{{outside: []string{"X-RateLimit-Remaining", "9"}, limits: []limit{{limiter: a}}}}, false},
	} {
		for _, ad := range adapters {
			for _, callers := range []int{1, 8} {
				t.Run(tt.name+"/"+ad.name, func(t *testing.T) {
					nethttp.ForgetTwice()
					log := capture(t)
					h := ad.mount(app{routes: tt.routes}.filled())
					var wg sync.WaitGroup
					for range callers {
						wg.Go(func() {
							for range 400 / callers {
								if resp := ask(h); resp.StatusCode != 200 {
									t.Errorf("%d", resp.StatusCode)
									return
								}
							}
						})
					}
					wg.Wait()
					var want []string
					if tt.said {
						want = []string{"WARN adapter: one request is charged twice, by the same limiter for the same user and action; its middleware is mounted twice, maybe on a group and on a route of it: take one away | charged-twice"}
					}
					if got := log.take(ad.name); !slices.Equal(got, want) {
						t.Errorf("said %q, want %q", got, want)
					}
				})
			}
		}
	}
}
