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
	ResetDelta bool
	IETF       bool
}

// A Gate is what the adapters share: it asks who acts, what they do and at what
// cost, takes the decision and writes the headers. An adapter calls Enter, and
// runs the handler or writes the answer. Writers of handlers do not need it.
type Gate[C any] struct {
	adapter      string
	limiter      *core.Limiter
	user, action func(C) (string, error)
	rules        Rules[C]
	headers      headers
	unrouted     atomic.Bool  // said that the pattern is empty
	said         atomic.Int64 // when it was last said that the store fails
	looks        atomic.Int32 // how often it has looked who charges twice
}

// NewGate makes the gate of an adapter, whose name stands before its messages. It
// panics if the limiter or a key function is nil.
func NewGate[C any](adapter string, limiter *core.Limiter, user, action func(C) (string, error), rules Rules[C]) *Gate[C] {
	switch {
	case limiter == nil:
		panic(adapter + ": Limit: the limiter is nil; make one with core.New")
	case user == nil:
		panic(adapter + ": Limit: the user's key function is nil; say whom to limit, such as keyfuncs.RemoteIP, or keyfuncs.Everyone for all together")
	case action == nil:
		panic(adapter + ": Limit: the action's key function is nil; say what to limit, such as Action(\"reply\") or Route")
	}
	return &Gate[C]{
		adapter: adapter, limiter: limiter, user: user, action: action, rules: rules,
		headers: newHeaders(limiter, rules.ResetDelta, rules.IETF),
	}
}

// An Outcome is what a Gate says about a request.
type Outcome struct {
	// Pass is whether the handler runs.
	Pass bool

	// Decided is whether there was a decision: not for a request that was
	// skipped, a CORS preflight, or a failure.
	Decided  bool
	Decision core.Decision

	// Failure is why there is no decision although one was needed.
	Failure *Failure
}

// Enter decides the request and writes the headers that belong to the outcome.
// What is left to do is to run the handler, or to answer with [Refusal] or the
// Failure's Problem.
func (g *Gate[C]) Enter(c C, r *http.Request, h http.Header) Outcome {
	if preflight(r) {
		return Outcome{Pass: true}
	}
	limiter, d, skip, failure := g.decide(c, r, h)
	switch {
	case skip:
		return Outcome{Pass: true}
	case failure != nil:
		g.say(r.Context(), failure)
		g.headers.fail(h, limiter, failure)
		return Outcome{Failure: failure}
	}
	return Outcome{Pass: d.Allowed, Decided: true, Decision: d}
}

// preflight is a browser's question whether it may ask. It must have all three
// marks, or any client could pass for one.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// decide asks the functions that were given, whose panics it turns into failures, and
// writes the headers of the decision.
func (g *Gate[C]) decide(c C, r *http.Request, h http.Header) (limiter *core.Limiter, d core.Decision, skip bool, failure *Failure) {
	asking := "skip"
	defer func() {
		if asking == "" {
			return
		}
		if v := recover(); v == http.ErrAbortHandler {
			panic(v)
		} else if v != nil {
			failure = &Failure{Status: http.StatusInternalServerError, adapter: g.adapter, asking: asking, Err: fmt.Errorf("panic: %v\n%s", v, debug.Stack())}
		}
	}()
	limiter = g.limiter
	fail := func(status int, err error) (*core.Limiter, core.Decision, bool, *Failure) {
		failure := &Failure{Status: status, adapter: g.adapter, asking: asking, Err: err}
		asking = ""
		return limiter, core.Decision{}, false, failure
	}
	if g.rules.Skip != nil && g.rules.Skip(c) {
		asking = ""
		return nil, d, true, nil
	}
	asking = "user"
	user, err := g.user(c)
	if err == nil && user == "" {
		err = keyfuncs.ErrNoKey
	}
	if err != nil {
		return fail(keyStatus(err), err)
	}
	asking = "action"
	action, err := g.action(c)
	if err == nil && action == "" {
		err = keyfuncs.ErrNoKey
	}
	if err != nil {
		return fail(keyStatus(err), err)
	}
	if g.rules.Limiter != nil {
		asking = "limiter"
		if picked := g.rules.Limiter(c); picked != nil {
			limiter = picked
		}
	}
	cost := 1
	if g.rules.Cost != nil {
		asking = "cost"
		if cost, err = g.rules.Cost(c); err == nil && cost < 0 {
			err = core.ErrCost
		}
		if err != nil {
			return fail(http.StatusInternalServerError, err)
		}
	}
	asking = "store"
	if d, err = limiter.AllowN(r.Context(), user, action, cost); err != nil {
		return fail(http.StatusServiceUnavailable, err)
	}
	asking = ""
	outer := g.headers.write(h, limiter, &d)
	if (outer != nil && g.looks.Load() < closerLooks || twice.left.Load() > 0) && cost > 0 && !twice.said.Load() {
		g.charged(outer, h[headerRemaining], note{limiter: limiter, user: user, action: action})
	}
	return limiter, d, false, nil
}

func keyStatus(err error) int {
	if errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// A failing store is said again after so long, not per request.
const sayAgain = time.Minute

var start = time.Now()

// say logs what the server's owner should know: an error of a function each time,
// an empty pattern once, a failing store once a minute.
func (g *Gate[C]) say(ctx context.Context, f *Failure) {
	switch {
	case f.Status == http.StatusBadRequest:
	case errors.Is(f, keyfuncs.ErrNoRoute):
		if g.unrouted.CompareAndSwap(false, true) {
			slog.Default().Error(g.adapter+": a request cannot be limited", "error", f)
		}
	case f.Status == http.StatusServiceUnavailable:
		was, now := g.said.Load(), int64(time.Since(start))
		if ctx.Err() == nil && (was == 0 || now-was > int64(sayAgain)) && g.said.CompareAndSwap(was, now) {
			slog.Default().Error(g.adapter+": the store has no answer; requests are answered 503", "error", f)
		}
	default:
		slog.Default().Error(g.adapter+": a request cannot be limited", "error", f)
	}
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
