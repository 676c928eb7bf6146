package echolimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What the middleware adds to a bare route: limit=none is the route alone.
func BenchmarkMiddleware(b *testing.B) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	never := core.Funnel(1, core.Per(1, 100*24*time.Hour))
	limit := func(cfg echolimit.Config, l core.Limit) []echo.MiddlewareFunc {
		limiter := core.Must(core.New(memorystore.New(nil), l))
		return []echo.MiddlewareFunc{cfg.Limit(limiter, echolimit.From(keyfuncs.Header("X-User-ID")), echolimit.Action("like"))}
	}
	for _, c := range []struct {
		name  string
		chain []echo.MiddlewareFunc
	}{
		{"limit=none", nil},
		{"limit=funnel/keys=1", limit(echolimit.Config{}, plenty)},
		{"limit=funnel/keys=1/keep=on", limit(echolimit.Config{Keep: true}, plenty)},
		{"limit=funnel/keys=1/ietf=on", limit(echolimit.Config{IETF: true}, plenty)},
		{"limit=funnel/keys=1/verdict=refused", limit(echolimit.Config{}, never)},
	} {
		b.Run("adapter=echov5/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			e := echo.New()
			e.POST("/likes", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, c.chain...)
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
