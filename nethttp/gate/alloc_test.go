//go:build !race

package gate_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// An allowed action costs two allocations: the text of the three headers, and their values. With Echo
// v4 there is one more: the chain's closure, which Echo makes for each request. Keep copies the request,
// and has a mark.
func TestAllocations(t *testing.T) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	most := map[string][3]float64{"nethttp": {2, 4, 2}, "ginlimit": {2, 4, 2}, "echolimit": {3, 5, 3}, "echolimit/echov5": {2, 4, 2}} // plain, Keep, ResetDelta
	for _, ad := range adapters {
		t.Run(ad.name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/replies/7", nil)
			r.Header.Set("X-User-ID", "laoqian")
			w := gatetest.Discard{}
			allocs := func(routes []route) float64 {
				routes[0].handler = status(http.StatusNoContent)
				h := ad.mount(app{routes: routes}.filled())
				return testing.AllocsPerRun(200, func() {
					clear(w)
					h.ServeHTTP(w, r)
				})
			}
			bare := allocs([]route{{}})
			for i, cfg := range []*nethttp.Config{nil, {Keep: true}, {ResetDelta: true}} {
				if got := allocs(reply(cfg, plenty)(memorystore.New(nil))) - bare; got > most[ad.name][i] {
					t.Errorf("%+v costs %v allocations, want at most %v", cfg, got, most[ad.name][i])
				}
			}
			limiter := core.Must(core.New(memorystore.New(nil), plenty))
			const allow = 2
			if got := allocs([]route{{inside: []inside{{limiter: limiter, user: "laoqian", action: "upload", cost: 1}}}}) - bare; got > allow {
				t.Errorf("Allow costs %v allocations, want at most %v", got, allow)
			}
		})
	}
}
