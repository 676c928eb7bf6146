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
	"github.com/tailcut/tailcut/nethttp/gate"
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
			action := keyfuncs.ActionOf[*echo.Context](func(c *echo.Context) (string, error) { return l.Action(c.Request()) })
			if l.Routed {
				action = echolimit.Route
			}
			if l.And != nil {
				subjects := []gate.Subject[*echo.Context]{echolimit.By(l.Limiter, echolimit.From(l.User), action)}
				for _, o := range l.And {
					subjects = append(subjects, echolimit.By(o.Limiter, echolimit.From(o.User), echolimit.From(o.Action)))
				}
				if l.Config == nil {
					chain = append(chain, echolimit.LimitAll(subjects...))
				} else {
					chain = append(chain, echoV5Config(*l.Config).LimitAll(subjects...))
				}
			} else if l.Config == nil {
				chain = append(chain, echolimit.Limit(l.Limiter, echolimit.From(l.User), action))
			} else {
				chain = append(chain, echoV5Config(*l.Config).Limit(l.Limiter, echolimit.From(l.User), action))
			}
		}
		h := func(c *echo.Context) error {
			for _, in := range rt.Inside {
				allow := echolimit.Allow
				if in.Config != nil {
					allow = echoV5Config(*in.Config).Allow
				}
				d := allow(c, in.Limiter, in.User, in.Action, in.Cost)
				if in.Decided(d); !d.Allowed && !in.Ignored {
					return nil
				}
			}
			if rt.Settles != nil {
				rt.Settles(c.Response(), c.Request(), func(actual int) error { return echolimit.Settle(c, actual) })
				return nil
			}
			rt.Handler(c.Response(), c.Request(), func() (core.Decision, bool) { return echolimit.Decision(c) })
			return nil
		}
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.Path)
		e.Add(rt.Method, path, h, chain...)
		if rt.Method == "GET" {
			e.HEAD(path, h, chain...)
		}
	}
	return e
}

func echoV5Config(cfg nethttp.Config) echolimit.Config {
	e := echolimit.Config{MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, CountPreflights: cfg.CountPreflights, Settle: cfg.Settle, Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter}
	if cfg.Cost != nil {
		e.Cost = func(c *echo.Context) (int, error) { return cfg.Cost(c.Request()) }
	}
	if cfg.Limiter != nil {
		e.Limiter = func(c *echo.Context) (*core.Limiter, error) { return cfg.Limiter(c.Request()) }
	}
	if cfg.Skip != nil {
		e.Skip = func(c *echo.Context) bool { return cfg.Skip(c.Request()) }
	}
	if cfg.FinalCost != nil {
		e.FinalCost = func(c *echo.Context, status int) int { return cfg.FinalCost(c.Request(), status) }
	}
	if cfg.Deny != nil {
		e.Deny = func(c *echo.Context, d core.Decision) error { cfg.Deny(c.Response(), c.Request(), d); return nil }
	}
	if cfg.Fail != nil {
		e.Fail = func(c *echo.Context, err error) error { cfg.Fail(c.Response(), c.Request(), err); return nil }
	}
	return e
}

// limitedTwice is the Echo v5 of TestChargedTwice.
func limitedTwice(limiter func() *core.Limiter, cfg nethttp.Config, between, twice bool) http.Handler {
	everyone, x := echolimit.From(keyfuncs.Everyone), echolimit.Action("x")
	limit := echoV5Config(cfg).Limit(limiter(), everyone, x)
	e := newEchoV5()
	e.Use(limit)
	if between {
		e.Use(echolimit.Limit(limiter(), everyone, x))
	}
	if twice {
		e.Use(limit)
	}
	e.GET("/", func(*echo.Context) error { return nil })
	return e
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
