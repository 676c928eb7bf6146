package ginlimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What the middleware adds to a bare route: limit=none is the route alone.
func BenchmarkMiddleware(b *testing.B) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	never := core.Funnel(1, core.Per(1, 100*24*time.Hour))
	route := func(chain ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.POST("/likes", append(chain, func(c *gin.Context) { c.Status(http.StatusNoContent) })...)
		return e
	}
	limit := func(cfg ginlimit.Config, l core.Limit) http.Handler {
		limiter := core.Must(core.New(memorystore.New(nil), l))
		return route(cfg.Limit(limiter, ginlimit.From(keyfuncs.Header("X-User-ID")), ginlimit.Action("like")))
	}
	gatetest.Benchmark(b, "ginlimit", map[string]http.Handler{
		"limit=none":                          route(),
		"limit=funnel/keys=1":                 limit(ginlimit.Config{}, plenty),
		"limit=funnel/keys=1/keep=on":         limit(ginlimit.Config{Keep: true}, plenty),
		"limit=funnel/keys=1/ietf=on":         limit(ginlimit.Config{Headers: gate.XRateLimitAndIETF}, plenty),
		"limit=funnel/keys=1/verdict=refused": limit(ginlimit.Config{}, never),
	})
}
