package echolimit_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"

	echov4 "github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	limitv4 "github.com/tailcut/tailcut/echolimit"
	limitv5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// The tests speak of Echo in words that belong to no version. A version says the same
// in its own.
type (
	ctx interface {
		Request() *http.Request
		Path() string
		Param(string) string
		Set(string, any)
		String(int, string) error
		HTML(int, string) error
		JSON(int, any) error
		NoContent(int) error
	}
	handler    = func(ctx) error
	middleware = func(handler) handler
	key        = func(ctx) (string, error)

	config struct {
		cost      func(ctx) (int, error)
		deny      func(ctx, core.Decision) error
		fail      func(ctx, error) error
		finalCost func(ctx, int) int
		keep      bool
	}

	server interface {
		http.Handler
		use(...middleware)
		add(method, path string, h handler, chain ...middleware)
		all(path string, h handler) // methods
		static(prefix, root string)
		group(prefix string, chain ...middleware) (add func(method, path string, h handler))
		onError(func(ctx, error))
		ownOnError(ctx, error) // what Echo does itself
	}

	version struct {
		newEcho      func() server
		limit        func(config, *core.Limiter, key, key) middleware
		from         func(keyfuncs.Func) key
		value        func(string) key
		route        key
		allow        func(ctx, *core.Limiter, string, string, int) core.Decision
		httpError    func(int, string) error
		problem      func(error) (gate.Problem, bool)
		encoded      func(error) any // what Echo's own error handler encodes
		header       func(ctx) http.Header
		response     func(ctx) (own any, servers http.ResponseWriter)
		errorHandler func(ctx, error) // calls the central one from inside
		wrapped      []wrapped
	}

	// wrapped is an error whose status depends on the version.
	wrapped struct {
		name   string
		err    error
		status int
	}
)

func (v version) everyone() key          { return v.from(keyfuncs.Everyone) }
func (v version) action(name string) key { return v.from(keyfuncs.Action(name)) }

// inBoth runs a test for both versions.
func inBoth(t *testing.T, test func(t *testing.T, v version)) {
	t.Run("v4", func(t *testing.T) { test(t, v4) })
	t.Run("v5", func(t *testing.T) { test(t, v5) })
}

// down gives a version what was said for both, up the other way.
func down[C ctx, H ~func(C) error](h handler) H { return func(c C) error { return h(c) } }

func up[C ctx, H ~func(C) error](h H) handler {
	return func(c ctx) error { return h(c.(C)) }
}

func downChain[C ctx, H ~func(C) error, M ~func(H) H](chain []middleware) (ms []M) {
	for _, m := range chain {
		ms = append(ms, func(next H) H { return down[C, H](m(up[C](next))) })
	}
	return ms
}

func upMiddleware[C ctx, H ~func(C) error, M ~func(H) H](m M) middleware {
	return func(next handler) handler { return up[C](m(down[C, H](next))) }
}

// down1 and down2 are down for functions of a config and for keys, which may be nil.
func down1[C ctx, V any](f func(ctx) (V, error)) func(C) (V, error) {
	if f == nil {
		return nil
	}
	return func(c C) (V, error) { return f(c) }
}

func down2[C ctx, A, V any](f func(ctx, A) V) func(C, A) V {
	if f == nil {
		return nil
	}
	return func(c C, a A) V { return f(c, a) }
}

func upKey[C ctx](k func(C) (string, error)) key {
	return func(c ctx) (string, error) { return k(c.(C)) }
}

var v4 = version{
	newEcho: func() server {
		e := echov4.New()
		e.Logger.SetOutput(io.Discard)
		return serverV4{e}
	},
	limit: func(cfg config, l *core.Limiter, user, action key) middleware {
		m := limitv4.Config{
			Cost: down1[echov4.Context](cfg.cost), Deny: down2[echov4.Context](cfg.deny), Fail: down2[echov4.Context](cfg.fail),
			FinalCost: down2[echov4.Context](cfg.finalCost), Keep: cfg.keep,
		}.Limit(l, down1[echov4.Context](user), down1[echov4.Context](action))
		return upMiddleware[echov4.Context](m)
	},
	from:  func(f keyfuncs.Func) key { return upKey(limitv4.From(f)) },
	value: func(name string) key { return upKey(limitv4.Value(name)) },
	route: upKey(limitv4.Route),
	allow: func(c ctx, l *core.Limiter, user, action string, cost int) core.Decision {
		return limitv4.Allow(c.(echov4.Context), l, user, action, cost)
	},
	httpError: func(code int, message string) error { return echov4.NewHTTPError(code, message) },
	problem: func(err error) (gate.Problem, bool) {
		he, ok := err.(*echov4.HTTPError) // bare, as Echo's own handler wants it
		if !ok || he.Internal != nil {
			return gate.Problem{}, false
		}
		p, ok := he.Message.(*limitv4.Problem)
		if !ok {
			return gate.Problem{}, false
		}
		return p.Problem, he.Code == p.Status
	},
	encoded: func(err error) any { return err.(*echov4.HTTPError).Message },
	header:  func(c ctx) http.Header { return c.(echov4.Context).Response().Header() },
	response: func(c ctx) (any, http.ResponseWriter) {
		res := c.(echov4.Context).Response()
		return res, res.Writer
	},
	errorHandler: func(c ctx, err error) { c.(echov4.Context).Error(err) },
	wrapped: []wrapped{
		{"an HTTPError in one", &echov4.HTTPError{Code: 500, Message: "outer", Internal: echov4.NewHTTPError(404, "inner")}, 404},
		{"a wrapped HTTPError", errors.Join(echov4.ErrNotFound), 500},
	},
}

type serverV4 struct{ *echov4.Echo }

func (s serverV4) use(chain ...middleware) {
	s.Use(downChain[echov4.Context, echov4.HandlerFunc, echov4.MiddlewareFunc](chain)...)
}
func (s serverV4) add(method, path string, h handler, chain ...middleware) {
	s.Add(method, path, down[echov4.Context, echov4.HandlerFunc](h), downChain[echov4.Context, echov4.HandlerFunc, echov4.MiddlewareFunc](chain)...)
}
func (s serverV4) all(path string, h handler) {
	s.Any(path, down[echov4.Context, echov4.HandlerFunc](h))
}
func (s serverV4) static(prefix, root string) { s.Static(prefix, root) }
func (s serverV4) group(prefix string, chain ...middleware) func(method, path string, h handler) {
	g := s.Group(prefix, downChain[echov4.Context, echov4.HandlerFunc, echov4.MiddlewareFunc](chain)...)
	return func(method, path string, h handler) {
		g.Add(method, path, down[echov4.Context, echov4.HandlerFunc](h))
	}
}
func (s serverV4) onError(f func(ctx, error)) {
	s.HTTPErrorHandler = func(err error, c echov4.Context) { f(c, err) }
}
func (s serverV4) ownOnError(c ctx, err error) { s.DefaultHTTPErrorHandler(err, c.(echov4.Context)) }

var v5 = version{
	newEcho: func() server {
		e := echov5.New()
		e.Logger = slog.New(slog.DiscardHandler)
		return serverV5{e}
	},
	limit: func(cfg config, l *core.Limiter, user, action key) middleware {
		m := limitv5.Config{
			Cost: down1[*echov5.Context](cfg.cost), Deny: down2[*echov5.Context](cfg.deny), Fail: down2[*echov5.Context](cfg.fail),
			FinalCost: down2[*echov5.Context](cfg.finalCost), Keep: cfg.keep,
		}.Limit(l, down1[*echov5.Context](user), down1[*echov5.Context](action))
		return upMiddleware[*echov5.Context](m)
	},
	from:  func(f keyfuncs.Func) key { return upKey(limitv5.From(f)) },
	value: func(name string) key { return upKey(limitv5.Value(name)) },
	route: upKey(limitv5.Route),
	allow: func(c ctx, l *core.Limiter, user, action string, cost int) core.Decision {
		return limitv5.Allow(c.(*echov5.Context), l, user, action, cost)
	},
	httpError: func(code int, message string) error { return echov5.NewHTTPError(code, message) },
	problem: func(err error) (gate.Problem, bool) {
		var p *limitv5.Problem
		var he *echov5.HTTPError
		if !errors.As(err, &p) || !errors.As(err, &he) {
			return gate.Problem{}, false
		}
		return p.Problem, he.Code == p.Status && echov5.StatusCode(err) == p.Status
	},
	encoded: func(err error) any { return err },
	header:  func(c ctx) http.Header { return c.(*echov5.Context).Response().Header() },
	response: func(c ctx) (any, http.ResponseWriter) {
		res := c.(*echov5.Context).Response().(*echov5.Response)
		return res, res.ResponseWriter
	},
	errorHandler: func(c ctx, err error) {
		c5 := c.(*echov5.Context)
		c5.Echo().HTTPErrorHandler(c5, err)
	},
	wrapped: []wrapped{
		{"an HTTPError in one", echov5.HTTPError{Code: 500, Message: "outer"}.Wrap(echov5.NewHTTPError(404, "inner")), 500},
		{"a wrapped HTTPError", errors.Join(echov5.ErrNotFound), 404},
		{"an HTTPError without a status", echov5.NewHTTPError(0, "none"), 500},
	},
}

type serverV5 struct{ *echov5.Echo }

func (s serverV5) use(chain ...middleware) {
	s.Use(downChain[*echov5.Context, echov5.HandlerFunc, echov5.MiddlewareFunc](chain)...)
}
func (s serverV5) add(method, path string, h handler, chain ...middleware) {
	s.Add(method, path, down[*echov5.Context, echov5.HandlerFunc](h), downChain[*echov5.Context, echov5.HandlerFunc, echov5.MiddlewareFunc](chain)...)
}
func (s serverV5) all(path string, h handler) {
	s.Any(path, down[*echov5.Context, echov5.HandlerFunc](h))
}
func (s serverV5) static(prefix, root string) { s.Static(prefix, root) }
func (s serverV5) group(prefix string, chain ...middleware) func(method, path string, h handler) {
	g := s.Group(prefix, downChain[*echov5.Context, echov5.HandlerFunc, echov5.MiddlewareFunc](chain)...)
	return func(method, path string, h handler) {
		g.Add(method, path, down[*echov5.Context, echov5.HandlerFunc](h))
	}
}
func (s serverV5) onError(f func(ctx, error)) {
	s.HTTPErrorHandler = func(c *echov5.Context, err error) { f(c, err) }
}
func (s serverV5) ownOnError(c ctx, err error) {
	echov5.DefaultHTTPErrorHandler(false)(c.(*echov5.Context), err)
}
