package core

// Refund and Settle give units back. Release and Renew are for the slots of InFlight.

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tailcut/tailcut/core/machine"
)

// Refundable is an option of [Limiter.With]. [Limiter.Refund] and [Limiter.Settle] can change the
// charges of the new limiter. Each charge then allocates memory for a receipt.
//
//	posts, err := posts.With(core.Refundable{})
type Refundable struct{}

func (Refundable) extend(l *Limiter) error {
	l.refundable = true
	return nil
}

// Refund gives back what the decision has charged, so that an action that failed costs nothing.
// Slots of InFlight stay taken until [Limiter.Release]. A decision is given back once: a second
// Refund does nothing. The Refund of a refusal does nothing either.
//
// As a rule, a Refund leaves the user no more room than if the action had never happened. Quota
// that has already come back with time is not given back again. So windows give back only units
// that they still count:
//   - A SlidingWindow or MovingWindow gives back units that were charged in the same microsecond,
//     even if another call has charged them.
//   - If a FixedWindow, ElasticWindow or CalendarWindow then counts nothing, it is as if it had
//     never opened.
//   - A bucket or funnel gives back at most the units of this action that have not refilled or
//     drained yet. It may give back less if more than eight actions are refunded at about the same
//     time. Rule.Amend in package machine has the exact rule.
//
// Some charges stay, most of them because giving them back would give too much. They include:
//   - All units of the action that opened a FixedWindow, while the window counts units of other
//     actions. RefundN can give back a part of these units. If the other actions are refunded
//     first, Refund gives back all units of the first action.
//   - A charge of a FixedWindow that has ended, or of a CalendarWindow whose period is over.
//   - A charge of an ElasticWindow that is as old as its period.
//   - A charge of a SlidingWindow with CountRefused, while the window has max entries.
//   - A turn that [Limiter.Wait] has reserved, while a later reservation depends on it.
//   - A charge of a MovingWindow that has charged more than 65,536 units since then. It would take
//     too long to find.
//
// A recorded refusal stays recorded. A bucket with Initial that the action has started stays
// started.
//
// A store may lose a state after the charge, for example by [Limiter.Reset], a restart, a full
// store or a clock that stepped back. Then a bucket, funnel, ElasticWindow or CalendarWindow may
// give back too much, but never more than the action's cost.
//
// After [All], Refund of any of the limiters gives back the charges of all subjects, one after the
// other.
//
// After an error of the store the charge may or may not have been given back. Do not retry: a
// second Refund does nothing. There is one exception: if ctx had ended before the call, the store
// was not asked, and a Refund with another context gives the charge back.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	return l.settle(ctx, d, 0, func(r *Record) int64 { return r.Cost })
}

// RefundN gives back n of the units that were charged, as [Limiter.Refund] does. The remaining
// units cannot be given back later. If n is negative, the error is [ErrCost]. If n is more than was
// charged, RefundN returns an error and gives nothing back. After [All] it gives back n units of
// each subject.
func (l *Limiter) RefundN(ctx context.Context, d Decision, n int) error {
	for r := d.receipt; r != nil; r = r.next {
		if int64(n) > r.Cost {
			return fmt.Errorf("core: RefundN: %d units are more than the %d that were charged", n, r.Cost)
		}
	}
	return l.settle(ctx, d, n, func(*Record) int64 { return int64(n) })
}

// Settle replaces the estimate that a decision has charged by what the action has cost in the end:
// the tokens of a language model, for example, or the bytes of an upload.
//
//	d, err := tokens.AllowN(ctx, "alice", "chat", estimate)
//	...
//	err = tokens.Settle(ctx, d, used)
//
// If actual is less than the estimate, Settle gives back the difference, as [Limiter.RefundN] does.
// If actual is more, Settle charges the difference now, to all limits that the estimate was charged
// to, except InFlight. It does so even if the difference does not fit or the user is banned. The
// units that do not fit are a debt, and the user is refused until enough of it is paid off:
//   - A TokenBucket or Funnel pays off all of it, at its rate.
//   - A FixedWindow or CalendarWindow forgives the debt when it ends.
//   - For the other limits see "Costs known at the end" in the documentation of the package.
//
// The debt of a limit is at most one quota. Settle does not charge more. A MovingWindow never holds
// more than 70,000,000 units, and the debt of a bucket or funnel is never longer than 142 years. If
// more than eight actions are settled below their estimates at about the same time, a bucket or
// funnel may give back less than the difference.
//
// The limiter needs [Refundable]. A decision is settled or refunded once. If ctx has ended before
// the call, Settle returns the error of ctx and may be called again. Otherwise a second call does
// nothing. Settling a refusal does nothing. An action that is never settled costs its estimate. An
// estimate of 0 cannot be settled: the error is [ErrNoReceipt], as for a decision without a
// receipt. If actual is negative, the error is [ErrCost]. After [All] the charge of each subject is
// settled to actual. The slots of [InFlight] stay taken.
//
// If ctx may end with the caller's request, pass [context.WithoutCancel] of it, because the cost
// must be charged all the same. After an error of the store the decision may or may not have been
// settled. Do not retry then: a second call does nothing.
func (l *Limiter) Settle(ctx context.Context, d Decision, actual int) error {
	return l.settle(ctx, d, actual, func(r *Record) int64 { return r.Cost - int64(actual) })
}

// settle gives back units of each charge of a decision, once. If units returns a negative number,
// settle charges that many units in addition. n is the number that was passed to
// Refund or Settle. If n is negative, the error is ErrCost.
func (l *Limiter) settle(ctx context.Context, d Decision, n int, units func(*Record) int64) (err error) {
	if l == nil || l.store == nil {
		return errZeroLimiter
	}
	first := d.receipt
	shadowed := l.refundable && d.Reason == ReasonShadowed // such a decision of the store Shadow may have no receipt
	switch {
	case n < 0:
		return ErrCost
	case first == nil && (!d.Allowed || d.Source == SourceNone || shadowed):
		return nil
	case first == nil || first.By == nil:
		return ErrNoReceipt
	case ctx == nil:
		return errNoContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if first.spent.Swap(true) {
		return nil
	}
	for r := first; r != nil; r = r.next {
		var failed error
		if n := units(r); n > 0 {
			_, failed = r.amend(ctx, machine.Amendment{Verb: machine.VerbRefund, Units: n})
		} else if n < 0 {
			failed = r.owe(ctx, -n)
		}
		err = cmp.Or(err, failed)
	}
	return err
}

var errOwe = errors.New("core: Settle: the store could not charge the difference; it is full")

// owe charges units, in the store that decided the charge, to those limits that a refund would
// change.
func (r *Record) owe(ctx context.Context, units int64) error {
	limits := make([]Limit, 0, len(r.Limits))
	for i := range r.Limits {
		if r.Amends(i, machine.Amendment{Verb: machine.VerbRefund}) {
			limits = append(limits, r.Limits[i])
		}
	}
	if len(limits) == 0 { // such as InFlight only
		return nil
	}
	t := &Terms{Limits: limits, Ask: machine.Ask{Mode: machine.ModeOwe}}
	for left := units; left > 0; {
		n := portion(left, units-left, portionedUntil(limits))
		d, _, err := r.By.Take(ctx, Charge{r.User, r.Action, n, t})
		switch {
		case err != nil:
			return err
		case !d.Allowed:
			return errOwe
		}
		left -= n
	}
	return nil
}

// Release frees the slots of [InFlight] limits, shadow limits included, that an allowed decision
// has taken. Charges of other limits stay: see [Limiter.Refund]. If the decision has taken no slot,
// for example because it is a refusal, Release does nothing.
//
// An action often ends because ctx does. So pass a context that does not end with the action, such
// as context.WithoutCancel(ctx), with a timeout.
//
//   - Release asks the store that made the decision. So after an outage a slot of Redis is freed in
//     Redis, and not in the second store of a [Fallback].
//   - A slot is freed once, even if Release is called again.
//   - After an error of the store or of ctx, Release is tried again in the background, about once a
//     second, until the lease has ended. The caller may also call Release again. A process tries at
//     most 10,000 releases again at the same time. The slots of further releases become free when
//     their leases end.
//   - Release does not free the slot of another action, even if the lease has ended and another
//     action has taken the slot.
//
// The last point has one exception. Redis tells slots apart by random numbers, but a memorystore
// tells them apart by the microsecond in which they were taken. If the action's slot is gone, for
// example after a Reset, a memorystore may free a slot of another action instead. This can happen
// if the other slot was taken in the same microsecond, for example because the clock stepped back.
// It can also happen if the other slot was taken a multiple of 2^39 microseconds (6.4 days) later.
func (l *Limiter) Release(ctx context.Context, d Decision) error {
	return l.amendSlots(ctx, d, machine.VerbRelease)
}

// Renew makes the lease of a decision's slots begin anew. Call it for an action that takes longer
// than a lease. If the lease has ended or the slot was released, the slot is not taken again, and
// the error is [ErrLeaseEnded]. If only the lease of a shadow limit has ended, there is no error.
// If there are several InFlight limits, Renew renews the leases that have not ended. After an error
// of the store or of ctx, Renew may be tried again. If the decision has taken no slot, Renew does
// nothing.
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
