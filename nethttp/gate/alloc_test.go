//go:build !race

package gate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// An allowed action costs one allocation, for the values of the headers. With Keep the same one has a mark and a
// copy of the request too. With Echo v4 there is one more, for the closure of the chain.
func TestAllocations(t *testing.T) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	most := map[string]float64{"nethttp": 1, "ginlimit": 1, "echolimit": 2, "echolimit/echov5": 1}
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/replies/7", nil)
			r.Header.Set("X-User-ID", "alice")
			w := gatetest.Discard{}
			allocs := func(routes []gatetest.Route) float64 {
				routes[0].Handler = status(http.StatusNoContent)
				h := ad.Mount(gatetest.App{Routes: routes}.Filled())
				return testing.AllocsPerRun(200, func() {
					clear(w)
					h.ServeHTTP(w, r)
				})
			}
			bare := allocs([]gatetest.Route{{}})
			for _, cfg := range []*nethttp.Config{nil, {Keep: true}} {
				if got := allocs(reply(cfg, plenty)(memorystore.New(nil))) - bare; got > most[ad.Name] {
					t.Errorf("%+v costs %v allocations, want at most %v", cfg, got, most[ad.Name])
				}
			}
			limiter := core.Must(core.New(memorystore.New(nil), plenty))
			const allow = 2
			if got := allocs([]gatetest.Route{{Inside: []gatetest.Inside{{Limiter: limiter, User: "alice", Action: "upload", Cost: 1}}}}) - bare; got > allow {
				t.Errorf("Allow costs %v allocations, want at most %v", got, allow)
			}
		})
	}
}

// What is made of a limiter that Config.Limiter picks is made once: with FinalCost another limiter, and with IETF the
// policy of all subjects.
func TestAPickedLimiterAllocatesNoMore(t *testing.T) {
	store := memorystore.New(nil)
	first, picked := core.Must(core.New(store, core.FixedWindow(1_000_000, time.Hour))), core.Must(core.New(store, core.FixedWindow(2_000_000, time.Hour)))
	user := nethttp.By(first, keyfuncs.RemoteIP, keyfuncs.Action("a"))
	all := nethttp.By(first, keyfuncs.Everyone, keyfuncs.Action("all"))
	for name, subjects := range map[string][]gate.Subject[*http.Request]{"one subject": {user}, "two subjects": {user, all}} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest("GET", "/", nil), gatetest.Discard{}
			allocs := func(pick func(*http.Request) (*core.Limiter, error)) float64 {
				cfg := nethttp.Config{Limiter: pick, Headers: gate.IETF, FinalCost: func(*http.Request, int) int { return 1 }}
				h := cfg.LimitAll(subjects...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				return testing.AllocsPerRun(200, func() {
					clear(w)
					h.ServeHTTP(w, r)
				})
			}
			given := allocs(nil)
			if got := allocs(func(*http.Request) (*core.Limiter, error) { return picked, nil }); got > given {
				t.Errorf("a picked limiter costs %v allocations, and the given one %v", got, given)
			}
		})
	}
}
