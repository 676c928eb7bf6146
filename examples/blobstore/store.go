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

// Amend, Dated and Joins are optional: these lines make the compiler check them.
var (
	_ core.Amender = (*Store)(nil)
	_ core.Dated   = (*Store)(nil)
	_ core.Joiner  = (*Store)(nil)
)

// New makes a store on a clock.
func New(clock func() time.Time) *Store {
	return &Store{clock: clock, blobs: map[key]blob{}}
}

// Joins reports true: a transaction locks the keys of all users.
func (s *Store) Joins(string, string) bool { return true }

// Take loads the states of all limits, has core decide, and saves the states that changed. A charge of
// several subjects has the limits of each.
func (s *Store) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.sweep(now)
	var entries []machine.Entry
	for _, p := range c.Parts() {
		loaded, err := s.load(p.User, p.Action, p.Limits, now)
		if err != nil {
			return core.Decision{}, nil, err
		}
		entries = append(entries, loaded...)
	}
	var d core.Decision
	r := c.Commit(&d, entries, now, c.Check(entries, now))
	for _, p := range c.Parts() {
		s.save(p.User, p.Action, p.Limits, entries, now)
		entries = entries[len(p.Limits):]
	}
	if r != nil {
		r.By = s
	}
	return d, r, nil
}

// Amend refunds a charge, or releases or renews its slots. A store without it refuses refunds, and
// limiters with InFlight.
func (s *Store) Amend(_ context.Context, r *core.Record, a machine.Amendment) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	entries, err := s.load(r.User, r.Action, r.Limits, now)
	if err != nil {
		return false, err
	}
	done = r.Amend(entries, now, a)
	s.save(r.User, r.Action, r.Limits, entries, now)
	return done, nil
}

// Dated says that the store knows the time of day, which a CalendarWindow needs: its instants count
// from 1970. A store whose instants do not sets Entry.Epoch.
func (s *Store) Dated() {}

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

func (s *Store) load(user, action string, limits []core.Limit, now int64) ([]machine.Entry, error) {
	entries := make([]machine.Entry, len(limits))
	for i := range limits {
		b := s.blobs[keyOf(user, action, &limits[i])]
		if b.expires <= now {
			continue
		}
		var err error
		if entries[i].State, err = limits[i].Rule().Unmarshal(b.state); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// save saves the states that have changed. The entries begin with those of the limits.
func (s *Store) save(user, action string, limits []core.Limit, entries []machine.Entry, now int64) {
	for i := range limits {
		e := &entries[i]
		if !e.Dirty {
			continue
		}
		k := keyOf(user, action, &limits[i])
		if e.Expires <= now {
			delete(s.blobs, k)
			continue
		}
		s.blobs[k] = blob{limits[i].Rule().Marshal(e.State), e.Expires}
	}
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
