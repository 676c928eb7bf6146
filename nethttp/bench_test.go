package nethttp_test

import (
	"net/http"
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

func BenchmarkMiddleware(b *testing.B) {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	gatetest.Benchmark(b, "nethttp", bare, func(keep bool, hs gate.Headers, l *core.Limiter) http.Handler {
		return nethttp.Config{Keep: keep, Headers: hs}.Limit(l, xUserID, keyfuncs.Action("like"))(bare)
	})
}
