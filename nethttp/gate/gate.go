// Package gate is for authors of framework adapters. It turns a request into a decision and a
// decision into a response. Packages nethttp, ginlimit and echolimit are such adapters. To limit
// handlers, use one of those.
//
// An adapter implements [Framework] and makes one [Gate] for each middleware with [New]. For each
// request it calls [Gate.Serve]. Its functions Allow and Decision call [Allow] and [Decision].
// Package gatetest tests an adapter.
//
// # What an adapter must ensure
//
// Header must return the header that is sent, not a copy: gate reads there what a limit further
// out has set, and the handler adds to it. If the framework keeps its header in another form, the
// adapter copies it back before the handler runs and before it answers.
//
// Gate leaves a mark for Allow and Decision in the context of the request, and nowhere else. So
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
package gate

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
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
	Cost            func(C) (int, error)
	Limiter         func(C) (*core.Limiter, error)
	Skip            func(C) bool
	CountPreflights bool
	MaxWait         time.Duration
	MaxWaiting      int
	FinalCost       func(c C, status int) int
	Deny            func(C, core.Decision) error
	Fail            func(C, error) error // the error is a *Failure
	Keep            bool
	ResetDelta      bool
	IETF            bool
}

// A Gate decides the requests of one middleware.
type Gate[C any] struct {
	framework    Framework[C]
	given        *core.Limiter // as given to New
	limiter      *core.Limiter // given, or derived from it with Refundable if there is a FinalCost
	user, action func(C) (string, error)
	config       Config[C]
	headers      headers
	waiting      atomic.Int64
	login        loginCheck
	failures     failureLog
	uncharged    rarely // logs that a final cost could not be charged
	twice        twiceCheck
}

const defaultMaxWaiting = 1000

// New makes the gate of a middleware. It panics if the limiter is nil or was not made by core.New,
// if a key function is nil, or if a number in cfg is negative.
func New[C any](f Framework[C], limiter *core.Limiter, user, action func(C) (string, error), cfg Config[C]) *Gate[C] {
	fails := func(why string) { panic(f.Name() + ": Limit: " + why) }
	switch {
	case limiter == nil:
		fails("the limiter is nil; make one with core.New")
	case len(limiter.Limits()) == 0:
		fails("the limiter is empty; make one with core.New")
	case user == nil:
		fails("the user's key function is nil; say whom to limit, such as keyfuncs.RemoteIP, or keyfuncs.Everyone for all together")
	case action == nil:
		fails("the action's key function is nil; say what to limit, such as Action(\"reply\") or Route")
	case cfg.MaxWait < 0:
		fails(fmt.Sprintf("MaxWait %s is negative; 0 refuses at once", cfg.MaxWait))
	case cfg.MaxWaiting < 0:
		fails(fmt.Sprintf("MaxWaiting %d is negative; 0 is %d", cfg.MaxWaiting, defaultMaxWaiting))
	case cfg.MaxWaiting == 0:
		cfg.MaxWaiting = defaultMaxWaiting
	}
	g := &Gate[C]{framework: f, given: limiter, limiter: limiter, user: user, action: action, config: cfg}
	if cfg.FinalCost != nil {
		g.limiter = core.Must(limiter.With(core.Refundable{}))
	}
	g.headers = headers{style: cfg.style(), policy: newPolicy(g.limiter)}
	return g
}

// Serve decides the request c and sets the headers of the response. If the request passes, Serve
// calls next, which runs the handlers, and returns its error. Otherwise it answers the request, and
// returns the error of Deny or Fail, or of the Framework's Answer.
func (g *Gate[C]) Serve(c C, next func(C) error) error {
	r, h := g.framework.Request(c), g.framework.Header(c)
	a := attempt{adapter: g.framework.Name(), limiter: g.limiter, cost: 1}
	outer := h[headerRemaining]
	switch {
	case !g.config.CountPreflights && preflight(r) || g.decide(c, r, &a):
		return g.pass(c, r, &a, outer != nil, next)
	case a.failure != nil:
		a.failure.log(r.Context(), &g.failures)
		g.headers.fail(h, &a)
		return answer(g.framework, &g.config, c, &a)
	}
	if outer != nil {
		g.warnTwice(h, &a)
	}
	g.headers.write(h, outer, a.limiter, &a.decision)
	if !a.decision.Allowed {
		return answer(g.framework, &g.config, c, &a)
	}
	return g.pass(c, r, &a, outer != nil, next)
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
	a.asking = "user"
	if a.user, err = g.user(c); !a.key(a.user, err) {
		if errors.Is(a.failure, keyfuncs.ErrNoKey) && g.login.missed() {
			g.warnNoUser(c, a.failure.Err)
		}
		return false
	}
	g.login.found()
	a.asking = "action"
	if a.action, err = g.action(c); !a.key(a.action, err) {
		return false
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
		if g.waiting.Add(1) <= int64(cfg.MaxWaiting) {
			defer g.waiting.Add(-1)
		} else {
			g.waiting.Add(-1)
			most = 0
		}
	}
	a.charge(r.Context(), most)
	return false
}

// pick returns the limiter for the request, refundable if there is a FinalCost.
func (g *Gate[C]) pick(c C) (*core.Limiter, error) {
	picked, err := g.config.Limiter(c)
	switch {
	case err != nil || picked == nil || picked == g.given:
		return g.limiter, err
	case g.config.FinalCost == nil:
		return picked, nil
	}
	return picked.With(core.Refundable{})
}

// pass runs the handlers of a request that passes, and before that leaves a mark in the request if
// Allow or Decision may need one. A mark costs a copy of the request. So a Limit without Deny, Fail
// and Keep leaves one only inside of another mark, or if it has skipped the request: otherwise Allow
// sees the style in the headers.
func (g *Gate[C]) pass(c C, r *http.Request, a *attempt, stacked bool, next func(C) error) error {
	cfg, decided, inner := &g.config, a.decision.Allowed, r
	var outer *mark[C]
	if marks := cfg.Deny != nil || cfg.Fail != nil || cfg.Keep; marks || stacked || !decided {
		outer = around[C](r)
		if marks || outer != nil || !decided && cfg.style() != (style{}) {
			inner = r.WithContext(newMark(r.Context(), cfg, outer, a))
		}
	}
	charges := decided && cfg.FinalCost != nil
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
