package echolimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What the middleware adds to a bare route: limit=none is the route alone.
func BenchmarkMiddleware(b *testing.B) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	never := core.Funnel(1, core.Per(1, 100*24*time.Hour))
	route := func(chain ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.POST("/likes", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) }, chain...)
		return e
	}
	limit := func(cfg echolimit.Config, l core.Limit) http.Handler {
		limiter := core.Must(core.New(memorystore.New(nil), l))
		return route(cfg.Limit(limiter, echolimit.From(keyfuncs.Header("X-User-ID")), echolimit.Action("like")))
	}
	gatetest.Benchmark(b, "echov5", map[string]http.Handler{
		"limit=none":                          route(),
		"limit=funnel/keys=1":                 limit(echolimit.Config{}, plenty),
		"limit=funnel/keys=1/keep=on":         limit(echolimit.Config{Keep: true}, plenty),
		"limit=funnel/keys=1/ietf=on":         limit(echolimit.Config{Headers: gate.XRateLimitAndIETF}, plenty),
		"limit=funnel/keys=1/verdict=refused": limit(echolimit.Config{}, never),
	})
}
