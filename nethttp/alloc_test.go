//go:build !race

package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// An allowed action costs one allocation, for the two headers that differ from one
// response to the next; with Echo, one more for the closure of the chain.
func TestAllocations(t *testing.T) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	for _, ad := range adapters {
		t.Run(ad.name, func(t *testing.T) {
			bare := []route{{handler: status(http.StatusNoContent)}}
			limited := reply(nil, plenty)(memorystore.New(nil))
			limited[0].handler = status(http.StatusNoContent)
			r := httptest.NewRequest("POST", "/replies/7", nil)
			r.Header.Set("X-User-ID", "laoqian")
			w := &discard{http.Header{}}
			allocs := func(routes []route) float64 {
				h := ad.mount(app{routes: routes}.filled())
				return testing.AllocsPerRun(200, func() {
					clear(w.header)
					h.ServeHTTP(w, r)
				})
			}
			most := 1.0
			if ad.name == "echolimit" {
				most = 2
			}
			if got := allocs(limited) - allocs(bare); got > most {
				t.Errorf("the limit costs %v allocations, want at most %v", got, most)
			}
		})
	}
}
