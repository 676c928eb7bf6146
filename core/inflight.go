package core

// InFlight: at most so many actions at the same time, the slots that a charge has taken, and who waits for one.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/notice"
)

const defaultSlotLease = time.Minute

// InFlight admits at most n actions at the same time. n is from 1 to 10,000. An admitted action
// takes a slot for each unit of its cost. [Limiter.Release] frees the slots when the action has
// ended:
//
//	streams, err := core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute))
//	d, err := streams.Allow(ctx, "alice", "stream")
//	if err == nil && d.Allowed {
//		defer streams.Release(context.WithoutCancel(ctx), d)
//	}
//
// A slot that is not released is free when its lease ends, a minute after the action began: see
// [Limit.Lease]. This happens if a process dies, but also if an action takes longer than the lease.
// Such an action needs [Limiter.Renew], or a longer lease.
//
// A [Limiter.Surcharge] takes no slot. A refusal by InFlight alone counts towards no ban.
//
// The algorithm is a counting semaphore with leases.
func InFlight(n int) Limit {
	return Limit{kind: machine.KindInFlight, max: n, period: defaultSlotLease, shape: inFlight{}}.derived()
}

// Lease sets the time after which a slot of [InFlight] is free if it is neither released nor
// renewed. d is from 1 ms to 365 days, in whole microseconds. For other kinds of limits see
// [Limit.Leased], by which a process takes units in advance.
func (l Limit) Lease(d time.Duration) Limit {
	l.mods |= modLease
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

// shortestLease is 0 if none of the limits is InFlight.
func shortestLease(limits []Limit) (lease time.Duration) {
	for i := range limits {
		if x := &limits[i]; x.rule.TakesSlots() && (lease == 0 || x.period < lease) {
			lease = x.period
		}
	}
	return lease
}

// takenSlots is what a record knows of the slots of its charge.
type takenSlots struct {
	waiters  *slotWaiters
	turn     chan struct{} // has one token: one call at a time asks the store
	released bool          // guarded by turn
	later    bool          // guarded by turn: a release has failed, and is tried again
	since    time.Duration // guarded by turn: no lease has begun later, since the process started

	lease    time.Duration // the shortest
	outlived *time.Timer   // warns at the end of the lease; nil: the slot is not watched
}

// started is about when the process has. To read the time since then is faster than the time of day.
var started = time.Now()

func newTakenSlots(waiters *slotWaiters, lease time.Duration) *takenSlots {
	s := &takenSlots{waiters: waiters, lease: lease, turn: make(chan struct{}, 1), since: time.Since(started)}
	s.turn <- struct{}{}
	return s
}

// watch has the log tell if the lease ends.
func (s *takenSlots) watch() {
	n := int64(1)
	if s.waiters != nil { // it is nil if a decorator has added the limit
		n = s.waiters.taken.Add(1)
	}
	if n <= watchFirst || n%watchEvery == 0 {
		s.outlived = time.AfterFunc(s.lease, warnOutlived)
	}
}

// Of the slots of a limiter the first so many are watched, and then one in so many: each costs a timer.
const watchFirst, watchEvery = 1000, 64

var outlived notice.Once

func warnOutlived() {
	if outlived.Due() {
		slog.Default().Warn("core: the lease of a slot of InFlight has ended, and the slot was neither released nor renewed, so another action may have it; call Release when the action has ended, and Renew or a longer Lease if it takes longer",
			"code", "slot-outlived")
	}
}

// slotWaiters are the callers of Wait who are woken when a slot of their user is released. A
// limiter with InFlight shares them with the limiters derived from it. In a limiter without
// InFlight they are nil.
type slotWaiters struct {
	mu     sync.Mutex
	byUser map[string][]slotWaiter

	taken atomic.Int64 // slots so far
}

// A slotWaiter is a caller who waits for a slot of an action.
type slotWaiter struct {
	action string
	freed  chan struct{} // has room for one token
}

func newSlotWaiters() *slotWaiters { return &slotWaiters{byUser: map[string][]slotWaiter{}} }

func (s *slotWaiters) watch(user string, w slotWaiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUser[user] = append(s.byUser[user], w)
}

func (s *slotWaiters) unwatch(user string, w slotWaiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byUser[user] = slices.DeleteFunc(s.byUser[user], func(o slotWaiter) bool { return o == w })
	if len(s.byUser[user]) == 0 {
		delete(s.byUser, user)
	}
}

// wake wakes those who may wait for a slot of the action, or with perUser of any of the user's. s may be nil.
func (s *slotWaiters) wake(user, action string, perUser bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.byUser[user] {
		if !perUser && w.action != action {
			continue
		}
		select {
		case w.freed <- struct{}{}:
		default: // it has a token
		}
	}
}
