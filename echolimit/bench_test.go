package echolimit_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

func BenchmarkMiddleware(b *testing.B) {
	route := func(chain ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.POST("/likes", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, chain...)
		return e
	}
	gatetest.Benchmark(b, "echolimit", route(), func(keep bool, hs gate.Headers, l *core.Limiter) http.Handler {
		return route(echolimit.Config{Keep: keep, Headers: hs}.Limit(l, echolimit.From(keyfuncs.Header("X-User-ID")), echolimit.Action("like")))
	})
}
