package memorystore

// What a limiter asks of the store. Each is one atomic step: the store locks the shards of the users, finds
// the states, and writes them back.

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Take decides a charge in one atomic step. For a known key it allocates only if a trail
// grows, and for a receipt.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	st := s.begin(&c)
	defer s.end(st)
	passes := c.Check(st.states, st.now)
	if passes && !st.known {
		if lacks, wait := s.makeRoom(st, &c); lacks != nil {
			if c.Mode == machine.ModePeek {
				c.Commit(&d, st.states, st.now, passes) // a Status has the numbers of every limit
			}
			return full(&c, lacks, wait), nil
		}
	}
	c.Commit(&d, st.states, st.now, passes)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// Another limiter, or a smaller cost, might have room. The key is protected
		// nonetheless: to drop it would give the user a full quota.
		until = st.now + int64(d.RetryAfter/time.Microsecond)
	}
	if lacks := s.saveAll(st, until); lacks != nil {
		return full(&c, lacks, longestWait), nil
	}
	d.Issue(s)
	return d, nil
}

// full is the refusal of a charge if there is no room for the key of a place.
func full(c *core.Charge, lacks *place, wait int64) core.Decision {
	d := time.Duration(wait) * time.Microsecond
	return core.Decision{Limit: c.Subject(lacks.subject).Limits[0].Quota(), RetryAfter: d, ResetAfter: d, Reason: core.ReasonFull, Source: core.SourceStore, Subject: lacks.subject}
}

// Amend refunds, releases or renews a charge, in one atomic step.
func (s *Store) Amend(_ context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
	st := s.begin(&core.Charge{User: r.User, Action: r.Action, Limits: r.Limits})
	defer s.end(st)
	done = r.Amend(st.states, st.now, a)
	for i := range st.places {
		switch p, state := &st.places[i], &st.states[i]; {
		case !p.found || !state.Dirty:
		case state.Exists:
			st.save(i, 0)
		default:
			s.remove(p)
		}
	}
	return done, nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	st := s.begin(&core.Charge{User: user, Action: action, Limits: limits})
	defer s.end(st)
	for i := range st.places {
		if p := &st.places[i]; p.found {
			s.remove(p)
		}
	}
	return nil
}

// A shard has all states of some users, so that one lock is enough for several limits. It fills a cache
// line, so that two processors that decide about users of two shards do not wait for each other.
type shard struct {
	mu   sync.Mutex
	keys table
	_    [8]byte
}

// A step is a charge that is being decided. It is on the heap, as its states must be, and used again.
type step struct {
	now    int64
	known  bool            // the store keeps all states that the charge needs to pass: see required
	places []place         // one for each limit
	states []machine.State // those of the places
	locked []int           // which shards are locked
}

var steps = sync.Pool{New: func() any {
	few := new(struct { // one allocation
		step
		places [4]place
		states [4]machine.State
		locked [4]int
	})
	few.step = step{places: few.places[:0], states: few.states[:0], locked: few.locked[:0]}
	return &few.step
}}

// A place is where the state of a limit is, if the store keeps it.
type place struct {
	limit    *core.Limit
	subject  int // as in core.Decision
	key      hash
	in       *table // that of the user's shard
	at       int    // the slot where it was found; it may have moved since
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

// begin locks the shards of a charge's subjects, each once and in the store's order, so that no two
// charges wait for each other, and finds their states. It reads the clock under the locks, so that no
// state is from a later instant.
func (s *Store) begin(c *core.Charge) *step {
	st, user := steps.Get().(*step), s.hash(c.User)
	st.locked = append(st.locked, s.index(user))
	if c.And != nil {
		for i := range c.And {
			st.locked = append(st.locked, s.index(s.hash(c.And[i].User)))
		}
		slices.Sort(st.locked)
		st.locked = slices.Compact(st.locked)
	}
	for _, at := range st.locked {
		s.shards[at].mu.Lock()
	}
	st.now, st.known = s.now(), true
	s.find(st, c, 0, user)
	for i := range c.And {
		s.find(st, &c.And[i], 1+i, s.hash(c.And[i].User))
	}
	return st
}

// tryLock locks one more shard, unless another charge holds it.
func (s *Store) tryLock(st *step, at int) bool {
	if slices.Contains(st.locked, at) {
		return true
	}
	if !s.shards[at].mu.TryLock() {
		return false
	}
	st.locked = append(st.locked, at)
	return true
}

// find adds the places and states of one subject.
func (s *Store) find(st *step, c *core.Charge, subject int, user hash) {
	action, in := s.hash(c.Action), &s.shards[s.index(user)].keys
	from, n := len(st.places), len(c.Limits)
	st.places, st.states = slices.Grow(st.places, n)[:from+n], slices.Grow(st.states, n)[:from+n]
	for i := range c.Limits {
		p := &st.places[from+i]
		p.limit, p.subject, p.in = &c.Limits[i], subject, in
		p.key = key(user, action, p.limit)
		s.load(p, &st.states[from+i], st.now)
		st.known = st.known && (p.found || !required(p, c))
	}
}

// load looks for the key of a place, and fills in its state, a zero State.
func (s *Store) load(p *place, state *machine.State, now int64) {
	rule := p.limit.Rule()
	if p.at, p.found = p.in.search(p.key); p.found {
		p.in.load(&p.in.slots[p.at], rule, state, now)
	}
	if rule.Calendar != nil {
		state.Epoch = s.epoch()
	}
}

// end unlocks the shards of a charge, and gives back what it has reserved and not used.
func (s *Store) end(st *step) {
	for _, at := range st.locked {
		s.shards[at].mu.Unlock()
	}
	for i := range st.places {
		if st.places[i].reserved {
			s.used.Add(-1)
		}
		st.places[i] = place{}
		st.states[i] = machine.State{}
	}
	st.places, st.states, st.locked = st.places[:0], st.states[:0], st.locked[:0]
	steps.Put(st)
}

// locate returns the slot that has the key by now.
func (p *place) locate() *slot {
	if p.in.slots[p.at].key != p.key {
		p.at, _ = p.in.search(p.key)
	}
	return &p.in.slots[p.at]
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
		p.in.store(slot, p.limit.Rule(), state)
	}
	if !state.Fits {
		slot.protect(until)
	}
}

// saveAll saves the states, and those that have no key yet at the end: a known key that was expired
// has then been written, and is not removed for a new one. It returns a place that lacks room if that
// is the one of a bucket with Initial: one that is not kept does not fill.
func (s *Store) saveAll(st *step, until int64) (lacks *place) {
	unsaved := false
	for i := range st.places {
		if st.places[i].found {
			st.save(i, until)
		} else {
			unsaved = unsaved || st.states[i].Dirty
		}
	}
	if !unsaved {
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
	var removed int64
	p.at, removed = p.in.insert(p.key, now)
	if p.reserved = false; !p.shared {
		s.used.Add(-removed)
	}
}

func (s *Store) remove(p *place) {
	p.locate()
	p.in.remove(p.at)
	s.used.Add(-1)
}
