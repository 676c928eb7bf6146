package core

// InFlight: at most so many actions at the same time, and what frees their slots.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/internal/later"
	"github.com/tailcut/tailcut/core/machine"
)

const defaultSlotLease = time.Minute

// InFlight admits at most n actions at the same time. n from 1 to 10,000. An action that is
// admitted takes a slot, one for each unit of its cost, and [Limiter.Release] frees it when the action has
// ended:
//
//	streams, err := core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute))
//	d, err := streams.Allow(ctx, "alice", "stream")
//	if err == nil && d.Allowed {
//		defer streams.Release(context.WithoutCancel(ctx), d)
//	}
//
// If a process dies, its slots are free when their leases end, a minute after the action began: see
// [Limit.Lease]. A slot whose lease has ended is free though its action goes on, so an action that may
// take longer needs [Limiter.Renew], or a longer lease.
//
// A [Limiter.Surcharge] takes no slot. A refusal by InFlight alone counts towards no ban.
//
// The algorithm is a counting semaphore with leases.
func InFlight(n int) Limit {
	return Limit{kind: machine.KindInFlight, max: n, period: defaultSlotLease, shape: inFlight{}}.derived()
}

// Lease sets for how long a slot of [InFlight] is taken at most if it is neither released nor renewed. d
// from 1 ms to 365 days, in whole microseconds. [Limit.Leased] is for the other limits: it lets a
// process take units in advance.
func (l Limit) Lease(d time.Duration) Limit {
	l.mods |= modSlotLease
	if l.kind == machine.KindInFlight {
		l.period = d
	}
	return l.derived()
}

// inFlight is the shape of InFlight: a window whose period is the lease.
type inFlight struct{ window }

func (inFlight) text(l *Limit) string { return fmt.Sprintf("%s(%d)", l.kind.Constructor(), l.max) }

func (inFlight) validate(l *Limit, bad badValue) error {
	return cmp.Or(validateMax(l, bad), validatePeriod("lease", l.period, bad))
}

// takeSlots reports whether one of the limits is InFlight.
func takeSlots(limits []Limit) bool {
	return slices.ContainsFunc(limits, func(l Limit) bool { return l.rule.TakesSlots() })
}

// Lease is the shortest lease of the limiter's InFlight limits, shadow ones included, or 0 if it has none.
// A slot that is renewed more often than that stays taken.
func (l *Limiter) Lease() time.Duration {
	if l == nil {
		return 0
	}
	return shortestLease(l.limits)
}

func shortestLease(limits []Limit) time.Duration {
	lease := time.Duration(0)
	for i := range limits {
		if x := &limits[i]; x.rule.TakesSlots() && (lease == 0 || x.period < lease) {
			lease = x.period
		}
	}
	return lease
}

// ErrLeaseEnded is the error of [Limiter.Renew] if the lease has ended, or the slot was released.
// Another action may have the slot by now.
var ErrLeaseEnded = errors.New("core: the lease of the slot has ended, and another action may have it; renew sooner, or give InFlight a longer Lease")

// takenSlots is what a receipt knows of the slots of its charge.
type takenSlots struct {
	waiters  *slotWaiters
	turn     chan struct{} // has one token: one call at a time asks the store
	released bool          // guarded by turn
	later    bool          // guarded by turn: a release has failed, and is tried again
	since    time.Duration // guarded by turn: no lease has begun later, since the process started

	lease    time.Duration
	outlived *time.Timer // warns at the end of the lease; nil: the slot is not watched
}

// started is about when the process has. To read the time since then is faster than the time of day.
var started = time.Now()

func newTakenSlots(waiters *slotWaiters, limits []Limit) *takenSlots {
	s := &takenSlots{waiters: waiters, turn: make(chan struct{}, 1), since: time.Since(started)}
	s.turn <- struct{}{}
	if n := waiters.count(); n <= watchFirst || n%watchEvery == 0 {
		s.lease = shortestLease(limits)
		s.outlived = time.AfterFunc(s.lease, warnOutlived)
	}
	return s
}

// Of the slots of a limiter the first so many are watched, and then one in so many: each costs a timer.
const watchFirst, watchEvery = 1000, 64

// count counts the slots taken, and is 1 for no limiter.
func (s *slotWaiters) count() int64 {
	if s == nil {
		return 1
	}
	return s.taken.Add(1)
}

// outlived is whether the log says that a lease has ended.
var outlived atomic.Bool

func warnOutlived() {
	if !outlived.Swap(true) {
		slog.Default().Warn("core: the lease of a slot of InFlight has ended, and the slot was neither released nor renewed, so another action may have it; call Release when the action has ended, and Renew or a longer Lease if it takes longer",
			"code", "slot-outlived")
	}
}

// slotWaiters are the callers of Wait that are woken when a slot of their user is released. A limiter
// with InFlight shares them with those derived from it. Any other limiter has nil.
type slotWaiters struct {
	mu     sync.Mutex
	byUser map[string][]*waiter

	taken atomic.Int64 // slots so far
}

func newSlotWaiters() *slotWaiters { return &slotWaiters{byUser: map[string][]*waiter{}} }

func (s *slotWaiters) watch(user string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUser[user] = append(s.byUser[user], w)
}

func (s *slotWaiters) unwatch(user string, w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUser[user] = slices.DeleteFunc(s.byUser[user], func(o *waiter) bool { return o == w })
	if len(s.byUser[user]) == 0 {
		delete(s.byUser, user)
	}
}

// wake wakes those who may wait for the slots of a receipt. s may be nil.
func (s *slotWaiters) wake(r *Receipt) {
	if s == nil {
		return
	}
	perUser := slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.rule.PerUser && l.rule.TakesSlots() })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.byUser[r.User] {
		if !perUser && !slices.ContainsFunc(w.subjects, func(o Subject) bool { return o.user == r.User && o.action == r.Action }) {
			continue
		}
		select {
		case w.freed <- struct{}{}:
		default: // it has a token
		}
	}
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
				s.hold(&r.Limits[i], r.Action, r.Taken(i).Cost)
			}
		}
	}
	return s
}

// hold gives a subject a limiter that knows of slots that its action has. That limiter has other queues: a
// caller that waits there for these slots may be ahead.
func (s *Subject) hold(taken *Limit, action string, slots int64) {
	i := slices.IndexFunc(s.limiter.limits, func(l Limit) bool { return l.sharesState(taken) })
	if i < 0 || slots == 0 || !taken.rule.PerUser && action != s.action {
		return
	}
	l := *s.limiter
	l.limits, l.waitQueues = slices.Clone(l.limits), &waitQueues{byKey: map[any]*waitQueue{}}
	l.limits[i].rule.Held += slots
	l.makeTerms()
	s.limiter = &l
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

// releaseLater tries again to release the slots, in the background, until the longest lease has ended.
func (r *Receipt) releaseLater(ctx context.Context) {
	lease := time.Duration(0)
	for i := range r.Limits {
		if l := &r.Limits[i]; l.rule.TakesSlots() {
			lease = max(lease, l.period)
		}
	}
	later.Try(func() (bool, error) {
		err := r.amendSlots(ctx, machine.VerbRelease)
		return err == nil, err
	}).Again(lease - time.Since(started) + r.slots.since)
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
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		if verb == machine.VerbRelease && !r.slots.released && !r.slots.later { // also if the store panics
			r.slots.later = true
			r.releaseLater(context.WithoutCancel(ctx))
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
		r.slots.waiters.wake(r)
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
