package memorystore

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// few limits are decided on the stack.
const few = 4

// A place is where the state of a limit is, if it is kept.
type place struct {
	key      hash
	at       int // where it was found; it may have moved since
	found    bool
	reserved bool // counted, not yet inserted
	shared   bool // there is no room: see overflow
}

// slot returns the slot of a place that was found.
func (sh *shard) slot(p *place) *slot {
	if sh.slots[p.at].key() != p.key {
		p.at, _ = sh.search(p.key)
	}
	return &sh.slots[p.at]
}

// Take decides a charge in one atomic step. It does not allocate for keys that are
// known, but for a queue that grows, or for more than four limits.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	u := s.hash(c.User)
	sh := s.shard(u)
	if c.Short() { // and comes by a decorator: see TakeOne
		l := &c.Limits[0]
		if v := s.takeOne(sh, s.keyOf(u, c.Action, l), l.Rule(), c.Cost); v.Outcome != machine.Undecided {
			c.Decide(&d, v)
			return d, nil
		}
	}
	var fewStates [few]machine.State
	var fewPlaces [few]place
	states, places := fewStates[:], fewPlaces[:]
	if len(c.Limits) > few {
		states, places = make([]machine.State, len(c.Limits)), make([]place, len(c.Limits))
	}
	states, places = states[:len(c.Limits)], places[:len(c.Limits)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	for i := range c.Limits {
		sh.enter(&places[i], s.keyOf(u, c.Action, &c.Limits[i]), c.Limits[i].Rule(), &states[i], now)
	}
	if c.Check(states, now) {
		if wait := s.makeRoom(&c, sh, states, places, now); wait > 0 {
			return full(c, wait), nil
		}
	}
	c.Commit(&d, states, now)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// A refused user is not to be forgiven by another limiter's numbers, or at a
		// smaller cost.
		until = now + int64(d.RetryAfter/time.Microsecond)
	}
	for i := range places {
		switch p, r := &places[i], c.Limits[i].Rule(); {
		case p.found:
			sh.settle(p, r, &states[i], until)
			states[i].Dirty = false
		case p.shared && states[i].Dirty:
			states[i].Dirty = false
			sh.keepShared(&c.Limits[i], &states[i], now)
		}
	}
	// New keys come last: what was just written is not expired, and not displaced.
	for i := range places {
		if states[i].Dirty && s.insert(sh, places, i, now) {
			sh.settle(&places[i], c.Limits[i].Rule(), &states[i], until)
		}
	}
	d.Issue(s)
	return d, nil
}

// enter fills in the zero place and the zero state of a key.
func (sh *shard) enter(p *place, h hash, r *machine.Rule, st *machine.State, now int64) {
	p.key = h
	if p.at, p.found = sh.search(h); p.found {
		sh.load(&sh.slots[p.at], r, st, now)
	}
}

// settle writes what has become of a state, and protects it until then if it refuses.
func (sh *shard) settle(p *place, r *machine.Rule, st *machine.State, until int64) {
	s := sh.slot(p)
	if st.Dirty {
		sh.store(s, r, st)
	}
	if !st.Fits {
		s.refuse(until)
	}
}

// needed reports whether the charge cannot pass without a place for its i-th limit. A
// rehearsed limit, and a ban policy without a refusal to record, cannot refuse. They are
// left out if the store is full.
func needed(c *core.Charge, i int) bool {
	l := &c.Limits[i]
	if l.Rule().Kind == machine.KindBan {
		return c.Ban > 0
	}
	return !l.Shadowed()
}

// Refund gives back what a charge has taken, in one atomic step.
func (s *Store) Refund(_ context.Context, r *core.Receipt, units int64) error {
	u := s.hash(r.User)
	sh := s.shard(u)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now()
	states, places := make([]machine.State, len(r.Limits)), make([]place, len(r.Limits))
	for i := range r.Limits {
		sh.enter(&places[i], s.keyOf(u, r.Action, &r.Limits[i]), r.Limits[i].Rule(), &states[i], now)
	}
	r.Give(states, now, units)
	for i := range places {
		switch p := &places[i]; {
		case !p.found:
		case states[i].Dirty && !states[i].Exists:
			s.forget(sh, p)
		default:
			sh.settle(p, r.Limits[i].Rule(), &states[i], 0)
		}
	}
	return nil
}

// Reset forgets the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	u := s.hash(user)
	sh := s.shard(u)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range limits {
		p := place{key: s.keyOf(u, action, &limits[i])}
		if p.at, p.found = sh.search(p.key); p.found {
			s.forget(sh, &p)
		}
	}
	return nil
}

func (s *Store) forget(sh *shard, p *place) {
	sh.slot(p)
	sh.remove(p.at)
	s.used.Add(-1)
}
