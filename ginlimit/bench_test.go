package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What the middleware adds to a bare route: limit=none is the route alone.
func BenchmarkMiddleware(b *testing.B) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	never := core.Funnel(1, core.Per(1, 100*24*time.Hour))
	limit := func(cfg ginlimit.Config, l core.Limit) gin.HandlersChain {
		limiter := core.Must(core.New(memorystore.New(nil), l))
		return gin.HandlersChain{cfg.Limit(limiter, ginlimit.From(keyfuncs.Header("X-User-ID")), ginlimit.Action("like"))}
	}
	for _, c := range []struct {
		name  string
		chain gin.HandlersChain
	}{
		{"limit=none", nil},
		{"limit=funnel/keys=1", limit(ginlimit.Config{}, plenty)},
		{"limit=funnel/keys=1/keep=on", limit(ginlimit.Config{Keep: true}, plenty)},
		{"limit=funnel/keys=1/ietf=on", limit(ginlimit.Config{IETF: true}, plenty)},
		{"limit=funnel/keys=1/verdict=refused", limit(ginlimit.Config{}, never)},
	} {
		b.Run("adapter=ginlimit/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			e := gin.New()
			e.POST("/likes", append(c.chain, func(c *gin.Context) { c.Status(http.StatusNoContent) })...)
			r := httptest.NewRequest("POST", "/likes", nil)
			r.Header.Set("X-User-ID", "laoqian")
			w := gatetest.Discard{}
			for b.Loop() {
				clear(w)
				e.ServeHTTP(w, r)
			}
		})
	}
}
