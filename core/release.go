package core

// Release, Renew and Within: what an action does with the slots of InFlight that it has taken.

import (
	"context"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// Release frees the slots that an allowed decision has taken of [InFlight] limits, shadow ones included.
// What it has taken of other limits stays charged: see [Limiter.Refund]. Release asks the store that
// made the decision, so that after an outage a slot of Redis is freed in Redis and not in the second
// store of a [Fallback].
//
// A slot is freed once, whatever is called and however often. After an error the slot may still be
// taken, and Release may be tried again. If it is not, the slot is free when its lease ends. Release
// never frees the slot of another action, even if the lease has ended meanwhile and another action has
// taken its place. Slots are told apart by the microsecond in which they were taken, so there is one
// exception: the slot is gone, after a Reset for example, and the clock then steps back to exactly that
// microsecond, or is exactly 2^39 microseconds later, 6.4 days. Release does nothing for a decision that
// has taken no slot, such as a refusal.
//
// Most actions end because ctx does, so pass a context that outlives it, such as
// context.WithoutCancel(ctx), with a timeout.
func (l *Limiter) Release(ctx context.Context, d Decision) error {
	return l.amendSlots(ctx, d, machine.VerbRelease)
}

// Renew has the lease of the slots of a decision begin anew, for an action that takes longer than a
// lease. If the lease has ended or the slot was released, the error is [ErrLeaseEnded], and the slot is
// not taken again. With several InFlight limits, Renew renews those whose lease has not ended. Renew may be
// tried again after any other error. It does nothing for a decision that has taken no slot.
func (l *Limiter) Renew(ctx context.Context, d Decision) error {
	return l.amendSlots(ctx, d, machine.VerbRenew)
}

func (l *Limiter) amendSlots(ctx context.Context, d Decision, verb machine.Verb) (err error) {
	switch {
	case l == nil || l.store == nil:
		return errZeroLimiter
	case ctx == nil:
		return errNoContext
	}
	for r := d.receipt; r != nil; r = r.next {
		if failed := r.amendSlots(ctx, verb); failed != nil && (err == nil || err == ErrLeaseEnded) {
			err = failed
		}
	}
	return err
}

// Within returns the subject for an action that is a part of the one that d, a decision of l, has admitted,
// such as a request that a middleware meets twice. It takes no slot of [InFlight] that d has taken for the
// same user and action, so it is neither refused by its own slots nor waits for them. If it costs more, it
// takes the difference. All other limits charge it. Release d after the action has ended.
func (s Subject) Within(l *Limiter, d Decision) Subject {
	if !s.limiter.SharesStore(l) {
		return s
	}
	for r := d.receipt; r != nil; r = r.next {
		for i := range r.Limits {
			if r.User == s.user && r.Limits[i].rule.TakesSlots() && r.charged(i) {
				s.exempt(&r.Limits[i], r.Action, r.Taken(i).Cost)
			}
		}
	}
	return s
}

// exempt gives a subject a limiter that knows of slots that its action has. That limiter has other queues: a
// caller that waits there for these slots may be ahead.
func (s *Subject) exempt(taken *Limit, action string, slots int64) {
	i := slices.IndexFunc(s.limiter.limits, func(l Limit) bool { return l.sharesState(taken) })
	if i < 0 || slots == 0 || !taken.rule.PerUser && action != s.action {
		return
	}
	l := *s.limiter
	l.limits, l.waitQueues = slices.Clone(l.limits), newWaitQueues()
	l.limits[i].rule.Held += slots
	l.makeTerms()
	s.limiter = &l
}
