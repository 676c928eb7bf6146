package memorystore

// What the store does under its locks: it finds the states of a charge, and writes them back.

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A shard has all states of some users, so that one lock is enough for several limits.
type shard struct {
	mu     sync.Mutex
	keys   table
	shared table // the states that users without a key share: see shared.go
	step   step  // of the present charge; kept here, it needs no allocation
}

// A step is a charge that is being decided. The step of several subjects is that of the first
// one's shard.
type step struct {
	now    int64
	known  bool            // the store keeps the states of all limits
	places []place         // one for each limit; empty between charges
	states []machine.State // those of the places
	own    *shard
	locked []*shard // the others that are locked
}

// A place is where the state of a limit is, if the store keeps it.
type place struct {
	limit    *core.Limit
	subject  int // as in core.Decision
	key      hash
	in       *shard
	at       int // the slot where it was found; it may have moved since
	found    bool
	shared   bool // the state is the one that users without a key share
	reserved bool // counted in Store.used, and not yet inserted
	dropped  hash // the key that is dropped for this one
}

// A hash identifies a user, an action, or a user's state. The seed is random, so that a client
// cannot search for two users that share a state.
type hash uint64

func (s *Store) hash(name string) hash { return hash(maphash.String(s.seed, name)) }

// Odd multipliers tell the parts of a key apart.
const (
	oddAction = 0x9e3779b97f4a7c15
	oddLimit  = 0xc2b2ae3d27d4eb4f
)

// key is the hash of a limit's state.
func key(user, action hash, l *core.Limit) hash {
	if l.IsPerUser() {
		action = 0
	}
	return max(user+oddAction*action+oddLimit*hash(l.Rule().Hash), 1) // 0 is no key
}

// index is which shard a user has. It uses the low bits of the hash, and a table the high ones.
func (s *Store) index(user hash) int { return int(user & hash(len(s.shards)-1)) }

// begin locks the shards of a charge's subjects, and finds their states. It reads the clock under
// the locks, so that no state is from a later instant.
func (s *Store) begin(c *core.Charge) *step {
	user := s.hash(c.User)
	st := &s.shards[s.index(user)].step
	if c.And == nil {
		st.own.mu.Lock()
	} else {
		s.lockAll(st, c)
	}
	st.now, c.Epoch = s.now(dated(c))
	st.known = true
	s.find(st, c, 0, user)
	for i := range c.And {
		s.find(st, &c.And[i], 1+i, s.hash(c.And[i].User))
	}
	return st
}

// lockAll locks the shards of several subjects, each once and in the store's order, so that no two
// charges wait for each other.
func (s *Store) lockAll(st *step, c *core.Charge) {
	all := append(make([]int, 0, 8), s.index(s.hash(c.User)))
	for i := range c.And {
		all = append(all, s.index(s.hash(c.And[i].User)))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for _, i := range all {
		s.shards[i].mu.Lock()
	}
	for _, i := range all {
		if sh := &s.shards[i]; sh != st.own {
			st.locked = append(st.locked, sh)
		}
	}
}

// tryLock locks one more shard, unless another charge holds it.
func (st *step) tryLock(sh *shard) bool {
	if sh == st.own || slices.Contains(st.locked, sh) {
		return true
	}
	if !sh.mu.TryLock() {
		return false
	}
	st.locked = append(st.locked, sh)
	return true
}

// dated reports whether a charge needs the time of day.
func dated(c *core.Charge) bool {
	for i := range c.Limits {
		if c.Limits[i].Rule().Calendar != nil {
			return true
		}
	}
	for i := range c.And {
		if dated(&c.And[i]) {
			return true
		}
	}
	return false
}

// find adds the places and states of one subject.
func (s *Store) find(st *step, c *core.Charge, subject int, user hash) {
	action, in := s.hash(c.Action), &s.shards[s.index(user)]
	from, n := len(st.places), len(c.Limits)
	st.places, st.states = slices.Grow(st.places, n)[:from+n], slices.Grow(st.states, n)[:from+n]
	for i := range c.Limits {
		p := &st.places[from+i]
		p.limit, p.subject, p.in = &c.Limits[i], subject, in
		p.key = key(user, action, p.limit)
		p.load(&st.states[from+i], st.now)
		st.known = st.known && p.found
	}
}

// end gives back what the charge has reserved and not used, and unlocks its shards.
func (s *Store) end(st *step) {
	for i := range st.places {
		if st.places[i].reserved {
			s.used.Add(-1)
		}
		st.places[i] = place{}
		st.states[i] = machine.State{}
	}
	for _, sh := range st.locked {
		sh.mu.Unlock()
	}
	st.places, st.states, st.locked = st.places[:0], st.states[:0], st.locked[:0]
	st.own.mu.Unlock()
}

// table is the table that has the place.
func (p *place) table() *table {
	if p.shared {
		return &p.in.shared
	}
	return &p.in.keys
}

// load looks for the key, and fills in its state, a zero State.
func (p *place) load(state *machine.State, now int64) {
	t := p.table()
	if p.at, p.found = t.search(p.key); p.found {
		t.load(&t.slots[p.at], p.limit.Rule(), state, now)
	}
}

// locate returns the slot that has the key by now.
func (p *place) locate() *slot {
	t := p.table()
	if t.slots[p.at].key != p.key {
		p.at, _ = t.search(p.key)
	}
	return &t.slots[p.at]
}

// save writes the i-th state if it is dirty. If its limit refuses, save protects the key until
// then.
func (st *step) save(i int, until int64) {
	p, state := &st.places[i], &st.states[i]
	if !state.Dirty && state.Fits {
		return
	}
	slot := p.locate()
	if state.Dirty {
		p.table().store(slot, p.limit.Rule(), state)
	}
	if !state.Fits {
		slot.protect(until)
	}
}

// saveAll saves the states, and those that have no key yet at the end: a known key that was expired
// has then been written, and is not removed for a new one. It returns a place that lacks room if that
// is the one of a bucket with Initial: one that is not kept does not fill.
func (s *Store) saveAll(st *step, until int64) (lacks *place) {
	for i := range st.places {
		if st.places[i].found {
			st.save(i, until)
		}
	}
	if st.known {
		return nil
	}
	for i := range st.places {
		switch p := &st.places[i]; {
		case p.found || !st.states[i].Dirty:
		case p.shared || s.reserve(st, p, false):
			s.insert(p, st.now)
			st.save(i, until)
		case p.limit.Rule().ForgetAfter > 0 && !p.limit.IsShadow():
			return p
		}
	}
	return nil
}

// insert makes a slot for a place.
func (s *Store) insert(p *place, now int64) {
	at, removed := p.table().insert(p.key, now)
	p.at = at
	if p.reserved = false; !p.shared {
		s.used.Add(-removed)
	}
}

func (s *Store) remove(p *place) {
	p.locate()
	p.in.keys.remove(p.at)
	s.used.Add(-1)
}
