package core

// Refunds: they give back what a decision has charged.

import (
	"context"
	"errors"
	"sync/atomic"

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

// A Receipt says what an allowed charge has taken. It is for authors of stores that can
// give it back.
type Receipt struct {
	User, Action string
	Limits       []Limit
	Cost         int64
	At           int64             // the instant of the charge, on the store's clock
	Readings     []machine.Reading // of each limit, after it

	spent atomic.Bool
	by    Refunder
}

// Issue makes the decision's receipt valid. A store that is a [Refunder] calls it on its
// answer to a charge with Receipt.
func (d *Decision) Issue(by Refunder) {
	if d.receipt != nil {
		d.receipt.by = by
	}
}

func newReceipt(c *Charge, readings []machine.Reading, now int64) *Receipt {
	return &Receipt{
		User: c.User, Action: c.Action, Limits: c.Limits, Cost: c.Cost,
		At: now, Readings: append([]machine.Reading(nil), readings...),
	}
}

// ErrNoReceipt is the error of Refund if the decision has no receipt: the limiter is not
// [Refundable], or the store cannot give back.
var ErrNoReceipt = errors.New("core: the decision has no receipt: the limiter has no Refundable, which With adds, or its store cannot refund")

// Refund gives back to all limits what the decision has charged, so that an action that
// failed costs nothing. The user then has no more room than if the action had never
// happened: quota that has come back with time is not given again. A decision is given back
// once. A second Refund does nothing, and neither does the Refund of a refusal.
//
// These charges stay, since giving them back would give too much:
//   - all units of the action that opened a FixedWindow, if others were charged since; a
//     part of them can be given back
//   - a charge of an ElasticWindow that is older than its period
//   - a charge of a full SlidingWindow with CountRefused
//   - a turn that [Limiter.Wait] reserved, while a later reservation depends on it
//   - a charge of a MovingWindow that admitted more than 65,536 since, which would take
//     too long to find
//
// A recorded refusal stays recorded. A bucket with Initial stays started by the action, and
// fills from then on.
//
// A bucket or funnel gives back at most what is still owed of that action. It remembers the
// last eight refunds that still matter. With more refunds, one may give back less.
//
// If the state was lost since the charge, by [Limiter.Reset], a restart, a full store or a
// clock that stepped back, a bucket, a funnel or an ElasticWindow may give too much, but
// never more than the action's cost.
//
// After an error the charge may not have been given back. Do not retry: a second Refund of
// the same decision does nothing.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	if d.receipt == nil {
		return l.RefundN(ctx, d, 0)
	}
	return l.RefundN(ctx, d, int(d.receipt.Cost))
}

// RefundN is [Limiter.Refund] of n units of the charge, 0 to all of them. The other units
// cannot be given back later.
func (l *Limiter) RefundN(ctx context.Context, d Decision, n int) error {
	if l == nil || l.store == nil {
		return errZeroLimiter
	}
	r := d.receipt
	shadowed := l.refundable && d.Reason == ReasonShadowed // without a receipt: Shadow(store) let it pass
	switch {
	case n < 0 || r != nil && int64(n) > r.Cost:
		return ErrCost
	case r == nil && (!d.Allowed || d.Source == SourceNone || shadowed):
		return nil
	case r == nil || r.by == nil:
		return ErrNoReceipt
	case ctx == nil:
		return errNoContext
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.spent.Swap(true) || n == 0 {
		return nil
	}
	return r.by.Refund(ctx, r, int64(n))
}

// Charged reports whether the charge has taken from the i-th limit.
func (r *Receipt) Charged(i int) bool {
	if l := &r.Limits[i]; l.kind == machine.KindBan {
		return false
	} else if !l.shadow {
		return true
	}
	for j := range r.Limits {
		if r.Limits[j].shadow && !r.Readings[j].Fits {
			return false
		}
	}
	return true
}

// Give gives back units to the states, one for each limit in their order, at the instant
// now. It sets Dirty in those to be written, and clears Exists in those to be deleted.
func (r *Receipt) Give(states []machine.State, now, units int64) {
	for i := range r.Limits {
		states[i].Dirty = false
		if r.Charged(i) {
			r.Limits[i].rule.Refund(&states[i], machine.Taken{At: r.At, Cost: r.Cost, Reading: r.Readings[i]}, now, units)
		}
	}
}
