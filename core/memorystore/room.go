package memorystore

// Room for new keys in a store that is full: which key is dropped, and what a user is told if none
// can be. Then users without a key share a state: together they may do what one user may. So a flood
// of keys does not lock out new users.

import (
	"iter"
	"math"
	"slices"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// probe is among how many keys of a shard the store looks for one to drop.
const probe = 32

// longestWait is the longest RetryAfter for a user without a key, in microseconds.
const longestWait = 60e6

// makeRoom finds room for the new keys of a charge that all limits admit. Where there is none, a
// shared state decides. If that refuses, or cannot be used, makeRoom returns a place that lacks room,
// and how long the caller should wait.
func (s *Store) makeRoom(st *step, c *core.Charge) (lacks *place, wait int64) {
	free := int64(longestWait)
	for i := range st.places {
		p := &st.places[i]
		if p.found || !required(p, c) || s.reserve(st, p, c.Mode == machine.ModePeek) {
			continue
		}
		lacks, free = p, st.nextFree(p)
		if !sharable(c) || !s.share(st, i) {
			return lacks, free
		}
	}
	if lacks == nil {
		return nil, 0
	}
	c.Ahead = 0 // no turns are reserved in a shared state
	if c.Check(st.states, st.now) {
		return nil, 0
	}
	if wait = st.sharedWait(c); wait > 0 {
		free = min(free, wait)
	}
	return lacks, free
}

// required reports whether a charge needs the place to pass. That of a shadow limit it does not, nor
// that of a ban policy without a refusal to record: a full store leaves them out.
func required(p *place, c *core.Charge) bool {
	if p.limit.Rule().Kind == machine.KindBan {
		return c.Ban > 0
	}
	return !p.limit.IsShadow()
}

// reserve counts the key of a place. If the store is full, it drops another key, or if peek is
// set, only finds one. It returns false if there is none.
func (s *Store) reserve(st *step, p *place, peek bool) bool {
	if p.reserved {
		return true
	}
	if p.reserved = s.used.Add(1) <= s.max; p.reserved {
		return true
	}
	s.used.Add(-1)
	from, at := s.victim(st, p)
	if at < 0 {
		return false
	}
	if p.dropped = from.slots[at].key; !peek {
		from.remove(at)
		p.reserved = true // the dropped key was counted
	}
	return true
}

// victim returns the key to drop for that of a place: the table that has it, and its slot there, or -1
// if there is none. A key of another shard is dropped if the place's own shard has none that has expired.
func (s *Store) victim(st *step, p *place) (from *table, at int) {
	own := p.in
	at = st.firstToExpire(own, p.key)
	if at >= 0 && own.slots[at].expires <= st.now {
		return own, at
	}
	if other := s.crowded(p.in); other >= 0 && s.tryLock(st, other) {
		t := &s.shards[other].keys
		if its := st.firstToExpire(t, p.key); its >= 0 {
			return t, its
		}
	}
	return own, at
}

// crowded returns which shard has the most keys, if t has too few to choose from: all keys of a
// user are in one shard, so one user may fill the store. Otherwise it returns -1.
func (s *Store) crowded(t *table) (most int) {
	share := s.max / int64(len(s.shards))
	if t.used.Load() >= share-share/8 {
		return -1
	}
	most = -1
	for i := range s.shards {
		if n := s.shards[i].keys.used.Load(); n > share {
			most, share = i, n
		}
	}
	return most
}

// firstToExpire returns where the key is that expires first, of those that are looked at and can be
// dropped for h. If there is none, it returns -1.
func (st *step) firstToExpire(t *table, h hash) (at int) {
	at = -1
	for i := range t.sample(h) {
		if s := &t.slots[i]; s.evictable(st.now) && !st.uses(s.key) && (at < 0 || s.expires < t.slots[at].expires) {
			at = i
		}
	}
	return at
}

// nextFree is how long it takes, up to longestWait, until the first of the protected keys that
// firstToExpire looks at can be dropped.
func (st *step) nextFree(p *place) int64 {
	first := int64(math.MaxInt64)
	t := p.in
	for i := range t.sample(p.key) {
		if s := &t.slots[i]; !s.evictable(st.now) && !st.uses(s.key) {
			first = min(first, s.protected, s.expires)
		}
	}
	return max(1, min(first-st.now, longestWait))
}

func (s *slot) evictable(now int64) bool { return s.protected <= now || s.expires <= now }

// uses reports whether a key is one of the places', or is dropped for one.
func (st *step) uses(h hash) bool {
	for i := range st.places {
		if p := &st.places[i]; p.key == h || p.dropped == h {
			return true
		}
	}
	return false
}

// sample visits up to probe keys. h gives the first one and the step between them. With one step
// for all, the keys that can be dropped would become rare in some parts of the table.
func (t *table) sample(h hash) iter.Seq[int] {
	return func(yield func(at int) bool) {
		n, seen := len(t.slots), 0
		step := 1 + int((h*oddLimit>>32)%hash(max(1, n/(2*probe))))
		for at, i := t.home(h), 0; i < n && seen < probe; i += step {
			if t.slots[at].key != 0 {
				if seen++; !yield(at) {
					return
				}
			}
			at = (at + step) % n
		}
	}
}

// sharable reports whether shared states may decide a charge. They cannot hold the ban or the debt of
// one user.
func sharable(c *core.Charge) bool { return c.Ban == 0 && c.Mode != machine.ModeOwe }

// share has the shared state of the i-th place's limit decide instead of the user's own. It returns
// false if that state decides for another place of the charge: it cannot be charged twice at once.
func (s *Store) share(st *step, i int) bool {
	p := &st.places[i]
	if p.in.shared == nil {
		p.in.shared = &table{slots: empty[:]}
	}
	in, its := p.in.shared, key(0, 1, p.limit)
	if slices.ContainsFunc(st.places, func(o place) bool { return o.in == in && o.key == its }) {
		return false
	}
	p.in, p.key, p.shared = in, its, true
	st.states[i] = machine.State{}
	s.load(p, &st.states[i], st.now)
	return true
}

// sharedWait is how long the shared states refuse a charge.
func (st *step) sharedWait(c *core.Charge) (wait int64) {
	for i := range st.places {
		if p, state := &st.places[i], &st.states[i]; p.shared && !state.Fits {
			wait = max(wait, p.limit.Rule().Read(state, st.now, &c.Ask).Wait)
		}
	}
	return wait
}
