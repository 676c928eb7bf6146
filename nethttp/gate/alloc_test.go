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

// An allowed action costs one allocation, for the two headers that differ from one
// response to the next; with Echo v4, one more for the closure of the chain. The decision
// is kept in that same allocation. What else it takes is a copy of the request, or the
// map of what c.Set sets.
func TestAllocations(t *testing.T) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	most := map[string][2]float64{"nethttp": {1, 2}, "ginlimit": {1, 3}, "echolimit": {2, 4}, "echolimit/echov5": {1, 1}} // with Keep
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
			for i, cfg := range []*nethttp.Config{nil, {Keep: true}} {
				if got := allocs(reply(cfg, plenty)(memorystore.New(nil))) - bare; got > most[ad.name][i] {
					t.Errorf("with Keep %t it costs %v allocations, want at most %v", cfg != nil, got, most[ad.name][i])
				}
			}
		})
	}
}
