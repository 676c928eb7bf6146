package memorystore

// A decision from the lock to the answer, and what else reads or removes states.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Take decides a charge in one atomic step. For a known key it allocates only if a trail
// grows, and for a receipt.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	sh, now, known := s.load(c.User, c.Action, c.Limits)
	defer s.unlock(sh)
	if c.Check(sh.states, now) && !known {
		if wait := s.makeRoom(&c, sh, now); wait > 0 {
			if c.Mode == machine.Peek {
				c.Commit(&d, sh.states, now) // a Status has the numbers of every limit
			}
			return full(&c, wait), nil
		}
	}
	c.Commit(&d, sh.states, now)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// Another limiter, or a smaller cost, might have room. The key is protected
		// nonetheless: to drop it would give the user a full quota.
		until = now + int64(d.RetryAfter/time.Microsecond)
	}
	for i := range sh.places {
		if sh.places[i].found {
			sh.save(i, c.Limits[i].Rule(), until)
		}
	}
	if !known && !s.saveNew(&c, sh, now, until) {
		return full(&c, longestWait), nil
	}
	d.Issue(s)
	return d, nil
}

// saveNew saves the states that have no key yet. It comes last: a known key that was expired has
// then been written, and is not removed for a new one. It returns false if there is no room for a
// bucket with Initial: one that is not kept does not fill.
func (s *Store) saveNew(c *core.Charge, sh *shard, now, until int64) bool {
	for i := range sh.places {
		switch p, l := &sh.places[i], &c.Limits[i]; {
		case p.found || !sh.states[i].Dirty:
		case p.shared || s.reserve(sh, p, now, false):
			s.insert(sh, p, now)
			sh.save(i, l.Rule(), until)
		case l.Rule().ForgetAfter > 0 && !l.IsShadow():
			return false
		}
	}
	return true
}

// Refund gives back units of a charge, in one atomic step.
func (s *Store) Refund(_ context.Context, r *core.Receipt, units int64) error {
	sh, now, _ := s.load(r.User, r.Action, r.Limits)
	defer s.unlock(sh)
	r.Give(sh.states, now, units)
	for i := range sh.places {
		switch p, st := &sh.places[i], &sh.states[i]; {
		case !p.found || !st.Dirty:
		case st.Exists:
			sh.save(i, r.Limits[i].Rule(), 0)
		default:
			s.remove(sh, p)
		}
	}
	return nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	sh, _, _ := s.load(user, action, limits)
	defer s.unlock(sh)
	for i := range sh.places {
		if p := &sh.places[i]; p.found {
			s.remove(sh, p)
		}
	}
	return nil
}

// A place is where the state of a limit is, if the store keeps it.
type place struct {
	key      hash
	at       int // the slot where it was found; it may have moved since
	found    bool
	shared   bool // the state is the one that users without a key share
	reserved bool // counted in Store.used, and not yet inserted
	dropped  hash // the key that is dropped for this one
}

// load locks the shard of a user, and fills in its places and states for the limits. It
// reads the clock under the lock, so that no state is from a later instant. known says whether
// the store keeps the states of all limits.
func (s *Store) load(user, action string, limits []core.Limit) (sh *shard, now int64, known bool) {
	u, a := s.hash(user), s.hash(action)
	sh = s.lock(u)
	n := len(limits)
	if cap(sh.places) < n {
		sh.places, sh.states = make([]place, n), make([]machine.State, n)
	}
	sh.places, sh.states = sh.places[:n], sh.states[:n]
	now, known = s.now(), true
	for i := range limits {
		sh.places[i] = place{key: key(u, a, &limits[i])}
		sh.find(i, limits[i].Rule(), now)
		known = known && sh.places[i].found
	}
	return sh, now, known
}

// unlock ends what load began.
func (s *Store) unlock(sh *shard) {
	for i := range sh.places {
		if sh.places[i].reserved {
			s.used.Add(-1)
		}
		sh.states[i] = machine.State{}
	}
	sh.mu.Unlock()
}

func (sh *shard) table(p *place) *table {
	if p.shared {
		return &sh.shared
	}
	return &sh.keys
}

// find looks for the i-th place's key, and fills in its state, a zero State.
func (sh *shard) find(i int, r *machine.Rule, now int64) {
	p := &sh.places[i]
	t := sh.table(p)
	if p.at, p.found = t.search(p.key); p.found {
		t.load(&t.slots[p.at], r, &sh.states[i], now)
	}
}

// save writes the i-th state if it is dirty. If its limit refuses, save protects the key until
// then.
func (sh *shard) save(i int, r *machine.Rule, until int64) {
	p, st := &sh.places[i], &sh.states[i]
	if !st.Dirty && st.Fits {
		return
	}
	t := sh.table(p)
	s := &t.slots[t.locate(p)]
	if st.Dirty {
		t.store(s, r, st)
	}
	if !st.Fits {
		s.protect(until)
	}
}

// locate returns where the key of a place is by now.
func (t *table) locate(p *place) int {
	if t.slots[p.at].key != p.key {
		p.at, _ = t.search(p.key)
	}
	return p.at
}

// insert makes a slot for a place.
func (s *Store) insert(sh *shard, p *place, now int64) {
	at, removed := sh.table(p).insert(p.key, now)
	p.at = at
	if p.reserved = false; !p.shared {
		s.used.Add(-removed)
	}
}

func (s *Store) remove(sh *shard, p *place) {
	sh.keys.remove(sh.keys.locate(p))
	s.used.Add(-1)
}
