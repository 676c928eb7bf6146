package core

// Record: what a charge has taken, so that it can be given back. A limiter keeps the record as the
// receipt of a decision.

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/internal/later"
	"github.com/tailcut/tailcut/core/machine"
)

// A Record is for authors of stores. It says what a store has decided about a charge. A store
// returns a record if [Terms].Receipt is set. [Charge.Commit] and [Charge.Answer] make it. If the
// store has charged the action, the limiter keeps the record, so that the charge can be amended. A
// store must not return the same record twice.
type Record struct {
	Charge                     // the charge that the store has got, which a decorator may have changed
	At       int64             // the instant of the decision, in microseconds on the store's clock
	Readings []machine.Reading // of each limit, after the decision
	By       Amender           // amends the charge; the store sets it to itself, if it can amend

	admitted bool // the store has allowed the charge and charged it

	// The limiter sets these.
	spent atomic.Bool // a Refund or Settle has begun
	slots *takenSlots // nil if the charge has taken no slot
	next  *Record     // the record of another subject of the decision
}

// record makes the record of a charge with that many limits. The caller fills in the readings.
func (c *Charge) record(d *Decision, limits int, now int64) (r *Record) {
	if limits == 1 { // in one allocation
		one := new(struct {
			Record
			readings [1]machine.Reading
		})
		r, one.Readings = &one.Record, one.readings[:]
	} else {
		r = &Record{Readings: make([]machine.Reading, limits)}
	}
	r.Charge, r.At, r.admitted = *c, now, d.Allowed && c.Mode != machine.ModePeek
	return r
}

// ErrNoReceipt is the error of Refund and Settle for an allowed decision without a receipt. For
// example, the limiter is not [Refundable], or the store cannot give back charges. A Peek, a
// Surcharge and a cost of 0 have no receipt either. If no store has answered ([SourceNone]), there
// is no error, because nothing was charged.
var ErrNoReceipt = errors.New("core: the decision has no receipt: the limiter has no Refundable, which With adds, or its store cannot refund")

// ErrLeaseEnded is the error of [Limiter.Renew] if the store does not have the action's slot any
// more, for example because the slot was released or its lease has ended. Another action may have
// the slot by now.
var ErrLeaseEnded = errors.New("core: the lease of the slot has ended, and another action may have it; renew sooner, or give InFlight a longer Lease")

// charged reports whether the charge was made to the i-th limit.
func (r *Record) charged(i int) bool {
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

// Amends reports whether an amendment may change what the charge has taken from the i-th limit. A
// release or renewal changes only InFlight, and a refund only the other kinds.
func (r *Record) Amends(i int, a machine.Amendment) bool {
	return r.charged(i) && r.Limits[i].rule.CanAmend(a) && r.Taken(i).Cost > 0
}

// Taken returns what the charge has taken from the i-th limit.
func (r *Record) Taken(i int) machine.Taken {
	return machine.Taken{At: r.At, Cost: r.Limits[i].rule.Takes(r.Cost), Reading: r.Readings[i]}
}

// Amend amends the entries at the instant now. There is one entry for each limit, in the order of
// the limits. If an entry is marked Dirty, the store must write its state, or delete the state if
// it has expired. The store returns done to the limiter, which reads it only after a renewal. Then
// done is false if a slot was gone from at least one enforced InFlight, for example because its
// lease had ended.
func (r *Record) Amend(entries []machine.Entry, now int64, a machine.Amendment) (done bool) {
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

// takeSlots notes the slots of a charge, if it has taken any.
func (r *Record) takeSlots(waiters *slotWaiters) {
	if r.amendsAny(machine.Amendment{Verb: machine.VerbRelease}) {
		if r.slots = newTakenSlots(waiters, shortestLease(r.Limits)); r.By != nil {
			r.slots.watch()
		}
	}
}

// amend has the store amend the charge. If there is nothing to amend, it does not ask the store.
func (r *Record) amend(ctx context.Context, a machine.Amendment) (done bool, err error) {
	if !r.amendsAny(a) {
		return true, nil
	}
	return r.By.Amend(ctx, r, a)
}

// amendsAny reports whether an amendment may change anything.
func (r *Record) amendsAny(a machine.Amendment) bool {
	for i := range r.Limits {
		if r.Amends(i, a) {
			return true
		}
	}
	return false
}

// giveBack undoes a charge whose action does not begin, even if ctx has ended.
func (r *Record) giveBack(ctx context.Context) {
	if r.By == nil { // the store cannot give back
		return
	}
	ctx = context.WithoutCancel(ctx)
	_, _ = r.amend(ctx, machine.Amendment{Verb: machine.VerbRefund, Units: r.Cost})
	_ = r.amendSlots(ctx, machine.VerbRelease)
}

// amendSlots releases or renews the slots of one subject.
func (r *Record) amendSlots(ctx context.Context, verb machine.Verb) error {
	switch {
	case r.slots == nil:
		return nil
	case r.By == nil:
		return ErrNoReceipt
	}
	select {
	case <-r.slots.turn:
	default:
		select {
		case <-r.slots.turn:
		case <-ctx.Done():
			if verb == machine.VerbRelease { // after the other call has ended
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
	if w := r.slots.outlived; w != nil { // no warning: the caller gets the error if it cannot be renewed
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
	r.slots.since = time.Since(started) // also if the lease in one of several limits has ended
	switch {
	case !done:
		return ErrLeaseEnded
	case r.slots.outlived != nil:
		r.slots.outlived.Reset(r.slots.lease)
	}
	return nil
}

// releaseLater tries again to release the slots, in the background, until the longest lease has
// ended. The leases began ago before now, or earlier.
func (r *Record) releaseLater(ctx context.Context, ago time.Duration) {
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
