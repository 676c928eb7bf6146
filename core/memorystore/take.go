package memorystore

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A place is where the state of a limit is, if the store keeps it.
type place struct {
	table    *table
	key      hash
	at       int // the slot where it was found; it may have moved since
	found    bool
	reserved bool // counted in Store.used, not yet inserted
	shared   bool // there is no room: see overflow
}

// slot returns the slot of a place that was found.
func (p *place) slot() *slot {
	t := p.table
	if t.slots[p.at].key() != p.key {
		p.at, _ = search(p.key, t.slots, t.wide)
	}
	return &t.slots[p.at]
}

// Take decides a charge in one atomic step. For a known key it allocates only if a trail
// grows, and for a receipt.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	u, a := s.hash(c.User), s.hash(c.Action)
	sh := s.shard(u)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	states, places := sh.scratch(len(c.Limits))
	for i := range c.Limits {
		sh.find(&places[i], keyOf(u, a, &c.Limits[i]), c.Limits[i].Rule())
	}
	now, _ := s.now() // no state is from a later instant
	for i := range c.Limits {
		places[i].load(c.Limits[i].Rule(), &states[i], now)
	}
	if c.Check(states, now) {
		if wait := s.makeRoom(&c, sh, states, places, now); wait > 0 {
			if c.Mode == machine.Peek {
				c.Commit(states, now) // a Status has the numbers of every limit
			}
			return full(c, wait), nil
		}
	}
	d = c.Commit(states, now)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// Another limiter, or a smaller cost, might have room. The key is protected
		// nonetheless: to evict it would give the user a full quota.
		until = now + int64(d.RetryAfter/time.Microsecond)
	}
	for i := range places {
		switch p, r := &places[i], c.Limits[i].Rule(); {
		case p.found:
			p.save(r, &states[i], until)
			states[i].Dirty = false
		case p.shared && states[i].Dirty:
			states[i].Dirty = false
			sh.keepShared(&c.Limits[i], &states[i], now)
		}
	}
	// New keys come last: the keys that were just written have not expired, so that no new
	// key takes their slots.
	for i := range places {
		switch r := c.Limits[i].Rule(); {
		case !states[i].Dirty:
		case s.insert(sh, places, i, now):
			places[i].save(r, &states[i], until)
		case r.ForgetAfter > 0 && !c.Limits[i].IsShadow(): // a bucket that is not kept does not fill
			return full(c, longestWait), nil
		}
	}
	d.Issue(s)
	return d, nil
}

// find fills in p, a zero place, for a key, and unpacks its slot.
func (sh *shard) find(p *place, h hash, r *machine.Rule) {
	t := sh.table(r)
	p.table, p.key = t, h
	p.at, p.found = search(h, t.slots, t.wide)
}

// load fills in st, a zero State.
func (p *place) load(r *machine.Rule, st *machine.State, now int64) {
	if p.found {
		p.table.load(&p.table.slots[p.at], r, st, now)
	}
}

// save writes a state if it is dirty. If its limit refuses, it protects the key until then.
func (p *place) save(r *machine.Rule, st *machine.State, until int64) {
	if !st.Dirty && st.Fits {
		return
	}
	s := p.slot()
	if st.Dirty {
		p.table.store(s, r, st)
	}
	if !st.Fits {
		s.protect(until)
	}
}

// required reports whether the charge needs a place for its i-th limit to pass. A rehearsed
// limit does not, nor does a ban policy without a refusal to record. They are left out if
// the store is full.
func required(c *core.Charge, i int) bool {
	l := &c.Limits[i]
	if l.Rule().Kind == machine.KindBan {
		return c.Ban > 0
	}
	return !l.IsShadow()
}

// Refund gives back units of a charge, in one atomic step.
func (s *Store) Refund(_ context.Context, r *core.Receipt, units int64) error {
	u, a := s.hash(r.User), s.hash(r.Action)
	sh := s.shard(u)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	states, places := sh.scratch(len(r.Limits))
	for i := range r.Limits {
		sh.find(&places[i], keyOf(u, a, &r.Limits[i]), r.Limits[i].Rule())
	}
	now, _ := s.now() // no state is from a later instant
	for i := range r.Limits {
		places[i].load(r.Limits[i].Rule(), &states[i], now)
	}
	r.Give(states, now, units)
	for i := range places {
		switch p := &places[i]; {
		case !p.found:
		case states[i].Dirty && !states[i].Exists:
			s.forget(p)
		default:
			p.save(r.Limits[i].Rule(), &states[i], 0)
		}
	}
	return nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	u, a := s.hash(user), s.hash(action)
	sh := s.shard(u)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range limits {
		p := place{table: sh.table(limits[i].Rule()), key: keyOf(u, a, &limits[i])}
		if p.at, p.found = search(p.key, p.table.slots, p.table.wide); p.found {
			s.forget(&p)
		}
	}
	return nil
}

func (s *Store) forget(p *place) {
	p.slot() // p.at is where the key is now
	p.table.remove(p.at)
	s.used.Add(-1)
}
