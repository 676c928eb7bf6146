package nethttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Rules are the settings that do not depend on how a framework answers. C is the
// framework's request: *http.Request, *gin.Context or echo.Context.
type Rules[C any] struct {
	Cost       func(C) (int, error)
	Limiter    func(C) *core.Limiter
	Skip       func(C) bool
	MaxWait    time.Duration
	MaxWaiting int
	FinalCost  func(C, int) int
	Keep       bool
	ResetDelta bool
	IETF       bool
}

// A Gate is what the adapters share: it asks who acts, what they do and at what
// cost, takes the decision and writes the headers. An adapter calls Enter, and
// runs the handler or writes the answer. Writers of handlers do not need it.
type Gate[C any] struct {
	adapter      string
	given        *core.Limiter
	limiter      *core.Limiter // the same, with receipts if requests are settled
	user, action func(C) (string, error)
	rules        Rules[C]
	headers      headers
	held         atomic.Int64
	users        users        // whether there are any
	unrouted     atomic.Bool  // said that the pattern is empty
	down         rarely       // said that the store fails
	unsettled    rarely       // said that a request cannot be settled
	looks        atomic.Int32 // how often it has looked who charges twice
}

const defaultHoldMax = 1000

// NewGate makes the gate of an adapter, whose name stands before its messages. It
// panics if the limiter or a key function is nil, or a number of the rules negative.
func NewGate[C any](adapter string, limiter *core.Limiter, user, action func(C) (string, error), rules Rules[C]) *Gate[C] {
	switch {
	case limiter == nil:
		panic(adapter + ": Limit: the limiter is nil; make one with core.New")
	case user == nil:
		panic(adapter + ": Limit: the user's key function is nil; say whom to limit, such as keyfuncs.RemoteIP, or keyfuncs.Everyone for all together")
	case action == nil:
		panic(adapter + ": Limit: the action's key function is nil; say what to limit, such as Action(\"reply\") or Route")
	case rules.MaxWait < 0:
		panic(fmt.Sprintf("%s: Limit: MaxWait %s is negative; 0 holds nobody", adapter, rules.MaxWait))
	case rules.MaxWaiting < 0:
		panic(fmt.Sprintf("%s: Limit: MaxWaiting %d is negative; 0 is %d", adapter, rules.MaxWaiting, defaultHoldMax))
	case rules.MaxWaiting == 0:
		rules.MaxWaiting = defaultHoldMax
	}
	g := &Gate[C]{adapter: adapter, given: limiter, limiter: limiter, user: user, action: action, rules: rules}
	if rules.FinalCost != nil {
		g.limiter = core.Must(limiter.With(core.Refundable{}))
	}
	g.headers = newHeaders(g.limiter, rules.ResetDelta, rules.IETF)
	return g
}

// An Outcome is what a Gate says about a request.
type Outcome struct {
	// Pass is whether the handler runs, and FinalCost whether it does so by Gate.Run.
	Pass, FinalCost bool

	// Decided is whether there was a decision: not for a request that was
	// skipped, a CORS preflight, or a failure.
	Decided  bool
	Decision core.Decision

	// Failure is why there is no decision although one was needed.
	Failure *Failure

	charge charge
	kept   *kept
}

// Kept is the decision of a request that passes, for its handler to read, or nil
// without Rules.Keep.
func (o *Outcome) Kept() *core.Decision {
	if o.kept == nil {
		return nil
	}
	return &o.kept.decision
}

// kept is what Keep lets outlive Enter, in one allocation with what does so anyway.
type kept struct {
	context.Context // the request's, in net/http
	decision        core.Decision
	numbers         numbers
}

func (k *kept) Value(key any) any {
	if key == (keptKey{}) {
		return k
	}
	return k.Context.Value(key)
}

// Problem is what to answer to a request that does not pass.
func (o *Outcome) Problem() Problem {
	if o.Failure != nil {
		return o.Failure.Problem()
	}
	return Refusal(o.Decision)
}

// A charge is what is asked of a limiter.
type charge struct {
	limiter      *core.Limiter
	user, action string
	cost         int
}

func (ch *charge) allow(ctx context.Context) (core.Decision, error) {
	return ch.limiter.AllowN(ctx, ch.user, ch.action, ch.cost)
}

// Enter decides the request, writes the headers that belong to the outcome and fills in
// the zero Outcome, which nobody has to copy then. What is left to do is to run the
// handler, or to answer with the Outcome's Problem.
func (g *Gate[C]) Enter(o *Outcome, c C, r *http.Request, h http.Header) {
	if preflight(r) {
		o.Pass = true
		return
	}
	charge := &o.charge
	switch o.Pass, o.Failure = g.decide(c, r, o); {
	case o.Pass:
		return
	case o.Failure != nil:
		if !errors.Is(o.Failure, keyfuncs.ErrNoRoute) || g.unrouted.CompareAndSwap(false, true) {
			o.Failure.say(r.Context(), &g.down)
		}
		g.headers.fail(h, charge.limiter, o.Failure)
		return
	}
	o.Pass, o.Decided = o.Decision.Allowed, true
	o.FinalCost = o.Pass && g.rules.FinalCost != nil
	var own *numbers
	if g.rules.Keep && o.Pass {
		o.kept = &kept{decision: o.Decision}
		own = &o.kept.numbers
	}
	outer := g.headers.write(h, charge.limiter, &o.Decision, own)
	if (outer != nil && g.looks.Load() < closerLooks || twice.left.Load() > 0) && charge.cost > 0 && !twice.said.Load() {
		n := note{limiter: charge.limiter, user: charge.user, action: charge.action}
		if n.limiter == g.limiter {
			n.limiter = g.given
		}
		g.charged(outer, h[headerRemaining], n)
	}
}

// preflight is a browser's question whether it may ask. It must have all three
// marks, or any client could pass for one.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// decide asks the functions that were given, whose panics it turns into failures. It
// fills in the outcome's charge and decision where they are, since to copy what was
// just written costs more than to write it.
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
		if errors.Is(failure, keyfuncs.ErrNoKey) && g.users.missed() {
			q.asking = "action"
			action, _ := g.action(c)
			g.users.warn(g.adapter, action, failure.Err)
		}
		return false, failure
	}
	g.users.found()
	q.asking = "action"
	ch.action, err = g.action(c)
	if failure = q.key(ch.action, err); failure != nil {
		return false, failure
	}
	if g.rules.Limiter != nil {
		q.asking = "limiter"
		if ch.limiter, err = g.picked(c); err != nil {
			return false, q.failed(http.StatusInternalServerError, err)
		}
	}
	if g.rules.Cost != nil {
		q.asking = "cost"
		if ch.cost, err = g.rules.Cost(c); err == nil && ch.cost < 0 {
			err = core.ErrCost
		}
		if err != nil {
			return false, q.failed(http.StatusInternalServerError, err)
		}
	}
	q.asking = "store"
	if g.rules.MaxWait == 0 {
		o.Decision, err = ch.limiter.AllowN(r.Context(), ch.user, ch.action, ch.cost)
	} else {
		o.Decision, err = g.hold(r.Context(), ch)
	}
	if err != nil {
		return false, q.failed(http.StatusServiceUnavailable, err)
	}
	return false, nil
}

// picked is the limiter that the request picks, with receipts if it is settled.
func (g *Gate[C]) picked(c C) (*core.Limiter, error) {
	picked := g.rules.Limiter(c)
	switch {
	case picked == nil || picked == g.given:
		return g.limiter, nil
	case g.rules.FinalCost == nil:
		return picked, nil
	}
	return picked.With(core.Refundable{})
}

// hold takes the decision. If there is room for one more it holds the request until it
// may pass, or MaxWait is over.
func (g *Gate[C]) hold(ctx context.Context, ch *charge) (core.Decision, error) {
	if g.held.Add(1) > int64(g.rules.MaxWaiting) {
		g.held.Add(-1)
		return ch.allow(ctx)
	}
	defer g.held.Add(-1)
	patient, cancel := context.WithTimeout(ctx, g.rules.MaxWait)
	defer cancel()
	d, err := ch.limiter.WaitN(patient, ch.user, ch.action, ch.cost)
	if err != nil && patient.Err() != nil && ctx.Err() == nil {
		return ch.allow(ctx) // it is MaxWait that has ended, and no reason to fail
	}
	return d, err
}

// Run runs the handler of a request that is to be settled, and settles it by what
// status, as that of Watch, says then. A panic of the handler counts as 500 and goes
// on.
func (g *Gate[C]) Run(c C, r *http.Request, o *Outcome, handler func(), status func() int) {
	panics := true
	defer func() {
		code := status()
		if code != 0 && panics {
			code = http.StatusInternalServerError
		}
		if code != 0 {
			g.settle(c, r, o, code)
		}
	}()
	handler()
	panics = false
}

// settle makes good the difference between what was charged and what FinalCost says,
// also for a client who has left.
func (g *Gate[C]) settle(c C, r *http.Request, o *Outcome, status int) {
	const stays = ": a request cannot be settled and stays as charged"
	defer func() {
		if v := recover(); v != nil {
			slog.Default().Error(g.adapter+stays, "error", fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	ctx := context.WithoutCancel(r.Context())
	ch, err := &o.charge, error(nil)
	switch more := g.rules.FinalCost(c, status) - ch.cost; {
	case more > 0:
		_, err = ch.limiter.Surcharge(ctx, ch.user, ch.action, more)
	case more < 0:
		err = ch.limiter.RefundN(ctx, o.Decision, -more)
	}
	if err != nil && g.unsettled.now() {
		slog.Default().Error(g.adapter+stays, "error", err)
	}
}

// Charge is Enter for an action that a handler asks for: see [Allow].
func Charge(adapter string, r *http.Request, h http.Header, limiter *core.Limiter, user, action string, cost int) Outcome {
	ch := charge{limiter, user, action, cost}
	d, failure := ch.decide(adapter, r.Context())
	var headers headers
	if failure != nil {
		failure.say(r.Context(), &handlersDown)
		headers.fail(h, limiter, failure)
		return Outcome{Failure: failure}
	}
	headers.write(h, limiter, &d, nil)
	return Outcome{Pass: d.Allowed, Decided: true, Decision: d}
}

var handlersDown rarely

func (ch *charge) decide(adapter string, ctx context.Context) (d core.Decision, failure *Failure) {
	q := question{adapter, "user"}
	defer q.caught(&failure)
	if failure = q.key(ch.user, nil); failure != nil {
		return d, failure
	}
	q.asking = "action"
	if failure = q.key(ch.action, nil); failure != nil {
		return d, failure
	}
	if ch.cost < 0 {
		q.asking = "cost"
		return d, q.failed(http.StatusInternalServerError, core.ErrCost)
	}
	q.asking = "store"
	d, err := ch.allow(ctx)
	if err != nil {
		failure = q.failed(http.StatusServiceUnavailable, err)
	}
	return d, failure
}

// A question is one to a function or a store, which may fail or panic.
type question struct{ adapter, asking string }

func (q *question) failed(status int, err error) *Failure {
	return &Failure{Status: status, Err: err, adapter: q.adapter, asking: q.asking}
}

// key is what is wrong with a key.
func (q *question) key(key string, err error) *Failure {
	if err == nil && key == "" {
		err = keyfuncs.ErrNoKey
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey):
		return q.failed(http.StatusBadRequest, err)
	}
	return q.failed(http.StatusInternalServerError, err)
}

// caught is deferred, and turns a panic into a failure.
func (q *question) caught(failure **Failure) {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		*failure = q.failed(http.StatusInternalServerError, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
	}
}

// rarely is for what is said again after a while, not per request.
type rarely struct{ said atomic.Int64 }

const sayAgain = time.Minute

var start = time.Now()

func (r *rarely) now() bool {
	was, now := r.said.Load(), int64(time.Since(start))
	return (was == 0 || now-was > int64(sayAgain)) && r.said.CompareAndSwap(was, now)
}

// A Failure is why a request got no decision. It is the error that a Config's Fail
// is given.
type Failure struct {
	// Status is the response's: 400 if the request does not say who or what, 503
	// if the store has no answer, 500 if a key, cost, picker or skip function
	// failed.
	Status int
	Err    error

	adapter, asking string
}

// Error says what was asked when Err came back.
func (f *Failure) Error() string { return f.adapter + ": " + f.asking + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// say logs what the server's owner should know: that of a failing store rarely.
func (f *Failure) say(ctx context.Context, down *rarely) {
	switch {
	case f.Status == http.StatusBadRequest:
	case f.Status == http.StatusServiceUnavailable:
		if ctx.Err() == nil && down.now() {
			slog.Default().Error(f.adapter+": the store has no answer; requests are answered 503", "error", f)
		}
	default:
		slog.Default().Error(f.adapter+": a request cannot be limited", "error", f)
	}
}
