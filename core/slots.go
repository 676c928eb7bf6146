package core

// The slots of InFlight that a charge has taken, and the callers that wait for a slot.

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/notice"
)

// takenSlots describes the slots that a charge has taken.
type takenSlots struct {
	waiters  *slotWaiters
	turn     chan struct{} // a mutex: the call that holds its one token may ask the store
	released bool          // guarded by turn
	later    bool          // guarded by turn: a release has failed, and is tried again in the background
	since    time.Duration // guarded by turn: when the leases began at the latest, since started

	lease    time.Duration // the shortest lease
	outlived *time.Timer   // warns when the lease ends; nil if the slots are not watched
}

// started is an instant at which the process was starting. To read the time since then is faster
// than to read the time of day.
var started = time.Now()

func newTakenSlots(waiters *slotWaiters, lease time.Duration) *takenSlots {
	s := &takenSlots{waiters: waiters, lease: lease, turn: make(chan struct{}, 1), since: time.Since(started)}
	s.turn <- struct{}{}
	return s
}

// watch starts a timer that warns if the lease ends. It does so only for some slots.
func (s *takenSlots) watch() {
	n := int64(1)
	if s.waiters != nil { // nil if a decorator has added the limit
		n = s.waiters.taken.Add(1)
	}
	if n <= watchFirst || n%watchEvery == 0 {
		s.outlived = time.AfterFunc(s.lease, warnOutlived)
	}
}

// A limiter watches the slots of its first watchFirst charges, and then those of one charge in
// watchEvery, because each watched charge needs a timer.
const watchFirst, watchEvery = 1000, 64

var outlived notice.Once

func warnOutlived() {
	if outlived.Due() {
		slog.Default().Warn("core: the lease of a slot of InFlight has ended, and the slot was neither released nor renewed, so another action may have it; call Release when the action has ended, and Renew or a longer Lease if it takes longer",
			"code", "slot-outlived")
	}
}

// slotWaiters are the callers of Wait that are woken when a slot of their user is released. A
// limiter with InFlight shares them with the limiters that are derived from it. A limiter without
// InFlight has none.
type slotWaiters struct {
	mu     sync.Mutex
	byUser map[string][]slotWaiter

	taken atomic.Int64 // how many charges have taken slots so far
}

// A slotWaiter is a caller that waits for a slot of an action.
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

// wake wakes the callers that wait for a slot of the action, or of any of the user's actions if
// perUser is set. s may be nil.
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
		default: // it has been woken already
		}
	}
}
