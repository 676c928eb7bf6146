package core

// Refunds: they give back what a decision has charged.

import (
	"context"
	"fmt"
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
// of the same microsecond, whichever action they are of.
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
// After an error the charge may not have been given back. Do not retry: a second Refund of
// the same decision does nothing.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	return l.settle(ctx, d, 0, func(r *Receipt) int64 { return r.Cost })
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
	return l.settle(ctx, d, n, func(*Receipt) int64 { return int64(n) })
}
