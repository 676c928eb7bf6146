package core

// Refund and Settle, which give units back, and Release and Renew for the slots of InFlight.

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tailcut/tailcut/core/machine"
)

// Refundable makes a limiter whose decisions can be given back with [Limiter.Refund]. Each
// decision then makes one more allocation.
//
//	posts, err := posts.With(core.Refundable{})
type Refundable struct{}

func (Refundable) extend(l *Limiter) error {
	l.refundable = true
	return nil
}

// Refund gives back to all limits but InFlight what the decision has charged, so that an action that
// failed costs nothing. [Limiter.Release] frees the slots of InFlight. The user then has no more room
// than if the action had never happened: quota that has come back with time is not given again. A
// decision is given back once. A second Refund does nothing, and neither does the Refund of a refusal.
//
// These charges stay, since giving them back would give too much:
//   - all units of the action that opened a FixedWindow, while more than these are counted; a
//     part of them can be given back, and all once the others have been
//   - a charge of a FixedWindow that has ended, or of a CalendarWindow whose period is over
//   - a charge of an ElasticWindow that is as old as its period
//   - a charge of a SlidingWindow with CountRefused that has max entries within its period
//   - a turn that [Limiter.Wait] reserved, while a later reservation depends on it
//   - a charge of a MovingWindow that admitted more than 65,536 since, which would take
//     too long to find
//
// Other windows give back as many of the units as they still count: a SlidingWindow or MovingWindow those
// of the same microsecond, whichever action they are of. A FixedWindow, ElasticWindow or CalendarWindow that counts
// nothing any more is as if it had never opened.
//
// A recorded refusal stays recorded. A bucket with Initial stays started by the action, and
// fills from then on.
//
// A bucket or funnel gives back at most what is still owed of that action, and less if more than eight are
// refunded at about the same time. The exact rule is in package machine, at Rule.Amend.
//
// If the state was lost since the charge, by [Limiter.Reset], a restart, a full store or a
// clock that stepped back, a bucket, a funnel, an ElasticWindow or a CalendarWindow may give too much, but
// never more than the action's cost.
//
// A decision by [All] gives back the charges of all its subjects, one after the other. Any of their
// limiters serves.
//
// After an error of the store the charge may not have been given back. Do not retry: a second Refund of
// the same decision does nothing. If ctx had ended, the store was not asked, and a retry with another context
// gives back.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	return l.settle(ctx, d, 0, func(r *Record) int64 { return r.Cost })
}

// RefundN is [Limiter.Refund] of n units of the charge, 0 to all of them. The other units
// cannot be given back later. A negative n is [ErrCost], and more units than were charged are an error
// too. Of a decision by [All] it is n units of each subject's charge.
func (l *Limiter) RefundN(ctx context.Context, d Decision, n int) error {
	for r := d.receipt; r != nil; r = r.next {
		if int64(n) > r.Cost {
			return fmt.Errorf("core: RefundN: %d units are more than the %d that were charged", n, r.Cost)
		}
	}
	return l.settle(ctx, d, n, func(*Record) int64 { return int64(n) })
}

// Settle replaces the estimate that a decision has charged with what the action has cost: the tokens
// of a language model, the rows of an export, the bytes of an upload.
//
//	d, err := tokens.AllowN(ctx, "alice", "chat", estimate)
//	...
//	err = tokens.Settle(ctx, d, used)
//
// If actual is less than the estimate, the difference is given back as by [Limiter.RefundN]. If it is
// more, the difference is charged now, to every limit that the estimate was charged to, whether or
// not it fits, and whether or not the user is banned. What does not fit is debt. The user is refused
// until enough of it is paid. A TokenBucket or Funnel has all of it paid off, at its rate. A FixedWindow
// or CalendarWindow counts what was used in it, and forgives the debt when it ends. The package's
// documentation compares all limits, under "Costs known at the end".
//
// Of a decision by [All] it settles each subject's charge. The slots of [InFlight] stay as they are.
// A debt is at most one quota of a limit; more is forgiven. A MovingWindow never holds more than
// 70,000,000 units, and a bucket or funnel never more than 142 years. If more than eight actions are
// settled below their estimates at about the same time, a bucket or funnel may give back less than
// the difference: see [Limiter.Refund].
//
// The limiter needs [Refundable]. A decision is settled or refunded once; a second call does
// nothing, and neither does settling a refusal. What is never settled stays at its estimate. An
// estimate of 0 cannot be settled: the error is [ErrNoReceipt], as for a decision without a
// receipt. A negative actual is [ErrCost].
//
// What was used was used: if ctx may end with the caller's request, pass
// [context.WithoutCancel] of it. After an error of the store the decision may or may not have been settled. Do
// not retry: a second call does nothing. If ctx had ended, the store was not asked.
func (l *Limiter) Settle(ctx context.Context, d Decision, actual int) error {
	return l.settle(ctx, d, actual, func(r *Record) int64 { return r.Cost - int64(actual) })
}

// settle gives back units of each charge of a decision, once, or if they are negative charges so many
// more. n is the caller's argument.
func (l *Limiter) settle(ctx context.Context, d Decision, n int, units func(*Record) int64) (err error) {
	if l == nil || l.store == nil {
		return errZeroLimiter
	}
	first := d.receipt
	shadowed := l.refundable && d.Reason == ReasonShadowed // without a receipt: Shadow(store) let it pass
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

// owe charges units to the limits that a refund would give back to, in the store that issued it.
func (r *Record) owe(ctx context.Context, units int64) error {
	limits := make([]Limit, 0, len(r.Limits))
	for i := range r.Limits {
		if r.Amends(i, machine.Amendment{Verb: machine.VerbRefund}) {
			limits = append(limits, r.Limits[i])
		}
	}
	if len(limits) == 0 { // all are InFlight
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

// Release frees the slots that an allowed decision has taken of [InFlight] limits, shadow ones included.
// What it has taken of other limits stays charged: see [Limiter.Refund]. Release asks the store that
// made the decision, so that after an outage a slot of Redis is freed in Redis and not in the second
// store of a [Fallback].
//
// A slot is freed once, whatever is called and however often. After an error, Release is tried again in
// the background, at least once a second, until the lease has ended; you may also call it again. At most 10,000
// releases of the process wait to be tried again. The slots of others are free when their leases end.
//
// Release never frees the slot of another action, even if the lease has ended meanwhile and another action has
// taken its place. Redis tells slots apart by random numbers. Other stores tell them apart by the microsecond
// in which they were taken, so there is one exception: the slot is gone, after a Reset for example, and the
// clock then steps back to exactly that microsecond, or is exactly 2^39 microseconds later, 6.4 days. Release
// does nothing for a decision that has taken no slot, such as a refusal.
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
