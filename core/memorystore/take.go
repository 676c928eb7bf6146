package memorystore

// A decision from the lock to the answer, and what else reads or removes states.

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
	sh, now, epoch, known := s.load(c.User, c.Action, c.Limits, c.And)
	defer s.unlock(sh)
	c.Epoch = epoch
	if c.Check(sh.states, now) && !known {
		if wait, lacks := s.makeRoom(&c, sh, now); wait > 0 {
			if c.Mode == machine.Peek {
				c.Commit(&d, sh.states, now) // a Status has the numbers of every limit
			}
			return full(&c, wait, lacks), nil
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
			sh.save(i, limit(&c, i).Rule(), until)
		}
	}
	if !known {
		if lacks, ok := s.saveNew(&c, sh, now, until); !ok {
			return full(&c, longestWait, lacks), nil
		}
	}
	d.Issue(s)
	return d, nil
}

// limit is the i-th limit of a charge of one or more subjects.
func limit(c *core.Charge, i int) *core.Limit {
	if i < len(c.Limits) {
		return &c.Limits[i]
	}
	i -= len(c.Limits)
	for a := range c.And {
		if limits := c.And[a].Limits; i < len(limits) {
			return &limits[i]
		} else {
			i -= len(limits)
		}
	}
	panic("unreachable: each place has a limit")
}

// saveNew saves the states that have no key yet. It comes last: a known key that was expired has
// then been written, and is not removed for a new one. It returns false, and which limit lacks it, if
// there is no room for a bucket with Initial: one that is not kept does not fill.
func (s *Store) saveNew(c *core.Charge, sh *shard, now, until int64) (lacks int, ok bool) {
	for i := range sh.places {
		switch p, l := &sh.places[i], limit(c, i); {
		case p.found || !sh.states[i].Dirty:
		case p.shared || s.reserve(sh, p, now, false):
			s.insert(p, now)
			sh.save(i, l.Rule(), until)
		case l.Rule().ForgetAfter > 0 && !l.IsShadow():
			return i, false
		}
	}
	return 0, true
}

// Amend refunds, releases or renews a charge, in one atomic step.
func (s *Store) Amend(_ context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
	sh, now, _, _ := s.load(r.User, r.Action, r.Limits, nil)
	defer s.unlock(sh)
	done = r.Amend(sh.states, now, a)
	for i := range sh.places {
		switch p, st := &sh.places[i], &sh.states[i]; {
		case !p.found || !st.Dirty:
		case st.Exists:
			sh.save(i, r.Limits[i].Rule(), 0)
		default:
			s.remove(p)
		}
	}
	return done, nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	sh, _, _, _ := s.load(user, action, limits, nil)
	defer s.unlock(sh)
	for i := range sh.places {
		if p := &sh.places[i]; p.found {
			s.remove(p)
		}
	}
	return nil
}

// A shard has all states of some users, so that one lock is enough for several limits.
type shard struct {
	mu     sync.Mutex
	keys   table
	shared table // the states that users without a key share: see room.go

	// The places and states of the present charge. Here they need no allocation, however many
	// limits there are. A charge of several subjects uses those of the first one's shard.
	places []place
	states []machine.State // zero between charges
	locked []*shard        // the others that the present charge has locked
}

// index is which shard a user has. It uses the low bits of the hash, and a table the high ones.
func (s *Store) index(user hash) int { return int(user & hash(len(s.shards)-1)) }

func (s *Store) shard(user hash) *shard { return &s.shards[s.index(user)] }

// lockAll locks the shards of several subjects, each once and in the store's order, so that no two
// charges wait for each other. It returns the first subject's.
func (s *Store) lockAll(user hash, and []core.Charge) (sh *shard) {
	all := append(make([]int, 0, 8), s.index(user))
	for i := range and {
		all = append(all, s.index(s.hash(and[i].User)))
	}
	sh = &s.shards[all[0]]
	slices.Sort(all)
	all = slices.Compact(all)
	for _, i := range all {
		s.shards[i].mu.Lock()
	}
	for _, i := range all {
		if other := &s.shards[i]; other != sh {
			sh.locked = append(sh.locked, other)
		}
	}
	return sh
}

// holds reports whether the present charge of a shard has locked another one.
func (sh *shard) holds(other *shard) bool { return sh == other || slices.Contains(sh.locked, other) }

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

// A place is where the state of a limit is, if the store keeps it.
type place struct {
	key      hash
	in       *shard
	at       int // the slot where it was found; it may have moved since
	found    bool
	shared   bool // the state is the one that users without a key share
	reserved bool // counted in Store.used, and not yet inserted
	dropped  hash // the key that is dropped for this one
}

// load locks the shard of a user, and those of the other subjects, and fills in the first one's places
// and states for the limits. It reads the clock under the lock, so that no state is from a later
// instant. known says whether the store keeps the states of all limits.
func (s *Store) load(user, action string, limits []core.Limit, and []core.Charge) (sh *shard, now, epoch int64, known bool) {
	u, a := s.hash(user), s.hash(action)
	n := len(limits)
	if and == nil {
		sh = s.shard(u)
		sh.mu.Lock()
	} else {
		sh = s.lockAll(u, and)
		for i := range and {
			n += len(and[i].Limits)
		}
	}
	if cap(sh.places) < n {
		sh.places, sh.states = make([]place, n), make([]machine.State, n)
	}
	sh.places, sh.states = sh.places[:n], sh.states[:n]
	dated := calendars(limits)
	for i := range and {
		dated = dated || calendars(and[i].Limits)
	}
	now, epoch = s.now(dated)
	known = sh.findAll(0, sh, u, a, limits, now)
	n = len(limits)
	for i := range and {
		o := &and[i]
		u, a = s.hash(o.User), s.hash(o.Action)
		known = sh.findAll(n, s.shard(u), u, a, o.Limits, now) && known
		n += len(o.Limits)
	}
	return sh, now, epoch, known
}

// calendars reports whether one of the limits needs the time of day.
func calendars(limits []core.Limit) bool {
	for i := range limits {
		if limits[i].Rule().Calendar != nil {
			return true
		}
	}
	return false
}

// findAll fills in the places and states of one subject, from the n-th on.
func (sh *shard) findAll(n int, in *shard, user, action hash, limits []core.Limit, now int64) (known bool) {
	known = true
	for i := range limits {
		sh.places[n+i] = place{key: key(user, action, &limits[i]), in: in}
		sh.find(n+i, limits[i].Rule(), now)
		known = known && sh.places[n+i].found
	}
	return known
}

// unlock ends what load began.
func (s *Store) unlock(sh *shard) {
	for i := range sh.places {
		if sh.places[i].reserved {
			s.used.Add(-1)
		}
		sh.states[i] = machine.State{}
	}
	for _, other := range sh.locked {
		other.mu.Unlock()
	}
	sh.locked = sh.locked[:0]
	sh.mu.Unlock()
}

// table is the table that has the place.
func (p *place) table() *table {
	if p.shared {
		return &p.in.shared
	}
	return &p.in.keys
}

// find looks for the i-th place's key, and fills in its state, a zero State.
func (sh *shard) find(i int, r *machine.Rule, now int64) {
	p := &sh.places[i]
	t := p.table()
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
	t := p.table()
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
func (s *Store) insert(p *place, now int64) {
	at, removed := p.table().insert(p.key, now)
	p.at = at
	if p.reserved = false; !p.shared {
		s.used.Add(-removed)
	}
}

func (s *Store) remove(p *place) {
	p.in.keys.remove(p.in.keys.locate(p))
	s.used.Add(-1)
}
