package gate

// What the first requests of a middleware may show: that its keys are wrong, or its place.

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A suspicion is that a subject has the wrong keys or that a middleware is in the wrong place. It is
// confirmed if the first requests, so many, show it without exception. seen counts them, and stays if the
// suspicion is confirmed or cleared.
type suspicion struct{ seen atomic.Int32 }

const (
	manyGuests  = 1000 // requests without the user of an optional subject
	manyKeyless = 100  // requests without a user, or with a user and without an action
	manyPorts   = 5    // users that are an address with a port
	manySame    = 5    // requests that show the same limit twice
	manyRight   = 1000 // successes of attempts that may fail
)

// note counts a request that shows it, and reports, once, that it is confirmed.
func (s *suspicion) note(many int32) bool { return s.count(many) == many }

// count is note, and returns how many requests have shown it, or 0 if that is settled.
func (s *suspicion) count(many int32) int32 {
	if s.open(many) {
		return s.seen.Add(1)
	}
	return 0
}

// clear is for a request that shows that it is wrong.
func (s *suspicion) clear(many int32) {
	if s.open(many) {
		s.seen.Store(many)
	}
}

func (s *suspicion) open(many int32) bool { return s.seen.Load() < many }

// actions counts how many actions a subject has, until it has many or so many requests have shown that it has
// not. It keeps hashes, and one action, since a client may choose long paths.
type actions struct {
	over     atomic.Bool
	latest   atomic.Pointer[string] // the latest new action: most subjects have one
	mu       sync.Mutex
	seen     map[uint64]struct{}
	requests int
}

const (
	manyActions   = 1000
	enoughActions = 100_000 // requests
)

var actionSeed = maphash.MakeSeed()

// knows reports whether an action need not be noted.
func (a *actions) knows(action string) bool {
	latest := a.latest.Load()
	return latest != nil && *latest == action || a.over.Load()
}

// note notes an action, and reports true once: if there are many.
func (a *actions) note(action string) bool {
	h := maphash.String(actionSeed, action)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.seen[h]; !known {
		if a.seen == nil {
			a.seen = map[uint64]struct{}{}
		}
		a.seen[h] = struct{}{}
		latest := action
		a.latest.Store(&latest)
	}
	a.requests++
	many := len(a.seen) > manyActions
	if many || a.requests >= enoughActions {
		a.seen = nil
		return !a.over.Swap(true) && many
	}
	return false
}
