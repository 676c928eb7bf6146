package gatetest

// What servers for the tests of different frameworks have in common.

import (
	"net/http"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// Functions are those of an adapter, for its Mount. C is the framework's request, and M its middleware.
type Functions[C, M any] struct {
	Exchange func(C) (http.ResponseWriter, *http.Request)
	From     func(keyfuncs.Func) func(C) (string, error)
	Route    func(C) (string, error)
	By       func(*core.Limiter, keyfuncs.UserOf[C], keyfuncs.ActionOf[C]) gate.Subject[C]
	Limit    func(*core.Limiter, keyfuncs.UserOf[C], keyfuncs.ActionOf[C]) M
	LimitAll func(...gate.Subject[C]) M
	Allow    func(c C, limiter *core.Limiter, user, action string, cost int) core.Decision
	Config   func(nethttp.Config) Limits[C, M]
	Settle   func(c C, actual int) error
	Decision func(C) (core.Decision, bool)
	Hold     func(C) (release func())
}

// Limits is an adapter's Config.
type Limits[C, M any] interface {
	Limit(*core.Limiter, keyfuncs.UserOf[C], keyfuncs.ActionOf[C]) M
	LimitAll(...gate.Subject[C]) M
	Allow(c C, limiter *core.Limiter, user, action string, cost int) core.Decision
}

// Middleware makes middleware of a Limit of a Route.
func (f Functions[C, M]) Middleware(l Limit) M {
	limit, limitAll := f.Limit, f.LimitAll
	if l.Config != nil {
		cfg := f.Config(*l.Config)
		limit, limitAll = cfg.Limit, cfg.LimitAll
	}
	user, action := f.From(l.User), f.From(l.Action)
	if l.Routed {
		action = f.Route
	}
	if l.And == nil {
		return limit(l.Limiter, user, action)
	}
	subjects := []gate.Subject[C]{OptionalIf(l.Guests, f.By(l.Limiter, user, action))}
	for _, o := range l.And {
		subjects = append(subjects, OptionalIf(o.Guests, f.By(o.Limiter, f.From(o.User), f.From(o.Action))))
	}
	return limitAll(subjects...)
}

// OptionalIf returns the subject, made optional if guests is set.
func OptionalIf[C any](guests bool, s gate.Subject[C]) gate.Subject[C] {
	if guests {
		return s.Optional()
	}
	return s
}

// Handle is the handler of a Route.
func (f Functions[C, M]) Handle(c C, rt Route) {
	for _, in := range rt.Inside {
		allow := f.Allow
		if in.Config != nil {
			allow = f.Config(*in.Config).Allow
		}
		d := allow(c, in.Limiter, in.User, in.Action, in.Cost)
		if in.Decided(d); !d.Allowed && !in.Ignored {
			return
		}
	}
	w, r := f.Exchange(c)
	if rt.Settles != nil {
		rt.Settles(w, r, func(actual int) error { return f.Settle(c, actual) })
		return
	}
	if rt.Holds != nil {
		rt.Holds(w, r, func() func() { return f.Hold(c) })
		return
	}
	rt.Handler(w, r, func() (core.Decision, bool) { return f.Decision(c) })
}

// Lifted makes cfg the Config of a framework whose requests are C.
func Lifted[C any](cfg nethttp.Config, exchange func(C) (http.ResponseWriter, *http.Request)) gate.Config[C] {
	g := gate.Config[C]{
		CountPreflights: cfg.CountPreflights, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, Settle: cfg.Settle,
		Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter, Forbid: cfg.Forbid,
	}
	request := func(c C) *http.Request { _, r := exchange(c); return r }
	if cfg.Cost != nil {
		g.Cost = func(c C) (int, error) { return cfg.Cost(request(c)) }
	}
	if cfg.Limiter != nil {
		g.Limiter = func(c C) (*core.Limiter, error) { return cfg.Limiter(request(c)) }
	}
	if cfg.Skip != nil {
		g.Skip = func(c C) bool { return cfg.Skip(request(c)) }
	}
	if cfg.FinalCost != nil {
		g.FinalCost = func(c C, status int) int { return cfg.FinalCost(request(c), status) }
	}
	if cfg.OnlyFailures != nil {
		g.OnlyFailures = func(c C, status int) bool { return cfg.OnlyFailures(request(c), status) }
	}
	if cfg.Deny != nil {
		g.Deny = func(c C, d core.Decision) error { w, r := exchange(c); cfg.Deny(w, r, d); return nil }
	}
	if cfg.Fail != nil {
		g.Fail = func(c C, err error) error { w, r := exchange(c); cfg.Fail(w, r, err); return nil }
	}
	return g
}
