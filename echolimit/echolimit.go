// Package echolimit limits Echo v4 routes.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	e := echo.New()
//	e.Use(middleware.Recover(), auth) // auth does c.Set("user", id)
//	e.POST("/posts/:id/replies", reply,
//		echolimit.Limit(replies, echolimit.Value("user"), echolimit.Action("reply")))
//
// What is answered, and where to mount it, is as in package nethttp, of which this
// is a skin; a refusal is an *echo.HTTPError whose Message is the problem, so that
// the central error handler sees it. Mount it with e.Use, on a group or on a route,
// not with e.Pre, where no route is known. Addresses are never taken from
// c.RealIP(), which by default believes every client's X-Forwarded-For: use
// echolimit.From(keyfuncs.RemoteIP), or keyfuncs.ForwardedIP with the proxies that
// you trust.
package echolimit

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// KeyFunc says who acts or what they do. A missing identity is keyfuncs.ErrNoKey,
// an unreadable one keyfuncs.ErrBadKey.
type KeyFunc = func(echo.Context) (string, error)

// From makes a KeyFunc of one for net/http.
func From(f keyfuncs.Func) KeyFunc {
	if f == nil {
		panic("echolimit: From: the key function is nil; give one of package keyfuncs")
	}
	return func(c echo.Context) (string, error) { return f(c.Request()) }
}

// Value is what an earlier middleware has stored with c.Set: a string or an
// integer. Nothing stored, or "", is keyfuncs.ErrNoKey.
func Value(key string) KeyFunc {
	return keyfuncs.Value("the Echo value "+strconv.Quote(key), func(c echo.Context) any { return c.Get(key) })
}

// Action is always the action of that name.
func Action(name string) KeyFunc { return From(keyfuncs.Action(name)) }

// Route is the method (HEAD as GET) and the route's template, such as
// "POST /posts/:id/likes". All requests that no route matched are the one action
// "unmatched".
func Route(c echo.Context) (string, error) {
	path := c.Path()
	if path != "" && !matched(c, path) {
		path = ""
	}
	return keyfuncs.RouteTemplate(c.Request(), path), nil
}

// matched tells a match from the path that Echo also sets for a method that is not
// allowed, and for what it adds to a group with middleware, to catch what the group
// has no route for.
func matched(c echo.Context, path string) bool {
	return c.Get(echo.ContextKeyHeaderAllow) == nil && tableOf(c.Echo()).has(route{c.Request().Method, path})
}

type route struct{ method, path string }

// A table is the routes of an Echo, which itself can only list them all. It is made
// anew when a route is missing, but not for every request that has none.
type table struct {
	echo   weak.Pointer[echo.Echo]
	routes atomic.Pointer[map[route]bool]
	made   atomic.Int64 // since start
}

var (
	tables sync.Map // of *table, by weak.Pointer[echo.Echo]
	start  = time.Now()
)

const tableAge = time.Second

func tableOf(e *echo.Echo) *table {
	key := weak.Make(e)
	t, ok := tables.Load(key)
	if !ok {
		if t, ok = tables.LoadOrStore(key, &table{echo: key}); !ok {
			runtime.AddCleanup(e, func(key weak.Pointer[echo.Echo]) { tables.Delete(key) }, key)
		}
	}
	return t.(*table)
}

func (t *table) has(r route) bool {
	routes := t.routes.Load()
	if routes != nil && (*routes)[r] {
		return true
	}
	if now := int64(time.Since(start)); routes == nil || now-t.made.Load() > int64(tableAge) {
		t.made.Store(now)
		routes = t.list()
	}
	return (*routes)[r]
}

func (t *table) list() *map[route]bool {
	e := t.echo.Value()
	routes := map[route]bool{}
	add := func(rs []*echo.Route) {
		for _, r := range rs {
			routes[route{r.Method, r.Path}] = true
		}
	}
	add(e.Routes())
	for _, router := range e.Routers() {
		add(router.Routes())
	}
	t.routes.Store(&routes)
	return &routes
}

// Limit makes middleware that lets a request pass if limiter allows its user its
// action. It panics if an argument is nil.
func Limit(limiter *core.Limiter, user, action KeyFunc) echo.MiddlewareFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does. The
// fields are those of nethttp.Config. With a FinalCost, the Writer of c.Response() is
// wrapped. If the handler returns an error, its status is the one that Echo's own
// error handler gives it: the Code of an *echo.HTTPError that is not wrapped, else
// 500. If yours answers otherwise, put a middleware inside that calls c.Error.
type Config struct {
	Cost       func(echo.Context) (int, error)
	Limiter    func(echo.Context) *core.Limiter
	Skip       func(echo.Context) bool
	MaxWait    time.Duration
	MaxWaiting int
	FinalCost  func(c echo.Context, status int) int
	Deny       func(echo.Context, core.Decision) error // its error goes to the central handler; if it hijacks, it returns one
	Fail       func(echo.Context, error) error         // likewise
	Keep       bool                                    // see Decision
	ResetDelta bool
	IETF       bool
}

// Limit makes middleware of the configuration. It panics if an argument is nil.
func (cfg Config) Limit(limiter *core.Limiter, user, action KeyFunc) echo.MiddlewareFunc {
	gate := nethttp.NewGate("echolimit", limiter, user, action, nethttp.Rules[echo.Context]{
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, FinalCost: cfg.FinalCost,
		Keep: cfg.Keep, ResetDelta: cfg.ResetDelta, IETF: cfg.IETF,
	})
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		cfg := &cfg // Echo calls this for every request: what it makes is to be small
		return func(c echo.Context) error {
			var o nethttp.Outcome
			gate.Enter(&o, c, c.Request(), c.Response().Header())
			if o.Pass {
				if d := o.Kept(); d != nil {
					c.Set(keptKey, d)
				}
				if o.FinalCost {
					return settled(gate, c, &o, next)
				}
				return next(c)
			}
			var err error
			switch {
			case o.Failure != nil && cfg.Fail != nil:
				err = cfg.Fail(c, o.Failure)
			case o.Failure == nil && cfg.Deny != nil:
				err = cfg.Deny(c, o.Decision)
			}
			if err != nil || c.Response().Committed {
				return err
			}
			return answer(c, &o)
		}
	}
}

// answer makes the problem an error. It is not wrapped: Echo's error handler looks at
// the type itself. The Content-Type comes last, since whoever answers in another form
// would have to keep it: Echo sets none where there is one.
func answer(c echo.Context, o *nethttp.Outcome) error {
	p, res := o.Problem(), c.Response()
	res.Header().Del(echo.HeaderContentType)
	res.Header().Del(echo.HeaderContentLength)
	res.Before(func() {
		if is := res.Header().Get(echo.HeaderContentType); res.Status == p.Status && (is == "" || is == echo.MIMEApplicationJSON) {
			res.Header().Set(echo.HeaderContentType, nethttp.ProblemType)
		}
	})
	return &echo.HTTPError{Code: p.Status, Message: p}
}

func settled(gate *nethttp.Gate[echo.Context], c echo.Context, o *nethttp.Outcome, next echo.HandlerFunc) (err error) {
	w, status := nethttp.Watch(c.Response().Writer)
	c.Response().Writer = w
	gate.Run(c, c.Request(), o, func() { err = next(c) }, func() int {
		code := status()
		if code == 0 || err == nil || c.Response().Committed {
			return code
		}
		return statusOf(err)
	})
	return err
}

// statusOf is the status with which Echo's own error handler answers.
func statusOf(err error) int {
	he, ok := err.(*echo.HTTPError)
	if !ok {
		return http.StatusInternalServerError
	}
	if inner, ok := he.Internal.(*echo.HTTPError); ok {
		he = inner
	}
	return he.Code
}

// Allow is for a handler that knows only then what its request costs, or who or what
// it is for; see nethttp.Allow. The handler returns the error, if there is one: as
// with Limit it is an *echo.HTTPError whose Message is the problem.
func Allow(c echo.Context, limiter *core.Limiter, user, action string, cost int) error {
	o := nethttp.Charge("echolimit", c.Request(), c.Response().Header(), limiter, user, action, cost)
	if o.Pass {
		return nil
	}
	return answer(c, &o)
}

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep; of several the innermost.
func Decision(c echo.Context) (core.Decision, bool) {
	if d, ok := c.Get(keptKey).(*core.Decision); ok {
		return *d, true
	}
	return core.Decision{}, false
}

const keptKey = "tailcut.decision"
