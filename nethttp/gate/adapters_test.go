package gate_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

func mountNetHTTP(a gatetest.App) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range a.Routes {
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, in := range rt.Inside {
				allow := nethttp.Allow
				if in.Config != nil {
					allow = in.Config.Allow
				}
				d := allow(w, r, in.Limiter, in.User, in.Action, in.Cost)
				if in.Decided(d); !d.Allowed && !in.Ignored {
					return
				}
			}
			if rt.Settles != nil {
				rt.Settles(w, r, func(actual int) error { return nethttp.Settle(r, actual) })
				return
			}
			if rt.Holds != nil {
				rt.Holds(w, r, func() func() { return nethttp.Hold(r) })
				return
			}
			rt.Handler(w, r, func() (core.Decision, bool) { return nethttp.Decision(r) })
		})
		for _, l := range slices.Backward(rt.Limits) {
			action := l.Action
			if l.Routed {
				action = keyfuncs.Route
			}
			limit, limitAll := nethttp.Limit, nethttp.LimitAll
			if l.Config != nil {
				limit, limitAll = l.Config.Limit, l.Config.LimitAll
			}
			if l.And == nil {
				h = limit(l.Limiter, l.User, action)(h)
				continue
			}
			subjects := []gate.Subject[*http.Request]{gatetest.OptionalIf(l.Guests, nethttp.By(l.Limiter, l.User, action))}
			for _, o := range l.And {
				subjects = append(subjects, gatetest.OptionalIf(o.Guests, nethttp.By(o.Limiter, o.User, o.Action)))
			}
			h = limitAll(subjects...)(h)
		}
		mux.HandleFunc(rt.Method+" "+rt.Path, func(w http.ResponseWriter, r *http.Request) {
			if a.Recovers {
				defer func() {
					if v := recover(); v != nil {
						w.WriteHeader(http.StatusInternalServerError)
					}
				}()
			}
			set(w.Header(), rt.Outside)
			h.ServeHTTP(w, r)
		})
	}
	return mux
}

func mountGin(a gatetest.App) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	if a.Recovers {
		e.Use(gin.RecoveryWithWriter(io.Discard))
	}
	for _, rt := range a.Routes {
		chain := []gin.HandlerFunc{func(c *gin.Context) { set(c.Writer.Header(), rt.Outside) }}
		for _, l := range rt.Limits {
			chain = append(chain, ginFunctions.Middleware(l))
		}
		chain = append(chain, func(c *gin.Context) { ginFunctions.Handle(c, rt) })
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.Path)
		e.Handle(rt.Method, path, chain...)
		if rt.Method == "GET" { // the mux does it by itself
			e.HEAD(path, chain...)
		}
	}
	return e
}

func ginConfig(cfg nethttp.Config) ginlimit.Config {
	g := gatetest.Lifted(cfg, ginExchange)
	return ginlimit.Config{
		Cost: g.Cost, Limiter: g.Limiter, Skip: g.Skip, CountPreflights: g.CountPreflights,
		MaxWait: g.MaxWait, MaxWaiting: g.MaxWaiting, FinalCost: g.FinalCost, OnlyFailures: g.OnlyFailures, Settle: g.Settle,
		Deny: dropped(g.Deny), Fail: dropped(g.Fail),
		Keep: g.Keep, Headers: g.Headers, SpreadRetryAfter: g.SpreadRetryAfter, Forbid: g.Forbid,
	}
}

// dropped is a hook without its error.
func dropped[C, T any](hook func(C, T) error) func(C, T) {
	if hook == nil {
		return nil
	}
	return func(c C, v T) { _ = hook(c, v) }
}

func ginExchange(c *gin.Context) (http.ResponseWriter, *http.Request) { return c.Writer, c.Request }

var ginFunctions = gatetest.Functions[*gin.Context, gin.HandlerFunc]{
	Exchange: ginExchange,
	From:     ginlimit.From, Route: ginlimit.Route, By: ginlimit.By,
	Limit: ginlimit.Limit, LimitAll: ginlimit.LimitAll, Allow: ginlimit.Allow,
	Config: func(cfg nethttp.Config) gatetest.Limits[*gin.Context, gin.HandlerFunc] { return ginConfig(cfg) },
	Settle: ginlimit.Settle, Decision: ginlimit.Decision, Hold: ginlimit.Hold,
}

func mountEcho(a gatetest.App) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	if a.Recovers {
		// As middleware.Recover does, whose package needs more modules than we do.
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) (err error) {
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
			return func(c echo.Context) error {
				set(c.Response().Header(), rt.Outside)
				return next(c)
			}
		}}
		for _, l := range rt.Limits {
			chain = append(chain, echoFunctions.Middleware(l))
		}
		h := func(c echo.Context) error { echoFunctions.Handle(c, rt); return nil }
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.Path)
		e.Add(rt.Method, path, h, chain...)
		if rt.Method == "GET" {
			e.HEAD(path, h, chain...)
		}
	}
	return e
}

func echoConfig(cfg nethttp.Config) echolimit.Config {
	return echolimit.Config(gatetest.Lifted(cfg, echoExchange))
}

func echoExchange(c echo.Context) (http.ResponseWriter, *http.Request) {
	return c.Response(), c.Request()
}

var echoFunctions = gatetest.Functions[echo.Context, echo.MiddlewareFunc]{
	Exchange: echoExchange,
	From:     echolimit.From, Route: echolimit.Route, By: echolimit.By,
	Limit: echolimit.Limit, LimitAll: echolimit.LimitAll, Allow: echolimit.Allow,
	Config: func(cfg nethttp.Config) gatetest.Limits[echo.Context, echo.MiddlewareFunc] { return echoConfig(cfg) },
	Settle: echolimit.Settle, Decision: echolimit.Decision, Hold: echolimit.Hold,
}

func set(h http.Header, pairs []string) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
}
