package core

// The slots of InFlight that a charge has taken, and the callers of Wait that wait for one.

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// takenSlots is what a receipt knows of the slots of its charge.
type takenSlots struct {
	waiters  *slotWaiters
	turn     chan struct{} // has one token: one call at a time asks the store
	released bool          // guarded by turn

	lease    time.Duration
	outlived *time.Timer // warns at the end of the lease; nil: the slot is not watched
}

func newTakenSlots(waiters *slotWaiters, limits []Limit) *takenSlots {
	s := &takenSlots{waiters: waiters, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	if n := waiters.count(); n <= watchFirst || n%watchEvery == 0 {
		s.lease = shortestLease(limits)
		s.outlived = time.AfterFunc(s.lease, warnOutlived)
	}
	return s
}

// Of the slots of a limiter the first so many are watched, and then one in so many: each costs a timer.
const watchFirst, watchEvery = 1000, 64

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
	byUser map[string][]slotWaiter

	taken atomic.Int64 // slots so far
}

// A slotWaiter is a caller who waits for a slot of an action.
type slotWaiter struct {
	action string
	freed  chan struct{} // has room for one token
}

func newSlotWaiters() *slotWaiters { return &slotWaiters{byUser: map[string][]slotWaiter{}} }

// count counts the slots taken, and is 1 for no limiter.
func (s *slotWaiters) count() int64 {
	if s == nil {
		return 1
	}
	return s.taken.Add(1)
}

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
