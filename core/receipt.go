package core

// Receipt: what a charge has taken, so that it can be given back.

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/internal/later"
	"github.com/tailcut/tailcut/core/machine"
)

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
		r.slots.watch(r.Limits)
	}
}

// Receipt returns what the decision has charged, or nil if the charge asked for no receipt or was
// refused. It is for authors of stores.
func (d *Decision) Receipt() *Receipt { return d.receipt }

// ErrNoReceipt is the error of Refund and Settle if the decision has no receipt: the limiter is not
// [Refundable], or the store cannot give back.
var ErrNoReceipt = errors.New("core: the decision has no receipt: the limiter has no Refundable, which With adds, or its store cannot refund")

// ErrLeaseEnded is the error of [Limiter.Renew] if the lease has ended, or the slot was released.
// Another action may have the slot by now.
var ErrLeaseEnded = errors.New("core: the lease of the slot has ended, and another action may have it; renew sooner, or give InFlight a longer Lease")

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

// giveBack undoes a charge whose action does not begin, whatever has become of ctx.
func (r *Receipt) giveBack(ctx context.Context) {
	if r.by == nil { // the store cannot
		return
	}
	ctx = context.WithoutCancel(ctx)
	_, _ = r.amend(ctx, machine.Amendment{Verb: machine.VerbRefund, Units: r.Cost})
	_ = r.amendSlots(ctx, machine.VerbRelease)
}

// amendSlots amends the slots of one subject.
func (r *Receipt) amendSlots(ctx context.Context, verb machine.Verb) error {
	switch {
	case r.slots == nil:
		return nil
	case r.by == nil:
		return ErrNoReceipt
	case !r.concerned(machine.Amendment{Verb: verb}): // shadow limits that were not charged
		return nil
	}
	select {
	case <-r.slots.turn:
	default:
		select {
		case <-r.slots.turn:
		case <-ctx.Done():
			if verb == machine.VerbRelease { // as soon as the other call has ended
				r.releaseLater(context.WithoutCancel(ctx), 0)
			}
			return ctx.Err()
		}
	}
	defer func() {
		if verb == machine.VerbRelease && !r.slots.released && !r.slots.later { // also if the store panics
			r.slots.later = true
			r.releaseLater(context.WithoutCancel(ctx), time.Since(started)-r.slots.since)
		}
		r.slots.turn <- struct{}{}
	}()
	switch {
	case r.slots.released && verb == machine.VerbRelease:
		return nil
	case r.slots.released:
		return ErrLeaseEnded
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if w := r.slots.outlived; w != nil { // the caller cares, and gets the error if it cannot be renewed
		w.Stop()
	}
	done, err := r.amend(ctx, machine.Amendment{Verb: verb})
	switch {
	case err != nil:
		return err
	case verb == machine.VerbRelease:
		r.slots.released = true
		r.slots.waiters.wake(r.User, r.Action, slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.rule.PerUser && l.rule.TakesSlots() }))
		return nil
	}
	r.slots.since = time.Since(started) // also if one lease has ended: another may not have
	switch {
	case !done:
		return ErrLeaseEnded
	case r.slots.outlived != nil:
		r.slots.outlived.Reset(r.slots.lease)
	}
	return nil
}

// releaseLater tries again to release the slots, in the background, until the longest lease has ended. It has begun
// that long ago.
func (r *Receipt) releaseLater(ctx context.Context, ago time.Duration) {
	lease := time.Duration(0)
	for i := range r.Limits {
		if l := &r.Limits[i]; l.rule.TakesSlots() {
			lease = max(lease, l.period)
		}
	}
	later.Try(func() (bool, error) {
		err := r.amendSlots(ctx, machine.VerbRelease)
		return err == nil, err
	}).Again(lease - ago)
}
