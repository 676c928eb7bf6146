package gate_test

// What the tests' servers with Gin and Echo have in common.

import (
	"net/http"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// functions are those of an adapter: C is the framework's request, and M its middleware.
type functions[C, M any] struct {
	exchange func(C) (http.ResponseWriter, *http.Request)
	from     func(keyfuncs.Func) func(C) (string, error)
	route    func(C) (string, error)
	by       func(*core.Limiter, keyfuncs.UserOf[C], keyfuncs.ActionOf[C]) gate.Subject[C]
	limit    func(*core.Limiter, keyfuncs.UserOf[C], keyfuncs.ActionOf[C]) M
	limitAll func(...gate.Subject[C]) M
	allow    func(c C, limiter *core.Limiter, user, action string, cost int) core.Decision
	config   func(nethttp.Config) limits[C, M]
	settle   func(c C, actual int) error
	decision func(C) (core.Decision, bool)
	hold     func(C) (release func())
}

// limits is an adapter's Config.
type limits[C, M any] interface {
	Limit(*core.Limiter, keyfuncs.UserOf[C], keyfuncs.ActionOf[C]) M
	LimitAll(...gate.Subject[C]) M
	Allow(c C, limiter *core.Limiter, user, action string, cost int) core.Decision
}

// middleware makes a Limit of a Route.
func (f functions[C, M]) middleware(l gatetest.Limit) M {
	limit, limitAll := f.limit, f.limitAll
	if l.Config != nil {
		cfg := f.config(*l.Config)
		limit, limitAll = cfg.Limit, cfg.LimitAll
	}
	user, action := f.from(l.User), f.from(l.Action)
	if l.Routed {
		action = f.route
	}
	if l.And == nil {
		return limit(l.Limiter, user, action)
	}
	subjects := []gate.Subject[C]{guests(l, f.by(l.Limiter, user, action))}
	for _, o := range l.And {
		subjects = append(subjects, guests(o, f.by(o.Limiter, f.from(o.User), f.from(o.Action))))
	}
	return limitAll(subjects...)
}

// guests makes a subject optional if its Limit is.
func guests[C any](l gatetest.Limit, s gate.Subject[C]) gate.Subject[C] {
	if l.Guests {
		return s.Optional()
	}
	return s
}

// handle is the handler of a Route.
func (f functions[C, M]) handle(c C, rt gatetest.Route) {
	for _, in := range rt.Inside {
		allow := f.allow
		if in.Config != nil {
			allow = f.config(*in.Config).Allow
		}
		d := allow(c, in.Limiter, in.User, in.Action, in.Cost)
		if in.Decided(d); !d.Allowed && !in.Ignored {
			return
		}
	}
	w, r := f.exchange(c)
	if rt.Settles != nil {
		rt.Settles(w, r, func(actual int) error { return f.settle(c, actual) })
		return
	}
	if rt.Holds != nil {
		rt.Holds(w, r, func() func() { return f.hold(c) })
		return
	}
	rt.Handler(w, r, func() (core.Decision, bool) { return f.decision(c) })
}

// lifted makes cfg the Config of a framework whose requests are C.
func lifted[C any](cfg nethttp.Config, exchange func(C) (http.ResponseWriter, *http.Request)) gate.Config[C] {
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
