package gate_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

func newEchoV5() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return e
}

func mountEchoV5(a gatetest.App) http.Handler {
	e := newEchoV5()
	if a.Recovers {
		// As middleware.Recover does, whose package needs more modules than we do.
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("%v", v)
					}
				}()
				return next(c)
			}
		})
	}
	for _, rt := range a.Routes {
		chain := []echo.MiddlewareFunc{func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				set(c.Response().Header(), rt.Outside)
				return next(c)
			}
		}}
		for _, l := range rt.Limits {
			chain = append(chain, echoV5Functions.Middleware(l))
		}
		h := func(c *echo.Context) error { echoV5Functions.Handle(c, rt); return nil }
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.Path)
		e.Add(rt.Method, path, h, chain...)
		if rt.Method == "GET" {
			e.HEAD(path, h, chain...)
		}
	}
	return e
}

func echoV5Config(cfg nethttp.Config) echolimit.Config {
	return echolimit.Config(gatetest.Lifted(cfg, echoV5Exchange))
}

func echoV5Exchange(c *echo.Context) (http.ResponseWriter, *http.Request) {
	return c.Response(), c.Request()
}

var echoV5Functions = gatetest.Functions[*echo.Context, echo.MiddlewareFunc]{
	Exchange: echoV5Exchange,
	From:     echolimit.From, Route: echolimit.Route, By: echolimit.By,
	Limit: echolimit.Limit, LimitAll: echolimit.LimitAll, Allow: echolimit.Allow,
	Config: func(cfg nethttp.Config) gatetest.Limits[*echo.Context, echo.MiddlewareFunc] { return echoV5Config(cfg) },
	Settle: echolimit.Settle, Decision: echolimit.Decision, Hold: echolimit.Hold,
}

// compressedEchoV5 has a limit inside a middleware that compresses.
func compressedEchoV5(limiter *core.Limiter) http.Handler {
	e := newEchoV5()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Response().Header().Set("Content-Encoding", "rot")
			c.SetResponse(compresses{c.Response()})
			return next(c)
		}
	}, echolimit.Limit(limiter, echolimit.From(keyfuncs.Everyone), echolimit.Action("x")))
	e.GET("/", func(*echo.Context) error { return nil })
	return e
}
