package nethttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What the middleware adds to a bare handler: limit=none is the handler alone.
func BenchmarkMiddleware(b *testing.B) {
	plenty := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	never := core.Funnel(1, core.Per(1, 100*24*time.Hour))
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	limit := func(cfg nethttp.Config, l core.Limit) http.Handler {
		limiter := core.Must(core.New(memorystore.New(nil), l))
		return cfg.Limit(limiter, keyfuncs.Header("X-User-ID"), keyfuncs.Action("like"))(bare)
	}
	gatetest.Benchmark(b, "nethttp", map[string]http.Handler{
		"limit=none":                          bare,
		"limit=funnel/keys=1":                 limit(nethttp.Config{}, plenty),
		"limit=funnel/keys=1/keep=on":         limit(nethttp.Config{Keep: true}, plenty),
		"limit=funnel/keys=1/ietf=on":         limit(nethttp.Config{Headers: gate.XRateLimitAndIETF}, plenty),
		"limit=funnel/keys=1/verdict=refused": limit(nethttp.Config{}, never),
	})
}
