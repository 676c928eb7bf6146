package core

// Refund and Settle, which give units back, and Release and Renew for the slots of InFlight.

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tailcut/tailcut/core/machine"
)

// Refundable makes a limiter whose charges [Limiter.Refund] and [Limiter.Settle] can change. Each
// of its decisions makes one more allocation.
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
// After a Refund the user has no more room than if the action had never happened: quota that time
// has given back already is not given again. So windows give back only units that they still count:
//   - A SlidingWindow or MovingWindow gives back units of the same microsecond, even if another
//     action was charged them.
//   - A FixedWindow, ElasticWindow or CalendarWindow that then counts nothing is as if it had never
//     opened.
//   - A bucket or funnel gives back at most what is still owed of this action, and less if more
//     than eight actions are refunded at about the same time. Rule.Amend in package machine has the
//     exact rule.
//
// These charges stay, because giving them back would give too much:
//   - all units of the action that opened a FixedWindow, while the window counts units of other
//     actions; a part can be given back, and after the other actions were given back also the rest
//   - a charge of a FixedWindow that has ended, or of a CalendarWindow whose period is over
//   - a charge of an ElasticWindow that is as old as its period
//   - a charge of a SlidingWindow with CountRefused that has max entries within its period
//   - a turn that [Limiter.Wait] reserved, while a later reservation depends on it
//   - a charge of a MovingWindow that has admitted more than 65,536 actions since then, which would
//     take too long to find
//
// A recorded refusal stays recorded. A bucket with Initial that the action has started stays
// started.
//
// If the state was lost after the charge, a bucket, funnel, ElasticWindow or CalendarWindow may
// give too much, but never more than the action's cost. A state is lost by [Limiter.Reset], a
// restart, a full store or a clock that stepped back.
//
// After [All], Refund of any of the limiters gives back the charges of all subjects, one after the
// other.
//
// After an error of the store the charge may or may not have been given back. Do not retry: a
// second Refund does nothing. But if ctx had ended, the store was not asked, and a Refund with
// another context gives the charge back.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	return l.settle(ctx, d, 0, func(r *Record) int64 { return r.Cost })
}

// RefundN is [Limiter.Refund] of n of the units that were charged. The remaining units cannot be
// given back later. If n is negative, the error is [ErrCost]. If n is more than was charged,
// RefundN returns an error too. After [All] it gives back n units of each subject.
func (l *Limiter) RefundN(ctx context.Context, d Decision, n int) error {
	for r := d.receipt; r != nil; r = r.next {
		if int64(n) > r.Cost {
			return fmt.Errorf("core: RefundN: %d units are more than the %d that were charged", n, r.Cost)
		}
	}
	return l.settle(ctx, d, n, func(*Record) int64 { return int64(n) })
}

// Settle replaces the estimate that a decision has charged with what the action has cost: the
// tokens of a language model, the rows of an export, the bytes of an upload.
//
//	d, err := tokens.AllowN(ctx, "alice", "chat", estimate)
//	...
//	err = tokens.Settle(ctx, d, used)
//
// If actual is less than the estimate, the difference is given back as by [Limiter.RefundN]. If it
// is more, the difference is charged now to all limits that the estimate was charged to, even if it
// does not fit or the user is banned. What does not fit is debt, and the user is refused until
// enough of it is paid off:
//   - A TokenBucket or Funnel pays off all of it, at its rate.
//   - A FixedWindow or CalendarWindow forgives the debt when it ends.
//   - For the other limits see "Costs known at the end" in the documentation of the package.
//
// A debt is at most one quota of a limit. More is forgiven. A MovingWindow never holds more than
// 70,000,000 units, and a bucket or funnel never more than 142 years. If more than eight actions
// are settled below their estimates at about the same time, a bucket or funnel may give back less
// than the difference.
//
// The limiter needs [Refundable]. A decision is settled or refunded once: a second call does
// nothing, unless ctx had ended before the first one asked the store. Settling a refusal does nothing. What is never settled stays at its estimate. An
// estimate of 0 cannot be settled: the error is [ErrNoReceipt], as for a decision without a
// receipt. If actual is negative, the error is [ErrCost]. After [All] each subject's charge is
// settled. The slots of [InFlight] stay taken.
//
// If ctx may end with the caller's request, pass [context.WithoutCancel] of it, because the cost
// must be charged all the same. If ctx had ended, the store was not asked. After an error of the
// store the decision may or may not have been settled. Do not retry then: a second call does nothing.
func (l *Limiter) Settle(ctx context.Context, d Decision, actual int) error {
	return l.settle(ctx, d, actual, func(r *Record) int64 { return r.Cost - int64(actual) })
}

// settle gives back units of each charge of a decision, once. If units returns a negative number,
// that many units are charged in addition. n is the caller's argument.
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

// Release frees the slots of [InFlight] limits, shadow limits included, that an allowed decision
// has taken. Charges of other limits stay: see [Limiter.Refund]. For a decision that has taken no
// slot, such as a refusal, Release does nothing.
//
// Most actions end because ctx does, so pass a context that outlives it, such as
// context.WithoutCancel(ctx), with a timeout.
//
//   - Release asks the store that made the decision. So after an outage a slot of Redis is freed in
//     Redis, and not in the second store of a [Fallback].
//   - A slot is freed once, even if Release is called again.
//   - After an error, Release is tried again in the background, at least once a second, until the
//     lease has ended. You may also call it again. At most 10,000 releases of a process are tried
//     again. Other slots are free when their leases end.
//   - Release never frees the slot of another action, even if the lease has ended and another
//     action has taken the slot. Redis tells slots apart by random numbers, and other stores by the
//     microsecond in which they were taken. So other stores have one exception: the slot is gone,
//     after a Reset for example, and the other action takes its slot in a microsecond that the
//     store cannot tell apart: the same one, after the clock stepped back, or the one 2^39
//     microseconds (6.4 days) later.
func (l *Limiter) Release(ctx context.Context, d Decision) error {
	return l.amendSlots(ctx, d, machine.VerbRelease)
}

// Renew makes the lease of a decision's slots begin anew, for an action that takes longer than a
// lease. If the lease has ended or the slot was released, the slot is not taken again, and the
// error is [ErrLeaseEnded]. With several InFlight limits, Renew renews those whose lease has not
// ended. After any other error, Renew may be tried again. For a decision that has taken no slot,
// Renew does nothing.
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
