package ginlimit_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

func BenchmarkMiddleware(b *testing.B) {
	route := func(chain ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.POST("/likes", append(chain, func(c *gin.Context) { c.Status(http.StatusNoContent) })...)
		return e
	}
	gatetest.Benchmark(b, "ginlimit", route(), func(keep bool, hs gate.Headers, l *core.Limiter) http.Handler {
		return route(ginlimit.Config{Keep: keep, Headers: hs}.Limit(l, ginlimit.From(keyfuncs.Header("X-User-ID")), ginlimit.Action("like")))
	})
}
