package gate

// This file takes a request through all stages, from the key functions to the handlers or the
// answer.

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Serve decides the request c, and sets the headers of the response.
//
// If the request passes, Serve calls next, which runs the handlers, and returns its error. While
// next runs, Serve renews the request's slots of [core.InFlight]. After next has returned, Serve
// releases the slots, unless a handler has called [Hold].
//
// If the request does not pass, Serve answers it, and returns the error of Deny, of Fail, or of the
// Framework's Answer.
func (g *Gate[C]) Serve(c C, next func(C) error) error {
	r, h := g.framework.Request(c), g.framework.Header(c)
	var a attempt // a literal would be copied
	a.adapter, a.policies[0], a.limiter, a.cost = g.name, g.policy, g.subjects[0].Limiter, 1
	var reused []*slot
	uncounted := !g.config.CountPreflights && preflight(r)
	if !uncounted {
		uncounted = g.decide(c, r, &a, &reused)
	}
	if uncounted {
		return g.pass(c, r, &a, new(mark[C]), next)
	}
	defer endSlots(reused)
	if a.failure != nil {
		a.failure.log(r.Context(), &g.failures)
	}
	var t told
	a.tell(&t, g.config.SpreadRetryAfter)
	outer := look(h)
	g.warnCharged(&outer, &a, &t, reused)
	m := g.newMark(r, &a)
	write(h, g.formats, m.room(), &outer, &a, &t)
	switch {
	case !a.decision.Allowed:
		g.failures.noteNothing(&a)
		return answer(g.framework, &g.config, c, &a, &t)
	case m == nil:
		return next(c)
	}
	return g.pass(c, r, &a, m, next)
}

// warnCharged warns if the request looks charged by this limit and by a limit further out.
func (g *Gate[C]) warnCharged(outer *shown, a *attempt, t *told, reused []*slot) {
	if reused == nil {
		noteTwice(&g.twice, outer, a, t, mountedTwice)
	} else {
		warnEntered(&g.entered, g.name)
	}
}

// preflight reports whether the request is a CORS preflight. A browser sends a preflight without
// credentials and without a body. Other OPTIONS requests must not pass uncounted, because a handler
// could act on them.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" &&
		r.Header["Authorization"] == nil && r.Header["Cookie"] == nil && r.ContentLength == 0
}

// decide asks for the user, the action, the limiter and the cost, and then asks the limiter. It
// reports whether the request passes uncounted, because of Config.Skip. For reused see charge.
func (g *Gate[C]) decide(c C, r *http.Request, a *attempt, reused *[]*slot) (uncounted bool) {
	defer a.caught()
	a.asking = "skip"
	if f := g.config.Skip; f != nil && f(c) {
		return true
	}
	if !g.keys(c, a) || g.config.Limiter != nil && !g.pick(c, a) || g.config.Cost != nil && !g.price(c, a) {
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

// pass runs the handlers of a request that passes. They get a copy of the request that has the mark
// m.
func (g *Gate[C]) pass(c C, r *http.Request, a *attempt, m *mark[C], next func(C) error) error {
	decided, ctx := a.decision.Allowed, r.Context()
	if decided && a.lease != 0 {
		s := a.keepSlot(ctx, &g.unreleased)
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

// keys asks for the user and the action of each subject, and reports whether it has them.
func (g *Gate[C]) keys(c C, a *attempt) bool {
	found := false
	for i := range g.subjects {
		m := &g.subjects[i]
		a.asking = "user"
		user, err := m.User(c)
		if !a.key(user, err) {
			if m.Guests && errors.Is(a.failure, keyfuncs.ErrNoKey) {
				m.noteGuest(c, a.failure)
				continue
			}
			m.noteKeyless(c, &m.userless, a.failure)
			return false
		}
		m.userless.Seen()
		if m.ported.Open(manyPorts) {
			m.warnPort(a.adapter, user)
		}
		a.asking = "action"
		action, err := m.Action(c)
		if !a.key(action, err) {
			m.noteKeyless(c, &m.actionless, a.failure)
			return false
		}
		m.actionless.Seen()
		if !m.actions.knows(action) {
			m.warnActions(a.adapter, action)
		}
		if found {
			a.further = append(a.further, subject{m.Limiter, user, action, i})
		} else {
			found = true
			a.limiter, a.user, a.action, a.index = m.Limiter, user, action, i
		}
	}
	if found {
		a.failure = nil // of an optional one
	}
	return found
}

// pick asks Config.Limiter for the first subject's limiter, if the request has a user for that
// subject. The attempt gets the limiter that Config.derived makes of the answer. pick returns false
// if the request has failed.
func (g *Gate[C]) pick(c C, a *attempt) bool {
	if a.index != 0 {
		return true
	}
	a.asking = "limiter"
	picked, err := g.config.Limiter(c)
	if err == nil && picked != nil {
		var k *known
		if k, err = g.picks.get(picked, g.complete); err == nil {
			a.limiter, a.policies[1] = k.limiter, k.policy
		}
	}
	return err == nil || a.fail(http.StatusInternalServerError, err)
}

// price asks Config.Cost.
func (g *Gate[C]) price(c C, a *attempt) bool {
	var err error
	a.asking = "cost"
	a.cost, err = g.config.Cost(c)
	return err == nil || a.fail(statusOf(err), err)
}

// A mark is the context of a request behind a Limit. Allow, Decision and Settle find it. One
// allocation has the mark and everything else that such a request needs.
type mark[C any] struct {
	context.Context
	config   *Config[C]
	limiter  *core.Limiter
	decision core.Decision // zero if the Limit has skipped the request
	request  http.Request  // the copy of the request that has this context
	values   values        // those of the headers
}

type markKey[C any] struct{}

// newMark returns an empty mark, or nil if the request does not pass or nothing needs a mark. To
// read the headers of a limit, Allow needs no mark.
func (g *Gate[C]) newMark(r *http.Request, a *attempt) *mark[C] {
	if a.decision.Allowed && (a.lease != 0 || g.marks || around[C](r.Context()) != nil) {
		return new(mark[C])
	}
	return nil
}

// room returns the place for the values of headers, or nil if there is no mark.
func (m *mark[C]) room() *values {
	if m == nil {
		return nil
	}
	return &m.values
}

func (m *mark[C]) Value(key any) any {
	if key == (markKey[C]{}) {
		return m
	}
	return m.Context.Value(key)
}

// around returns the innermost mark that ctx has, or nil. The next mark further out is
// around(m.Context).
func around[C any](ctx context.Context) *mark[C] {
	m, _ := ctx.Value(markKey[C]{}).(*mark[C])
	return m
}

// giveBack copies to r the pattern, the path values and the forms that the handlers have set in
// inner, the copy of r. A middleware outside of the limit may read the pattern of a mux that is
// inside. The server removes the uploaded files that it finds in r. giveBack copies nothing else,
// because a middleware outside may read r in another goroutine.
func giveBack(r, inner *http.Request) {
	if r.Pattern != inner.Pattern {
		r.Pattern = inner.Pattern
		for part := range strings.SplitSeq(r.Pattern, "{") {
			if name, _, wild := strings.Cut(part, "}"); wild && name != "$" {
				name = strings.TrimSuffix(name, "...")
				r.SetPathValue(name, inner.PathValue(name))
			}
		}
	}
	if r.MultipartForm != inner.MultipartForm {
		r.MultipartForm = inner.MultipartForm
	}
	if r.Form == nil && inner.Form != nil {
		r.Form, r.PostForm = inner.Form, inner.PostForm
	}
}

// answer calls Deny or Fail. If they have not answered the request, it calls the Framework's
// Answer.
func answer[C any](f Framework[C], cfg *Config[C], c C, a *attempt, t *told) (err error) {
	if a.failure != nil && cfg.Fail != nil || a.failure == nil && cfg.Deny != nil {
		var answered bool
		if answered, err = callHook(f, cfg, c, a); answered {
			return err
		}
	}
	if a.failure != nil {
		return f.Answer(c, a.failure.Problem(), err)
	}
	return f.Answer(c, refusal(t, cfg.Forbid), err)
}

// callHook calls Deny or Fail, and reports whether it has answered.
func callHook[C any](f Framework[C], cfg *Config[C], c C, a *attempt) (answered bool, err error) {
	c, w := f.Watch(c, nil)
	defer w.Restore()
	if a.failure != nil {
		err = cfg.Fail(c, a.failure)
	} else {
		var d core.Decision
		a.share(&d)
		err = cfg.Deny(c, d)
	}
	return w.Answered(), err
}
