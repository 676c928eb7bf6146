package core

// Refunds: they give back what a decision has charged.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// An Amender is for authors of stores that can amend a charge: refund units of it, or release or renew its
// slots of [InFlight]. A limiter with InFlight needs one.
type Amender interface {
	// Take is that of [Store]. [Limiter.Settle] charges by it what an action has cost above its estimate.
	Take(ctx context.Context, c Charge) (Decision, error)

	// Amend amends what a charge of this store has taken, in one atomic step: see [Receipt.Amend],
	// which also says what done is.
	Amend(ctx context.Context, r *Receipt, a machine.Amendment) (done bool, err error)
}

// A Receipt is for authors of stores. It says what an allowed charge has taken.
type Receipt struct {
	User, Action string
	Limits       []Limit
	Cost         int64
	At           int64             // the instant of the charge, on the store's clock
	Readings     []machine.Reading // of each limit, after it

	by    Amender
	spent atomic.Bool // by a refund
	slots *takenSlots // nil: it has taken none
	next  *Receipt    // of another subject of the decision
}

// Issue makes the decision's receipt valid. A store that is an [Amender] calls it on its
// answer to a charge with Receipt.
func (d *Decision) Issue(by Amender) {
	for r := d.receipt; r != nil; r = r.next {
		r.by = by
	}
}

// Receipt returns what the decision has charged, or nil if the charge asked for no receipt or was
// refused. It is for authors of stores.
func (d *Decision) Receipt() *Receipt { return d.receipt }

// ErrNoReceipt is the error of Refund and Settle if the decision has no receipt: the limiter is not
// [Refundable], or the store cannot give back.
var ErrNoReceipt = errors.New("core: the decision has no receipt: the limiter has no Refundable, which With adds, or its store cannot refund")

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
// A bucket or funnel gives back at most what is still owed of that action. Call the instant at which a debt
// will have drained its end. Let e be the end just after the charge, but no later than the end now, nor than
// that of any refund since the charge. The refund gives back the time that the units take at the rate, and at
// most that from now to e; the end now is then earlier by that. The end of this refund is this new end, and
// the ends of the other refunds since the charge become earlier by the same time. A refund does not matter
// any more if its end is not before that of a later one, or if the end of a later one is past, or when all
// that was charged before the last refund has drained. Eight refunds are remembered. Of nine, the two with
// the nearest ends become one, with the earlier end, so that a refund may give back less.
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

// settle gives back units of each charge of a decision, once, or if they are negative charges so many
// more. n is the caller's argument.
func (l *Limiter) settle(ctx context.Context, d Decision, n int, units func(*Receipt) int64) (err error) {
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
	case first == nil || first.by == nil:
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

// giveBack undoes a charge whose action does not begin, whatever has become of ctx.
func (r *Receipt) giveBack(ctx context.Context) {
	if r.by == nil { // the store cannot
		return
	}
	ctx = context.WithoutCancel(ctx)
	_, _ = r.amend(ctx, machine.Amendment{Verb: machine.VerbRefund, Units: r.Cost})
	_ = r.amendSlots(ctx, machine.VerbRelease)
}

// amend has the store amend the charge, unless that changes nothing.
func (r *Receipt) amend(ctx context.Context, a machine.Amendment) (done bool, err error) {
	if !r.concerned(a) {
		return true, nil
	}
	return r.by.Amend(ctx, r, a)
}

// concerned reports whether an amendment changes anything.
func (r *Receipt) concerned(a machine.Amendment) bool {
	for i := range r.Limits {
		if r.Amends(i, a) {
			return true
		}
	}
	return false
}

// charged reports whether the charge has taken from the i-th limit.
func (r *Receipt) charged(i int) bool {
	if l := &r.Limits[i]; l.rule.Ban != nil || l.rule.Failures {
		return false
	} else if !l.rule.Shadow {
		return true
	}
	for j := range r.Limits {
		if r.Limits[j].rule.Shadow && !r.Readings[j].Fits {
			return false
		}
	}
	return true
}

// Amends reports whether an amendment changes what the charge has taken from the i-th limit.
func (r *Receipt) Amends(i int, a machine.Amendment) bool {
	return r.charged(i) && r.Limits[i].rule.Concerns(a) && r.Taken(i).Cost > 0
}

// Taken is what the charge has taken from the i-th limit.
func (r *Receipt) Taken(i int) machine.Taken {
	return machine.Taken{At: r.At, Cost: r.Limits[i].rule.Takes(r.Cost), Reading: r.Readings[i]}
}

// Amend amends the entries, one for each limit in their order, at the instant now. It sets Dirty
// in those whose state is to be written, or deleted because it has expired. A store returns done as its own:
// of a renewal it says that no lease had ended, except those of shadow limits.
func (r *Receipt) Amend(entries []machine.Entry, now int64, a machine.Amendment) (done bool) {
	done = true
	for i := range r.Limits {
		e := &entries[i]
		e.Dirty = false
		if r.Amends(i, a) {
			r.Limits[i].rule.Amend(e, r.Taken(i), now, a)
			done = done && (e.Dirty || r.Limits[i].rule.Shadow)
		}
	}
	return done
}
