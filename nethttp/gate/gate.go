// Package gate is for authors of framework adapters. It turns a request into a decision and a
// decision into a response. Packages nethttp, ginlimit and echolimit are such adapters. To limit
// handlers, use one of those; of this package they need only the constants of [Headers].
//
// An adapter implements [Framework] and makes one [Gate] for each middleware with [New]. For each
// request it calls [Gate.Serve]. Its functions Allow, Decision and Settle call [Allow], [Decision] and
// [Settle]. Package gatetest tests an adapter.
//
// # What an adapter must ensure
//
// Header must return the header that is sent, not a copy: gate reads there what a limit further
// out has set, and the handler adds to it. If the framework keeps its header in another form, the
// adapter copies it back before the handler runs and before it answers.
//
// Gate leaves a mark for Allow, Decision and Settle in the context of the request, and nowhere else. So
// Request must return what WithRequest was given last, until the request ends. A framework without
// an *http.Request keeps the one that the adapter makes in its own values of the request.
//
// A store may keep the user and the action. They must not be strings over a buffer that the
// framework uses again for the next request: clone them.
//
// A response has begun if the client may have got a part of it, or if the connection was taken
// over: nothing that is written later replaces it. If the framework keeps the response in memory
// until its chain has returned, it has begun when the handler or a hook has set a status or
// written a body. See [Watched].
//
// With [core.InFlight], Serve releases the request's slot when next returns or panics. So next must
// not return before the handlers have: if the framework streams after its handlers have returned, or
// runs them in another goroutine, next waits for that. Allow takes a slot that only its caller can
// release.
package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A Framework is what a gate needs of a framework. C is the framework's request, such as
// *gin.Context. It stands for the response too.
type Framework[C any] interface {
	// Name is the name of the adapter's package, which starts messages.
	Name() string

	// Request returns the request in the form of net/http.
	Request(C) *http.Request

	// WithRequest returns the C of the handlers further in, whose Request is r. It may change
	// and return the given one.
	WithRequest(c C, r *http.Request) C

	// Header returns the header of the response.
	Header(C) http.Header

	// Watch begins to watch the response. It returns the C to use from then on.
	Watch(C) (C, Watched)

	// Answer answers a request that does not pass, with the problem. If Deny or Fail has
	// returned an error without answering, err is that error. A framework that has a central
	// error handler returns an error for it. Answer calls ClearBody first.
	Answer(c C, p Problem, err error) error

	// HandleError gives the central error handler an error of Answer, Deny or Fail, so that the
	// request is answered before Allow returns. It does nothing if there is no such handler.
	HandleError(c C, err error)
}

// Watched is a response that is watched while a hook or the handlers run.
type Watched interface {
	// Answered reports, after Deny or Fail, whether they have answered the request: with a
	// status, with a body, or by taking over the connection. Early hints are not an answer.
	Answered() bool

	// Result returns, after the handlers, the status of the response, and whether the response
	// has begun. err is what they returned: if it is answered later, the status is that of the
	// answer. If nothing was written, the status is that with which the framework answers then.
	// It is 0 if the connection was taken over.
	Result(err error) (status int, begun bool)

	// Restore ends the watch.
	Restore()
}

// Config are the settings of a middleware. The fields are those of nethttp.Config. If Deny and
// Fail return an error, the Framework's Answer gets it if they have not answered the request.
type Config[C any] struct {
	Cost             func(C) (int, error)
	Limiter          func(C) (*core.Limiter, error)
	Skip             func(C) bool
	CountPreflights  bool
	MaxWait          time.Duration
	MaxWaiting       int
	FinalCost        func(c C, status int) int
	Settle           bool
	Deny             func(C, core.Decision) error
	Fail             func(C, error) error // the error is a *Failure
	Keep             bool
	Headers          Headers
	SpreadRetryAfter bool
}

// A Subject is a limiter, and the functions of whom and what it limits. The adapters' function By makes it.
type Subject[C any] struct {
	Limiter *core.Limiter
	User    keyfuncs.UserOf[C]
	Action  keyfuncs.ActionOf[C]
}

// A Gate decides the requests of one middleware.
type Gate[C any] struct {
	framework  Framework[C]
	name       string        // of the framework
	given      *core.Limiter // of the first subject, as given to New
	limiter    *core.Limiter // given, or derived from it with Refundable if the cost may change
	subjects   []subject[C]
	config     Config[C]
	marks      bool // whether every request that passes gets a mark
	headers    headers
	places     places
	failures   failureLog
	uncharged  rarely // logs that a final cost could not be charged
	unreleased rarely // logs that a slot could not be renewed or released
	twice      suspicion
}

// A subject is a Subject, and what its first requests may show.
type subject[C any] struct {
	Subject[C]
	userless, actionless, ported suspicion
}

const defaultMaxWaiting = 1000

// New makes the gate of a middleware. All subjects are decided together: see core.All. It panics if
// there are none, if a limiter is nil or was not made by core.New, if the limiters have different
// stores, if a key function is nil, or if a field of cfg is out of bounds.
func New[C any](f Framework[C], cfg Config[C], subjects ...Subject[C]) *Gate[C] {
	name := "Limit"
	if len(subjects) != 1 {
		name = "LimitAll"
	}
	fails := func(why string) { panic(f.Name() + ": " + name + ": " + why) }
	if len(subjects) == 0 {
		fails("no subjects; give at least one, such as By(limiter, user, action)")
	}
	for i := range subjects {
		switch s := &subjects[i]; {
		case s.Limiter == nil:
			fails("the limiter is nil; make one with core.New")
		case len(s.Limiter.Limits()) == 0:
			fails("the limiter is empty; make one with core.New")
		case s.User == nil:
			fails("the user's key function is nil; say whom to limit, such as keyfuncs.RemoteIP, or keyfuncs.Everyone for all together")
		case s.Action == nil:
			fails("the action's key function is nil; say what to limit, such as Action(\"reply\") or Route")
		case !sameStore(subjects[0].Limiter, s.Limiter):
			fails(fmt.Sprintf("the limiters of subjects 0 and %d have different stores; make them with one", i))
		}
	}
	switch {
	case cfg.MaxWait < 0:
		fails(fmt.Sprintf("MaxWait %s is negative; 0 refuses at once", cfg.MaxWait))
	case cfg.Headers.check() != nil:
		fails(cfg.Headers.check().Error())
	case cfg.FinalCost != nil && cfg.Settle:
		fails("FinalCost and Settle are both set; keep Settle if the handler knows the cost, and FinalCost if the status tells it")
	case cfg.MaxWaiting < 0:
		fails(fmt.Sprintf("MaxWaiting %d is negative; 0 is %d", cfg.MaxWaiting, defaultMaxWaiting))
	case cfg.MaxWaiting == 0:
		cfg.MaxWaiting = defaultMaxWaiting
	}
	limiter := subjects[0].Limiter
	g := &Gate[C]{framework: f, name: f.Name(), given: limiter, limiter: limiter, subjects: make([]subject[C], len(subjects)), config: cfg}
	g.marks = cfg.Deny != nil || cfg.Fail != nil || cfg.Keep || cfg.Settle || cfg.SpreadRetryAfter || cfg.Headers == NoHeaders
	if g.config.changes() { // this makes all charges of a decision refundable
		g.limiter = core.Must(limiter.With(core.Refundable{}))
	}
	limiters := []*core.Limiter{g.limiter}
	for i, s := range subjects {
		if g.subjects[i].Subject = s; i > 0 {
			limiters = append(limiters, s.Limiter)
		}
	}
	g.headers = headers{cfg.Headers, newPolicy(limiters)}
	return g
}

// sameStore reports whether two limiters have one store, as core.PeekAll wants it. It asks no store,
// because the last subject has no user.
func sameStore(a, b *core.Limiter) bool {
	_, err := core.PeekAll(context.Background(), a.For("a", "a"), b.For("b", "b"), a.For("", ""))
	return errors.Is(err, core.ErrNoUser)
}

// Serve decides the request c and sets the headers of the response. If the request passes, Serve
// calls next, which runs the handlers, and returns its error. It renews a slot of [core.InFlight]
// until then, and then releases it. Otherwise it answers the request, and
// returns the error of Deny or Fail, or of the Framework's Answer.
func (g *Gate[C]) Serve(c C, next func(C) error) error {
	r, h := g.framework.Request(c), g.framework.Header(c)
	var a attempt // a literal would be made elsewhere and then copied
	a.adapter, a.limiter, a.cost, a.spread = g.name, g.limiter, 1, g.config.SpreadRetryAfter
	outer := shownBy(h)
	if !g.config.CountPreflights && preflight(r) || g.decide(c, r, &a) {
		return g.pass(c, r, &a, outer.there, next)
	}
	if a.failure != nil {
		a.failure.log(r.Context(), &g.failures)
	} else if outer.there {
		g.warnTwice(h, outer, &a)
	}
	g.headers.write(h, outer, &a)
	if !a.decision.Allowed {
		return answer(g.framework, &g.config, c, &a)
	}
	return g.pass(c, r, &a, outer.there, next)
}

// preflight reports whether the request is a CORS preflight. It checks the two headers too:
// an ordinary OPTIONS request must not pass uncounted.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// decide fills in the attempt by the key functions, the hooks and the limiter. It reports whether the
// request passes without a decision.
func (g *Gate[C]) decide(c C, r *http.Request, a *attempt) (skip bool) {
	defer a.caught()
	cfg := &g.config
	var err error
	if a.asking = "skip"; cfg.Skip != nil && cfg.Skip(c) {
		return true
	}
	for i := range g.subjects {
		s := &g.subjects[i]
		user := g.key(c, s, a, "user", s.User, &s.userless)
		if user == "" {
			return false
		}
		g.warnPort(s, user)
		action := g.key(c, s, a, "action", s.Action, &s.actionless)
		if action == "" {
			return false
		}
		if i == 0 {
			a.user, a.action = user, action
		} else {
			a.further = append(a.further, part{s.Limiter, user, action})
		}
	}
	if cfg.Limiter != nil {
		a.asking = "limiter"
		if picked, err := g.pick(c); err != nil {
			return a.fail(http.StatusInternalServerError, err)
		} else {
			a.limiter = picked
		}
	}
	if cfg.Cost != nil {
		a.asking = "cost"
		if a.cost, err = cfg.Cost(c); err != nil {
			return a.fail(statusOf(err), err)
		}
	}
	most := cfg.MaxWait
	if most > 0 {
		if own := (place{a.user, a.action}); g.places.take(own, cfg.MaxWaiting) {
			defer g.places.leave(own)
		} else {
			most = 0
		}
	}
	a.charge(r.Context(), most)
	return false
}

// key returns the subject's user or action, or "" if the attempt has failed.
func (g *Gate[C]) key(c C, s *subject[C], a *attempt, asking string, of func(C) (string, error), missing *suspicion) string {
	a.asking = asking
	key, err := of(c)
	if a.key(key, err) {
		missing.cleared(manyKeyless)
		return key
	}
	if errors.Is(a.failure, keyfuncs.ErrNoKey) && missing.shown(manyKeyless) {
		g.warnKeyless(c, s, a.failure)
	}
	return ""
}

// changes reports whether the cost charged on entry may change.
func (cfg *Config[C]) changes() bool { return cfg.FinalCost != nil || cfg.Settle }

// pick returns the first subject's limiter for the request, refundable if the cost may change.
func (g *Gate[C]) pick(c C) (*core.Limiter, error) {
	picked, err := g.config.Limiter(c)
	switch {
	case err != nil || picked == nil || picked == g.given:
		return g.limiter, err
	case !g.config.changes():
		return picked, nil
	}
	return picked.With(core.Refundable{})
}

// pass runs the handlers of a request that passes, and before that leaves a mark in the request if
// Allow, Decision or Settle may need one. A mark costs a copy of the request. So a Limit whose
// configuration Allow sees in the headers leaves one only inside of another mark, or if it has skipped
// the request.
func (g *Gate[C]) pass(c C, r *http.Request, a *attempt, stacked bool, next func(C) error) error {
	decided, inner := a.decision.Allowed, r
	if decided && a.lease != 0 {
		defer g.hold(r.Context(), a).end()
	}
	if g.marks || stacked || !decided {
		outer := around[C](r)
		if g.marks || outer != nil || !decided && g.config.Headers != XRateLimit {
			inner = r.WithContext(&mark[C]{r.Context(), &g.config, a.limiter, a.decision, outer})
		}
	}
	charges := decided && g.config.FinalCost != nil
	var body *watchedBody
	if charges {
		inner, body = watchBody(inner)
	}
	if inner != r {
		c = g.framework.WithRequest(c, inner)
		defer giveBack(r, inner)
	}
	if !charges {
		return next(c)
	}
	return g.run(c, a, body, next)
}
