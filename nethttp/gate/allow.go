package gate

// This file has what an adapter offers besides its middleware: Allow, Decision, Settle and From.

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Allow implements the function Allow of an adapter, with a nil cfg, and the method Allow of its
// Config, with that Config: see nethttp.Allow. Allow decides an action for a handler, and sets the
// headers. If the action does not pass, Allow answers the request as [Gate.Serve] does, and calls
// the Framework's Finish. If cfg.Headers is unknown, the answer is 500.
//
// Behind a Limit, a nil cfg means the Config of the innermost Limit. The Headers are those of that
// Limit, even if cfg is not nil. If the response has headers of a limit already, Allow sets headers
// of the same formats, so that the headers of one response agree.
func Allow[C any](f Framework[C], c C, cfg *Config[C], limiter *core.Limiter, user, action string, cost int) core.Decision {
	r, h := f.Request(c), f.Header(c)
	var limit *Config[C] // that of the innermost Limit that has left a mark
	if m := around[C](r.Context()); m != nil {
		limit = m.config
	}
	cfg = cmp.Or(cfg, limit, &Config[C]{}) // the Headers are chosen below
	outer := look(h)
	known, _ := allowed.get(limiter, (*known).alone)
	a := attempt{adapter: f.Name(), subject: subject{limiter: limiter, user: user, action: action}, cost: cost}
	a.policies[0] = known.policy
	if a.allow(r, cfg.Headers); a.failure != nil {
		a.failure.log(r.Context(), &handlers)
	}
	var t told
	a.tell(&t, cfg.SpreadRetryAfter)
	noteTwice(&known.twice, &outer, &a, &t, allowedTwice)
	write(h, cmp.Or(outer.in, sets[cmp.Or(limit, cfg).Headers]), nil, &outer, &a, &t)
	if !a.decision.Allowed {
		handlers.noteNothing(&a)
		err := answer(f, cfg, c, &a, &t)
		f.Finish(c, err, func() error { return ignored(f.Name(), action) })
	}
	return a.decision
}

// allowed has the limiters that Allow was given.
var allowed knowns

func (k *known) alone() error {
	k.policy = newPolicy([]*core.Limiter{k.of})
	return nil
}

// saidIgnored remembers that ignored has logged.
var saidIgnored notice.Once

// ignored returns the error of a write after Allow has answered. It logs the first such write.
func ignored(adapter, action string) error {
	if saidIgnored.Due() {
		slog.Default().Warn(adapter+": a handler has written a response after Allow had answered the request; it is not sent, but what else the handler does is done: return if the decision is not Allowed",
			"code", "refusal-ignored", "action", action)
	}
	return errAnswered
}

var errAnswered = errors.New("gate: Allow has answered the request; return if its decision is not Allowed")

// allow decides. hs is the Headers of the Config.
func (a *attempt) allow(r *http.Request, hs Headers) {
	defer a.caught()
	if err := hs.check(); err != nil {
		a.asking = "headers"
		a.fail(http.StatusInternalServerError, err)
		return
	}
	a.asking = "user"
	if !a.key(a.user, nil) {
		return
	}
	a.asking = "action"
	if a.key(a.action, nil) {
		a.charge(r.Context(), 0, nil)
	}
}

// Decision implements the function Decision of an adapter, whose requests are of type C: see
// nethttp.Decision.
func Decision[C any](r *http.Request) (core.Decision, bool) {
	for m := around[C](r.Context()); m != nil; m = around[C](m.Context) {
		if m.config.Keep && m.decision.Allowed {
			return m.decision, true
		}
	}
	return core.Decision{}, false
}

// Settle implements the function Settle of an adapter: see nethttp.Settle.
func Settle[C any](f Framework[C], c C, actual int) error {
	r := f.Request(c)
	ctx, err, found := context.WithoutCancel(r.Context()), error(nil), false
	for m := around[C](r.Context()); m != nil; m = around[C](m.Context) {
		if m.config.Settle {
			err, found = errors.Join(err, m.limiter.Settle(ctx, m.decision, actual)), true
		}
	}
	if !found {
		return errors.New(f.Name() + ": Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate")
	}
	return err
}

// From implements the function From of an adapter: it makes a key function of the framework. It
// panics if key is nil, or if key is keyfuncs.Route, which does not know the framework's routes.
func From[C any](f Framework[C], key keyfuncs.Func) func(C) (string, error) {
	switch {
	case key == nil:
		panic(f.Name() + ": From: the key function is nil; give one of package keyfuncs")
	case same(key, keyfuncs.Route):
		panic(f.Name() + ": keyfuncs.Route knows only the routes of net/http; use " + f.Name() + ".Route")
	}
	return func(c C) (string, error) { return key(f.Request(c)) }
}
