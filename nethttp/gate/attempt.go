package gate

// This file has the attempt: what a request asks for, the decision, and what its client is told.

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// An attempt is an action that a request asks for.
type attempt struct {
	adapter string
	asking  string // what Failure.Error names, if this fails now
	subject        // the first subject that is asked
	further []subject
	cost    int

	policies [2]*policy // of the limiters that usually decide, and with a picked limiter, or nil

	lease    time.Duration // the shortest of the subjects' leases, or 0 without InFlight
	decision core.Decision // zero if there is none; its Subject is an index of the subjects that were asked
	failure  *Failure      // why there is no decision, or nil
}

// A subject is a user and an action, and the limiter that decides about them.
type subject struct {
	limiter      *core.Limiter
	user, action string
	index        int // among the subjects of the middleware
}

func (a *attempt) subjects() []subject { return append([]subject{a.subject}, a.further...) }

// bound returns the subject that binds.
func (a *attempt) bound() *subject {
	if n := a.decision.Subject; n > 0 && n <= len(a.further) { // otherwise a store that is not ours has set it
		return &a.further[n-1]
	}
	return &a.subject
}

// share sets d to the decision for Deny and the handler. d.Subject counts among all subjects of the
// middleware. a.decision.Subject counts only among the subjects that were asked, and an optional
// subject without a user is not asked.
func (a *attempt) share(d *core.Decision) {
	*d = a.decision
	if a.failure == nil {
		d.Subject = a.bound().index
	}
}

// binding returns the limit that binds, or nil if it is not known.
func (a *attempt) binding() *core.Limit {
	for _, made := range a.policies {
		if made == nil || len(made.limits) == 0 {
			continue
		}
		if i := slices.Index(made.limiters, a.bound().limiter); i >= 0 {
			return &made.limits[made.bound(i, a.decision.Binding)]
		}
	}
	return nil
}

// policy returns the policy of the subjects that are asked. It makes a new one if an optional
// subject is not asked.
func (a *attempt) policy() *policy {
	for _, made := range a.policies {
		if made != nil && len(made.limiters) == 1+len(a.further) && made.limiters[0] == a.limiter {
			return made
		}
	}
	var limiters []*core.Limiter
	for _, s := range a.subjects() {
		limiters = append(limiters, s.limiter)
	}
	return newPolicy(limiters)
}

// key reports whether the result of a key function is a key. If not, it records the failure.
func (a *attempt) key(key string, err error) bool {
	return err == nil && key != "" || a.keyless(err)
}

func (a *attempt) keyless(err error) bool {
	err = cmp.Or(err, keyfuncs.ErrNoKey)
	return a.fail(statusOf(err), err)
}

// fail records why there is no decision. It returns false, for callers that stop then.
func (a *attempt) fail(status int, err error) bool {
	a.decision = core.Decision{}
	a.failure = &Failure{Status: status, Err: err, adapter: a.adapter, asking: a.asking}
	return false
}

// caught is deferred, and records a panic as a failure.
func (a *attempt) caught() {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		a.fail(http.StatusInternalServerError, panicked(v))
	}
}

// charge charges the cost to all subjects. The argument wait is the longest time to wait for their
// turn.
//
// If a request enters one Limit inside another, it may have slots already. charge does not take
// these slots again, and puts them into reused, for endSlots. Allow always takes slots: for Allow,
// reused is nil.
func (a *attempt) charge(ctx context.Context, wait time.Duration, reused *[]*slot) {
	a.asking = "store"
	a.lease = a.limiter.Lease()
	var err error
	if wait == 0 && a.lease == 0 && a.further == nil {
		a.decision, err = a.limiter.AllowN(ctx, a.user, a.action, a.cost)
	} else {
		a.decision, err = a.chargeAll(ctx, wait, reused)
	}
	switch {
	case err == nil, errors.Is(err, core.ErrRefused):
	case errors.Is(err, core.ErrCost):
		a.asking = "cost"
		a.fail(http.StatusInternalServerError, err)
	case errors.Is(err, core.ErrConfig): // core.New did not make the limiter
		a.asking = "limiter"
		a.fail(http.StatusInternalServerError, err)
	default:
		a.fail(http.StatusServiceUnavailable, err)
	}
}

// chargeAll is charge for several subjects, for slots, and with a wait.
func (a *attempt) chargeAll(ctx context.Context, wait time.Duration, reused *[]*slot) (core.Decision, error) {
	subjects := make([]core.Subject, 0, 1+len(a.further))
	for _, s := range a.subjects() {
		subjects = append(subjects, s.limiter.For(s.user, s.action).Cost(a.cost))
		if lease := s.limiter.Lease(); a.lease == 0 || lease != 0 && lease < a.lease {
			a.lease = lease
		}
	}
	if reused != nil && a.lease != 0 {
		*reused = reuseSlots(ctx, subjects)
	}
	if wait == 0 {
		return core.All(ctx, subjects...)
	}
	return core.WaitAll(ctx, wait, subjects...)
}

// keepSlot begins to keep the slot that the attempt has taken. The argument failed logs that the
// slot could not be renewed or released.
func (a *attempt) keepSlot(ctx context.Context, failed *rarely) *slot {
	s := &slot{adapter: a.adapter, limiter: a.limiter, decision: a.decision, lease: a.lease, failed: failed}
	limits := a.policy().limits
	for i := range limits {
		if l := &limits[i]; l.TakesSlots() {
			s.longest = max(s.longest, l.Period())
		}
	}
	return s.keep(ctx)
}

// tell sets t to what the client is told of the decision. It differs from the decision in three
// cases:
//
//   - If the store has failed, nothing remains of the first limit, and the client may retry soon.
//   - If InFlight binds, the client may retry soon. A client that waits for the end of a lease
//     would waste slots that are released before.
//   - If spreads is set, a wait is longer by whole seconds: see spread.
func (a *attempt) tell(t *told, spreads bool) {
	t.Decision, t.bound = a.decision, a.binding()
	if a.further != nil {
		t.whose = a.bound().action
	}
	switch {
	case a.failure != nil && a.failure.down():
		const retry = retrySeconds * time.Second
		t.Limit, t.RetryAfter, t.ResetAfter = a.limiter.Limits()[0].Quota(), retry, retry
	case a.lease != 0 && (t.Reason == core.ReasonInFlight || t.Allowed && t.bound.TakesSlots()):
		t.ResetAfter = soon
		if !t.Allowed {
			t.RetryAfter = soon
		}
	case spreads && !t.Allowed && t.RetryAfter != core.Never:
		t.RetryAfter += min(spread(a.user, t.RetryAfter), core.Never-1-t.RetryAfter)
		t.ResetAfter = max(t.ResetAfter, t.RetryAfter)
	}
}
