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
			rt.Handler(w, r, func() (core.Decision, bool) { return nethttp.Decision(r) })
		})
		for _, l := range slices.Backward(rt.Limits) {
			action := l.Action
			if l.Routed {
				action = keyfuncs.Route
			}
			if l.And != nil {
				subjects := []gate.Subject[*http.Request]{nethttp.By(l.Limiter, l.User, action)}
				for _, o := range l.And {
					subjects = append(subjects, nethttp.By(o.Limiter, o.User, o.Action))
				}
				if l.Config == nil {
					h = nethttp.LimitAll(subjects...)(h)
				} else {
					h = l.Config.LimitAll(subjects...)(h)
				}
			} else if l.Config == nil {
				h = nethttp.Limit(l.Limiter, l.User, action)(h)
			} else {
				h = l.Config.Limit(l.Limiter, l.User, action)(h)
			}
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
			action := keyfuncs.ActionOf[*gin.Context](func(c *gin.Context) (string, error) { return l.Action(c.Request) })
			if l.Routed {
				action = ginlimit.Route
			}
			if l.And != nil {
				subjects := []gate.Subject[*gin.Context]{ginlimit.By(l.Limiter, ginlimit.From(l.User), action)}
				for _, o := range l.And {
					subjects = append(subjects, ginlimit.By(o.Limiter, ginlimit.From(o.User), ginlimit.From(o.Action)))
				}
				if l.Config == nil {
					chain = append(chain, ginlimit.LimitAll(subjects...))
				} else {
					chain = append(chain, ginConfig(*l.Config).LimitAll(subjects...))
				}
			} else if l.Config == nil {
				chain = append(chain, ginlimit.Limit(l.Limiter, ginlimit.From(l.User), action))
			} else {
				chain = append(chain, ginConfig(*l.Config).Limit(l.Limiter, ginlimit.From(l.User), action))
			}
		}
		chain = append(chain, func(c *gin.Context) {
			for _, in := range rt.Inside {
				allow := ginlimit.Allow
				if in.Config != nil {
					allow = ginConfig(*in.Config).Allow
				}
				d := allow(c, in.Limiter, in.User, in.Action, in.Cost)
				if in.Decided(d); !d.Allowed && !in.Ignored {
					return
				}
			}
			if rt.Settles != nil {
				rt.Settles(c.Writer, c.Request, func(actual int) error { return ginlimit.Settle(c, actual) })
				return
			}
			rt.Handler(c.Writer, c.Request, func() (core.Decision, bool) { return ginlimit.Decision(c) })
		})
		path := strings.NewReplacer("{", ":", "}", "").Replace(rt.Path)
		e.Handle(rt.Method, path, chain...)
		if rt.Method == "GET" { // the mux does it by itself
			e.HEAD(path, chain...)
		}
	}
	return e
}

func ginConfig(cfg nethttp.Config) ginlimit.Config {
	g := ginlimit.Config{MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, CountPreflights: cfg.CountPreflights, Settle: cfg.Settle, Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter}
	if cfg.Cost != nil {
		g.Cost = func(c *gin.Context) (int, error) { return cfg.Cost(c.Request) }
	}
	if cfg.Limiter != nil {
		g.Limiter = func(c *gin.Context) (*core.Limiter, error) { return cfg.Limiter(c.Request) }
	}
	if cfg.Skip != nil {
		g.Skip = func(c *gin.Context) bool { return cfg.Skip(c.Request) }
	}
	if cfg.FinalCost != nil {
		g.FinalCost = func(c *gin.Context, status int) int { return cfg.FinalCost(c.Request, status) }
	}
	if cfg.Deny != nil {
		g.Deny = func(c *gin.Context, d core.Decision) { cfg.Deny(c.Writer, c.Request, d) }
	}
	if cfg.Fail != nil {
		g.Fail = func(c *gin.Context, err error) { cfg.Fail(c.Writer, c.Request, err) }
	}
	return g
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
			action := keyfuncs.ActionOf[echo.Context](func(c echo.Context) (string, error) { return l.Action(c.Request()) })
			if l.Routed {
				action = echolimit.Route
			}
			if l.And != nil {
				subjects := []gate.Subject[echo.Context]{echolimit.By(l.Limiter, echolimit.From(l.User), action)}
				for _, o := range l.And {
					subjects = append(subjects, echolimit.By(o.Limiter, echolimit.From(o.User), echolimit.From(o.Action)))
				}
				if l.Config == nil {
					chain = append(chain, echolimit.LimitAll(subjects...))
				} else {
					chain = append(chain, echoConfig(*l.Config).LimitAll(subjects...))
				}
			} else if l.Config == nil {
				chain = append(chain, echolimit.Limit(l.Limiter, echolimit.From(l.User), action))
			} else {
				chain = append(chain, echoConfig(*l.Config).Limit(l.Limiter, echolimit.From(l.User), action))
			}
		}
		h := func(c echo.Context) error {
			for _, in := range rt.Inside {
				allow := echolimit.Allow
				if in.Config != nil {
					allow = echoConfig(*in.Config).Allow
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

func echoConfig(cfg nethttp.Config) echolimit.Config {
	e := echolimit.Config{MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, CountPreflights: cfg.CountPreflights, Settle: cfg.Settle, Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter}
	if cfg.Cost != nil {
		e.Cost = func(c echo.Context) (int, error) { return cfg.Cost(c.Request()) }
	}
	if cfg.Limiter != nil {
		e.Limiter = func(c echo.Context) (*core.Limiter, error) { return cfg.Limiter(c.Request()) }
	}
	if cfg.Skip != nil {
		e.Skip = func(c echo.Context) bool { return cfg.Skip(c.Request()) }
	}
	if cfg.FinalCost != nil {
		e.FinalCost = func(c echo.Context, status int) int { return cfg.FinalCost(c.Request(), status) }
	}
	if cfg.Deny != nil {
		e.Deny = func(c echo.Context, d core.Decision) error { cfg.Deny(c.Response(), c.Request(), d); return nil }
	}
	if cfg.Fail != nil {
		e.Fail = func(c echo.Context, err error) error { cfg.Fail(c.Response(), c.Request(), err); return nil }
	}
	return e
}

func set(h http.Header, pairs []string) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
}
