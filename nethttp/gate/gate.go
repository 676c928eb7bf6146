// Package gate is for authors of adapters to a framework. It turns a request into a
// decision and a decision into a response. Packages nethttp, ginlimit and echolimit are
// such adapters. To limit handlers, use one of those.
//
// An adapter makes one [Gate] for each middleware with [New]. For each request it calls
// [Gate.Enter], which asks who acts, what they do and at what cost, takes the decision
// and sets the headers. If the [Outcome] says Pass, the adapter runs the handler, with
// [Gate.Run] if the Outcome says FinalCost. Otherwise it answers with Outcome.Problem.
//
//	var o gate.Outcome
//	g.Enter(&o, c, request, header)
//	switch {
//	case o.FinalCost:
//		g.Run(c, request, &o, next, answered)
//	case o.Pass:
//		next(request)
//	default:
//		o.Problem().Write(writer, request)
//	}
//
// [Decide] is for a handler that asks for a decision itself.
package gate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Rules are the settings that do not depend on how a framework answers. C is the
// framework's request, such as *http.Request or *gin.Context. The fields are those of
// nethttp.Config.
type Rules[C any] struct {
	Cost            func(C) (int, error)
	Limiter         func(C) (*core.Limiter, error)
	Skip            func(C) bool
	CountPreflights bool
	MaxWait         time.Duration
	MaxWaiting      int
	FinalCost       func(c C, status int) int
	Style           Style
}

// Style says in what form the headers tell a decision.
type Style struct {
	ResetDelta bool // X-RateLimit-Reset in seconds from now, not since 1970
	IETF       bool // RateLimit and RateLimit-Policy in addition
}

// A Gate decides the requests of one middleware.
type Gate[C any] struct {
	adapter      string
	given        *core.Limiter // as given to New
	limiter      *core.Limiter // given, or derived from it with Refundable if there is a FinalCost
	user, action func(C) (string, error)
	rules        Rules[C]
	headers      headers
	waiting      atomic.Int64
	login        loginCheck
	failures     failureLog
	uncharged    rarely      // logs that a final cost could not be charged
	twice        atomic.Bool // whether charged-twice was logged
}

const defaultMaxWaiting = 1000

// New makes the gate of an adapter. The adapter's name starts messages. New panics if the
// limiter is nil or was not made by core.New, if a key function is nil, or if a number in
// rules is negative.
func New[C any](adapter string, limiter *core.Limiter, user, action func(C) (string, error), rules Rules[C]) *Gate[C] {
	switch {
	case limiter == nil:
		panic(adapter + ": Limit: the limiter is nil; make one with core.New")
	case len(limiter.Limits()) == 0:
		panic(adapter + ": Limit: the limiter is empty; make one with core.New")
	case user == nil:
		panic(adapter + ": Limit: the user's key function is nil; say whom to limit, such as keyfuncs.RemoteIP, or keyfuncs.Everyone for all together")
	case action == nil:
		panic(adapter + ": Limit: the action's key function is nil; say what to limit, such as Action(\"reply\") or Route")
	case rules.MaxWait < 0:
		panic(fmt.Sprintf("%s: Limit: MaxWait %s is negative; 0 refuses at once", adapter, rules.MaxWait))
	case rules.MaxWaiting < 0:
		panic(fmt.Sprintf("%s: Limit: MaxWaiting %d is negative; 0 is %d", adapter, rules.MaxWaiting, defaultMaxWaiting))
	case rules.MaxWaiting == 0:
		rules.MaxWaiting = defaultMaxWaiting
	}
	g := &Gate[C]{adapter: adapter, given: limiter, limiter: limiter, user: user, action: action, rules: rules}
	if rules.FinalCost != nil {
		g.limiter = core.Must(limiter.With(core.Refundable{}))
	}
	g.headers = newHeaders(g.limiter, rules.Style)
	return g
}

// An Outcome says what the adapter does with a request.
type Outcome struct {
	// Pass says that the handler runs, and FinalCost that Gate.Run runs it.
	Pass, FinalCost bool

	// Decided says that there was a decision. There is none for a request that was
	// skipped, a CORS preflight or a failure.
	Decided  bool
	Decision core.Decision

	// Stacked says that a limit further out has set headers before.
	Stacked bool

	// Failure says why there is no decision although one was needed.
	Failure *Failure

	// Kept is set by an adapter before Enter, if the handler may read the decision.
	Kept *Kept

	charge charge
	at     time.Time // of the decision
}

// Kept is a copy of the decision for the handler. It also has room for the header values,
// which saves an allocation.
type Kept struct {
	Decision core.Decision
	values   values
}

// Problem is the answer to a request that does not pass.
func (o *Outcome) Problem() Problem {
	if o.Failure != nil {
		return o.Failure.Problem()
	}
	return refusal(&o.Decision)
}

// A charge is what a request asks of a limiter.
type charge struct {
	limiter      *core.Limiter
	user, action string
	cost         int
}

func (ch *charge) allow(ctx context.Context) (core.Decision, time.Time, error) {
	d, err := ch.limiter.AllowN(ctx, ch.user, ch.action, ch.cost)
	return d, time.Now(), err
}

// Enter decides the request c, whose net/http form is r, and sets the headers of the
// response in h. It fills in o, a zero Outcome that may have Kept set.
func (g *Gate[C]) Enter(o *Outcome, c C, r *http.Request, h http.Header) {
	if !g.rules.CountPreflights && preflight(r) {
		o.Pass = true
		return
	}
	// The outcome is filled in by pointer: copying it costs more than deciding.
	switch o.Pass, o.Failure = g.decide(c, r, o); {
	case o.Pass:
		return
	case o.Failure != nil:
		o.Failure.log(r.Context(), &g.failures)
		g.headers.fail(h, o.charge.limiter, o.Failure)
		return
	}
	o.Pass, o.Decided = o.Decision.Allowed, true
	o.FinalCost = o.Pass && g.rules.FinalCost != nil
	if o.Kept != nil {
		o.Kept.Decision = o.Decision
	}
	outer := h[headerRemaining]
	if outer != nil {
		o.Stacked = true
		g.warnTwice(h, o.charge.cost)
	}
	g.headers.write(h, outer, o)
}

// preflight reports whether the request is a CORS preflight. It checks the two headers too:
// an ordinary OPTIONS request must not pass uncounted.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// decide calls the key functions, the hooks and the limiter. It turns their panics into
// failures.
func (g *Gate[C]) decide(c C, r *http.Request, o *Outcome) (skip bool, failure *Failure) {
	ch := &o.charge
	q := question{g.adapter, "skip"}
	defer q.caught(&failure)
	ch.limiter, ch.cost = g.limiter, 1
	if g.rules.Skip != nil && g.rules.Skip(c) {
		return true, nil
	}
	q.asking = "user"
	var err error
	ch.user, err = g.user(c)
	if failure = q.key(ch.user, err); failure != nil {
		if errors.Is(failure, keyfuncs.ErrNoKey) && g.login.missed() {
			g.warnNoUser(c, failure.Err)
		}
		return false, failure
	}
	g.login.found()
	q.asking = "action"
	ch.action, err = g.action(c)
	if failure = q.key(ch.action, err); failure != nil {
		return false, failure
	}
	if g.rules.Limiter != nil {
		q.asking = "limiter"
		if ch.limiter, err = g.pick(c); err != nil {
			ch.limiter = g.limiter
			return false, q.failed(http.StatusInternalServerError, err)
		}
	}
	if g.rules.Cost != nil {
		q.asking = "cost"
		ch.cost, err = g.rules.Cost(c)
		switch {
		case err != nil:
			return false, q.failed(statusOf(err), err)
		case ch.cost < 0:
			return false, q.failed(http.StatusInternalServerError, core.ErrCost)
		}
	}
	q.asking = "store"
	if g.rules.MaxWait == 0 {
		o.Decision, o.at, err = ch.allow(r.Context())
	} else {
		o.Decision, o.at, err = g.wait(r.Context(), ch)
	}
	if err != nil {
		return false, q.undecided(err)
	}
	return false, nil
}

// pick returns the limiter for the request, refundable if there is a FinalCost.
func (g *Gate[C]) pick(c C) (*core.Limiter, error) {
	picked, err := g.rules.Limiter(c)
	switch {
	case err != nil:
		return nil, err
	case picked == nil || picked == g.given:
		return g.limiter, nil
	case g.rules.FinalCost == nil:
		return picked, nil
	}
	return picked.With(core.Refundable{})
}

// wait takes the decision. If fewer than MaxWaiting requests wait, the request waits until
// it may pass or MaxWait is over.
func (g *Gate[C]) wait(ctx context.Context, ch *charge) (core.Decision, time.Time, error) {
	if g.waiting.Add(1) > int64(g.rules.MaxWaiting) {
		g.waiting.Add(-1)
		return ch.allow(ctx)
	}
	defer g.waiting.Add(-1)
	d, err := ch.limiter.WaitFor(ctx, g.rules.MaxWait, ch.user, ch.action, ch.cost)
	if errors.Is(err, core.ErrRefused) {
		err = nil
	}
	return d, time.Now(), err
}
