// Package blobstore is an example of a store over a database, which keeps serialized states.
// The database here is a map from keys to bytes with an expiry. A real one needs a
// transaction that locks the keys of one user, and a clock.
//
//	store := blobstore.New(time.Now)
//	replies, err := core.New(store, core.SlidingWindow(5, time.Minute))
//
// All arithmetic is in core and core/machine. The test runs core/storetest.
package blobstore

import (
	"context"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A Store keeps every state as bytes.
type Store struct {
	clock func() time.Time

	mu    sync.Mutex // in place of the database's transaction
	blobs map[key]blob
}

type key struct{ user, action, limit string }

type blob struct {
	state   []byte
	expires int64 // microseconds since 1970
}

// Refund is optional: this line makes the compiler check it.
var _ core.Refunder = (*Store)(nil)

// New makes a store on a clock.
func New(clock func() time.Time) *Store {
	return &Store{clock: clock, blobs: map[key]blob{}}
}

// Take loads the states of all limits, has core decide, and saves the states that changed.
func (s *Store) Take(_ context.Context, c core.Charge) (core.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.sweep(now)
	states, err := s.load(c.User, c.Action, c.Limits, now)
	if err != nil {
		return core.Decision{}, err
	}
	c.Check(states, now)
	var d core.Decision
	c.Commit(&d, states, now)
	if err := s.save(c.User, c.Action, c.Limits, states); err != nil {
		return core.Decision{}, err
	}
	d.Issue(s)
	return d, nil
}

// Refund gives back what a charge has taken. A store without it refuses refunds.
func (s *Store) Refund(_ context.Context, r *core.Receipt, units int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	states, err := s.load(r.User, r.Action, r.Limits, now)
	if err != nil {
		return err
	}
	r.Give(states, now, units)
	return s.save(r.User, r.Action, r.Limits, states)
}

// Reset deletes the states of the limits.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range limits {
		delete(s.blobs, keyOf(user, action, &limits[i]))
	}
	return nil
}

func keyOf(user, action string, l *core.Limit) key {
	if l.IsPerUser() {
		action = ""
	}
	return key{user, action, l.Identity()}
}

func (s *Store) load(user, action string, limits []core.Limit, now int64) ([]machine.State, error) {
	states := make([]machine.State, len(limits))
	for i := range limits {
		b := s.blobs[keyOf(user, action, &limits[i])]
		if b.expires <= now {
			continue
		}
		if err := states[i].UnmarshalBinary(b.state); err != nil {
			return nil, err
		}
	}
	return states, nil
}

func (s *Store) save(user, action string, limits []core.Limit, states []machine.State) error {
	for i := range limits {
		if !states[i].Dirty {
			continue
		}
		k := keyOf(user, action, &limits[i])
		if !states[i].Exists {
			delete(s.blobs, k)
			continue
		}
		b, err := states[i].MarshalBinary()
		if err != nil {
			return err
		}
		s.blobs[k] = blob{b, limits[i].Rule().Expires(&states[i])}
	}
	return nil
}

// sweep looks at three blobs, which range picks at random, and deletes those that have
// expired. So most blobs in the map are live. A database may do this by itself.
func (s *Store) sweep(now int64) {
	looked := 0
	for k, b := range s.blobs {
		if b.expires <= now {
			delete(s.blobs, k)
		}
		if looked++; looked == 3 {
			return
		}
	}
}
