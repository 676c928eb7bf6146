package gate

// One request, from the key functions to the handlers or the answer.

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/keyfuncs"
)

// An attempt is an action that a request asks for, and what was decided.
type attempt struct {
	adapter string
	spread  bool   // whether clients are told to wait for different times
	asking  string // what is asked at present, for a failure
	subject        // the first
	further []subject
	cost    int
	lease   time.Duration // the shortest of the subjects' slots, or 0 if none has InFlight
	reused  []*slot       // the slots that the request has already

	decision core.Decision     // zero if there is none
	failure  *Failure          // why there is none
	policy   *policy           // with a limiter that was picked
	calendar *machine.Calendar // of the limit that the decision is about, if it is a CalendarWindow
}

// A subject is a user and an action, and the limiter that decides about them.
type subject struct {
	limiter      *core.Limiter
	user, action string
	index        int // among those of the middleware
}

func (a *attempt) subjects() []subject { return append([]subject{a.subject}, a.further...) }

// Serve decides the request c and sets the headers of the response. If the request passes, Serve
// calls next, which runs the handlers, and returns its error. It renews a slot of [core.InFlight]
// until then, and then releases it, unless a handler has called [Hold]. Otherwise it answers the request,
// and returns the error of Deny or Fail, or of the Framework's Answer.
func (g *Gate[C]) Serve(c C, next func(C) error) error {
	r, h := g.framework.Request(c), g.framework.Header(c)
	var a attempt // a literal would be copied
	a.adapter, a.spread, a.limiter, a.cost = g.name, g.config.SpreadRetryAfter, g.subjects[0].Limiter, 1
	if !g.config.CountPreflights && preflight(r) || g.decide(c, r, &a) {
		return g.pass(c, r, &a, new(mark[C]), next)
	}
	if a.failure != nil {
		a.failure.log(r.Context(), &g.failures)
	}
	a.calendar = g.headers.policy.calendar(&a)
	var outer shown
	outer.read(h)
	if a.reused == nil {
		g.twice.noteTwice(&outer, &a, mountedTwice)
	} else {
		g.warnEntered()
		defer a.endReused()
	}
	var m *mark[C] // nil if no handler looks for one: the headers tell Allow of a plain limit
	var room *values
	if a.decision.Allowed && (a.lease != 0 || g.marks || around[C](r.Context()) != nil) {
		m = new(mark[C])
		room = &m.values
	}
	told := a.tell(&g.headers.policy)
	g.headers.write(h, room, &outer, &a, told)
	a.place() // after tell and write, which count the subjects as core.All does
	switch {
	case !a.decision.Allowed:
		g.failures.noteNothing(&a)
		return answer(g.framework, &g.config, c, &a, told)
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

// decide asks who, what, by which limiter and at what cost, and then the limiter. It reports whether
// the request passes without a decision.
func (g *Gate[C]) decide(c C, r *http.Request, a *attempt) (skip bool) {
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
	a.charge(r.Context(), true, wait)
	return false
}

// keys asks for the user and the action of each subject.
func (g *Gate[C]) keys(c C, a *attempt) bool {
	found := false
	for i := range g.subjects {
		m := &g.subjects[i]
		a.asking = "user"
		user, err := m.User(c)
		if !a.key(user, err) {
			if m.Guests && errors.Is(a.failure, keyfuncs.ErrNoKey) {
				g.noteGuest(c, m, a.failure)
				continue
			}
			g.noteKeyless(c, m, &m.userless, a.failure)
			return false
		}
		m.userless.clear(m.manyUserless())
		if m.ported.open(manyPorts) {
			g.warnPort(m, user)
		}
		a.asking = "action"
		action, err := m.Action(c)
		if !a.key(action, err) {
			g.noteKeyless(c, m, &m.actionless, a.failure)
			return false
		}
		m.actionless.clear(manyKeyless)
		if !m.actions.knows(action) {
			g.warnActions(m, action)
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

// key reports whether a key can be used.
func (a *attempt) key(key string, err error) bool {
	return err == nil && key != "" || a.keyless(err)
}

func (a *attempt) keyless(err error) bool {
	err = cmp.Or(err, keyfuncs.ErrNoKey)
	return a.fail(statusOf(err), err)
}

// pick asks Config.Limiter for the first subject's limiter, and derives it if the cost may change.
func (g *Gate[C]) pick(c C, a *attempt) bool {
	if a.index != 0 {
		return true
	}
	a.asking = "limiter"
	picked, err := g.config.Limiter(c)
	if err == nil && picked != nil {
		var p *pick
		if p, err = g.picked(picked); err == nil {
			a.limiter, a.policy = p.limiter, &p.policy
		}
	}
	return err == nil || a.fail(http.StatusInternalServerError, err)
}

// A pick is a limiter that Config.Limiter has picked, and what is made of it once.
type pick struct {
	of, limiter *core.Limiter // as picked, and as it decides
	policy      policy        // of all subjects
}

var pickSeed = maphash.MakeSeed()

// picked returns the pick of a limiter. A Config.Limiter has one for each plan, say, so most are kept.
func (g *Gate[C]) picked(l *core.Limiter) (*pick, error) {
	at := &g.picks[maphash.Comparable(pickSeed, l)%uint64(len(g.picks))]
	if p := at.Load(); p != nil && p.of == l {
		return p, nil
	}
	limiter, err := g.config.derived(l)
	if err != nil {
		return nil, err
	}
	limiters := []*core.Limiter{limiter}
	for i := range g.subjects[1:] {
		limiters = append(limiters, g.subjects[1+i].Limiter)
	}
	p := &pick{of: l, limiter: limiter, policy: newPolicy(limiters)}
	at.Store(p)
	return p, nil
}

// price asks Config.Cost.
func (g *Gate[C]) price(c C, a *attempt) bool {
	var err error
	a.asking = "cost"
	a.cost, err = g.config.Cost(c)
	return err == nil || a.fail(statusOf(err), err)
}

// fail records why there is no decision. It returns false, for a caller that stops then.
func (a *attempt) fail(status int, err error) bool {
	a.decision = core.Decision{}
	a.failure = &Failure{Status: status, Err: err, adapter: a.adapter, asking: a.asking}
	return false
}

// caught is deferred, and makes a panic a failure.
func (a *attempt) caught() {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		a.fail(http.StatusInternalServerError, panicked(v))
	}
}

// pass runs the handlers of a request that passes, with the mark m in a copy of the request.
func (g *Gate[C]) pass(c C, r *http.Request, a *attempt, m *mark[C], next func(C) error) error {
	decided, ctx := a.decision.Allowed, r.Context()
	if decided && a.lease != 0 {
		s := g.keepSlot(ctx, a)
		defer s.end()
		ctx = context.WithValue(ctx, slotKey{}, s)
	}
	m.Context, m.config, m.limiter = ctx, &g.config, a.limiter
	m.decision = a.decision // with the others it would be copied twice
	m.request = *r.WithContext(m)
	inner := &m.request
	defer giveBack(r, inner)
	if decided && (g.config.FinalCost != nil || g.config.OnlyFailures != nil) {
		return g.run(c, inner, a, next)
	}
	return next(g.framework.WithRequest(c, inner))
}
