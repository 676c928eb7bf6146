package gate

// One request, from the key functions to the handlers or the answer.

import (
	"context"
	"net/http"
)

// Serve decides the request c and sets the headers of the response. If the request passes, Serve
// calls next, which runs the handlers, and returns its error. While next runs, Serve renews the request's slots
// of [core.InFlight]. Afterwards it releases them, unless a handler has called [Hold]. If the request does not
// pass, Serve answers it, and returns the error of Deny or Fail, or of the Framework's Answer.
func (g *Gate[C]) Serve(c C, next func(C) error) error {
	r, h := g.framework.Request(c), g.framework.Header(c)
	var a attempt // a literal would be copied
	a.adapter, a.limiter, a.cost = g.name, g.subjects[0].Limiter, 1
	var reused []*slot
	if !g.config.CountPreflights && preflight(r) || g.decide(c, r, &a, &reused) {
		return g.pass(c, r, &a, new(mark[C]), next)
	}
	if a.failure != nil {
		a.failure.log(r.Context(), &g.failures)
	}
	t, outer := a.tell(g.headers.policy, g.config.SpreadRetryAfter), look(h)
	if reused == nil {
		g.twice.noteTwice(&outer, &a, &t, mountedTwice)
	} else {
		g.warnEntered()
		defer endSlots(reused)
	}
	var m *mark[C] // nil if no handler looks for one: the headers tell Allow of a plain limit
	var room *values
	if a.decision.Allowed && (a.lease != 0 || g.marks || around[C](r.Context()) != nil) {
		m = new(mark[C])
		room = &m.values
	}
	g.headers.write(h, room, &outer, &a, &t)
	switch {
	case !a.decision.Allowed:
		g.failures.noteNothing(&a)
		return answer(g.framework, &g.config, c, &a, &t)
	case m == nil:
		return next(c)
	}
	return g.pass(c, r, &a, m, next)
}

// preflight reports whether the request is a CORS preflight. An OPTIONS request that a handler could act on must
// not pass uncounted: a browser sends a preflight without credentials and without a body.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" &&
		r.Header["Authorization"] == nil && r.Header["Cookie"] == nil && r.ContentLength == 0
}

// decide asks who, what, by which limiter and at what cost, and then the limiter. It reports whether the request passes
// without a decision. reused gets the slots that the request had already.
func (g *Gate[C]) decide(c C, r *http.Request, a *attempt, reused *[]*slot) (skip bool) {
	defer a.caught()
	a.asking = "skip"
	if f := g.config.Skip; f != nil && f(c) {
		return true
	}
	if !g.ask(c, a) {
		return false
	}
	wait := g.config.MaxWait
	if wait > 0 {
		if g.waiting.enter(a.user, a.action, g.config.MaxWaiting) {
			defer g.waiting.leave(a.user, a.action)
		} else {
			wait = 0
		}
	}
	a.charge(r.Context(), wait, reused)
	return false
}

// pass runs the handlers of a request that passes, with the mark m in a copy of the request.
func (g *Gate[C]) pass(c C, r *http.Request, a *attempt, m *mark[C], next func(C) error) error {
	decided, ctx := a.decision.Allowed, r.Context()
	if decided && a.lease != 0 {
		s := keepSlot(ctx, a, &g.unreleased)
		defer s.end()
		ctx = context.WithValue(ctx, slotKey{}, s)
	}
	m.Context, m.config, m.limiter = ctx, &g.config, a.limiter
	a.share(&m.decision)
	m.request = *r.WithContext(m)
	inner := &m.request
	defer giveBack(r, inner)
	if decided && (g.config.FinalCost != nil || g.config.OnlyFailures != nil) {
		return g.run(c, inner, a, next)
	}
	return next(g.framework.WithRequest(c, inner))
}
