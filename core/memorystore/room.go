package memorystore

// New keys. makeRoom finds room for them before a charge is committed, and saveNew saves them after
// it.
//
// A full store drops another key. If no key can be dropped, the users who have no key share one
// state of each limit in each shard. Together the users of a shard may do what one user may. So new
// users are not all refused during a flood of keys.
//
// The store drops keys by GreedyDual, a cache replacement algorithm by Young. Each key has a level,
// and each table too:
//   - When a state is written, the level of its key becomes the level of the table plus the part of
//     the quota that is used.
//   - The key with the lowest level is dropped first. The level of the table then rises to the
//     level of that key.
//
// So a key that is not used falls behind as the level of the table rises. A key that has used n
// times as much of its quota stays n times as long. If only the used part counted, keys that were
// once nearly refused would stay until they expire, and all other keys would drop one another.

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// probe is the number of keys of a shard among which the store looks for one to drop.
const probe = 32

// longestWait is the longest RetryAfter for a user without a key, in microseconds.
const longestWait = 60e6

// makeRoom finds room for the new keys of a charge that all limits admit. If there is no room for a
// key, the shared state of its limit decides. If the shared state refuses, or cannot be used,
// makeRoom returns the ref of that key, and how long the caller should wait.
func (s *Store) makeRoom(tx *transaction, c *core.Charge) (lacks *ref, wait int64) {
	for i := range tx.refs {
		r := &tx.refs[i]
		// A charge can pass without the key of a shadow limit, or of a ban policy that records nothing.
		needed := c.Ban > 0 || r.rule.Ban == nil && !r.rule.Shadow
		if r.slot != nil || !needed || s.reserve(tx, r, c.Mode == machine.ModePeek) {
			continue
		}
		lacks, wait = r, tx.nextFree(r)
		// A shared state cannot hold the ban or the debt of one user.
		if c.Ban > 0 || c.Mode == machine.ModeOwe || !s.share(tx, i) {
			return lacks, wait
		}
	}
	if lacks == nil {
		return nil, 0
	}
	if c.Ahead > 0 { // no turns are reserved in a shared state
		t := *c.Terms
		t.Ahead = 0
		c.Terms = &t
	}
	if c.Check(tx.entries, tx.now) {
		return nil, 0
	}
	return lacks, min(wait, tx.sharedWait(c))
}

// reserve reserves a place for the new key of a ref. If the store is full, reserve drops another
// key, or, if peek is set, only looks for a key that it could drop. It returns false if it finds
// none.
func (s *Store) reserve(tx *transaction, r *ref, peek bool) bool {
	if r.reserved {
		return true
	}
	if s.used.Add(1) > s.max {
		s.used.Add(-1)
		if tx.evicted == nil {
			tx.evicted = new(evicted)
		}
		from, at := s.victim(tx, r)
		if at < 0 {
			return false
		}
		if tx.evicted.keys = append(tx.evicted.keys, from.slots[at].key); peek {
			return true
		}
		from.drop(at, tx.now) // the new key takes its place in used
	}
	r.reserved, tx.reserved = true, tx.reserved+1
	return true
}

// victim returns which key to drop, to make room for the key of r: the table and the slot of the
// dropped key, or -1 if no key can be dropped. It looks at keys of the shard of r. If it finds no expired key there,
// and the shard has few keys, it tries to find one in the shard with the most keys.
func (s *Store) victim(tx *transaction, r *ref) (from *table, at int) {
	at = tx.leastUsed(r.in, r.key)
	if at >= 0 && r.in.slots[at].expires <= tx.now {
		return r.in, at
	}
	if other := s.crowded(r.in); other >= 0 && s.tryLock(tx, other) {
		t := &s.shards[other].keys
		if inOther := tx.leastUsed(t, r.key); inOther >= 0 {
			return t, inOther
		}
	}
	return r.in, at
}

// tryLock locks one more shard. It returns false if another charge holds the lock.
func (s *Store) tryLock(tx *transaction, at int) bool {
	held := slices.Contains(tx.shards, at) || slices.Contains(tx.evicted.shards, at)
	if held || !s.shards[at].mu.TryLock() {
		return held
	}
	tx.evicted.shards = append(tx.evicted.shards, at)
	return true
}

// crowded returns the index of the shard with the most keys if t has too few keys to choose from.
// Otherwise it returns -1. All keys of a user are in one shard, so one user may fill the store with
// keys of one shard.
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

// leastUsed returns the position of the key to drop for h among the keys of a sample, or -1 if none
// of them can be dropped. It is an expired key, or else the key with the lowest rank. Of keys with
// the same rank it is the one that expires first.
func (tx *transaction) leastUsed(t *table, h hash) (at int) {
	at, lowest := -1, 0
	for i := range t.sample(h) {
		s := &t.slots[i]
		if !s.evictable(tx.now) || tx.uses(s.key) {
			continue
		}
		if rank := t.rank(s, tx.now); at < 0 || rank < lowest || rank == lowest && s.expires < t.slots[at].expires {
			at, lowest = i, rank
		}
	}
	return at
}

// nextFree returns the time until a protected key of the sample can be dropped, at most
// longestWait.
func (tx *transaction) nextFree(r *ref) int64 {
	first := tx.now + longestWait
	for i := range r.in.sample(r.key) {
		if s := &r.in.slots[i]; !s.evictable(tx.now) && !tx.uses(s.key) {
			first = min(first, s.protected, s.expires)
		}
	}
	return first - tx.now
}

// fullPart is the part of a quota that is used up.
const fullPart = 255

// part returns which part of its quota a state has used: 1 to fullPart.
func part(r *machine.Rule, v *machine.Reading) uint16 {
	used, quota := v.Count, r.Max
	switch {
	case r.Ban != nil: // if the store forgot the bans in a row, the next ban would be shorter
		return fullPart
	case r.Parts > 0: // in microseconds
		used, quota = v.Rest.Whole, r.Burst.Whole
	}
	return uint16(1 + min(used*fullPart/max(quota, 1), fullPart-1))
}

// rank returns the rank of a key. The key with the lowest rank is dropped first. Levels wrap
// around, so rank subtracts them.
func (t *table) rank(s *slot, now int64) int {
	if s.expires <= now {
		return math.MinInt
	}
	return int(int16(s.level - t.level))
}

// drop removes a key for another key, and raises the level of the table to that of the dropped key.
func (t *table) drop(at int, now int64) {
	if t.rank(&t.slots[at], now) > 0 {
		t.level = t.slots[at].level
	}
	t.remove(at)
}

// evictable reports whether the key can be dropped for another key.
func (s *slot) evictable(now int64) bool { return s.protected <= now || s.expires <= now }

// uses reports whether a key is that of a ref, or is dropped for one.
func (tx *transaction) uses(h hash) bool {
	return slices.ContainsFunc(tx.refs, func(r ref) bool { return r.key == h }) || tx.evicted != nil && slices.Contains(tx.evicted.keys, h)
}

// sample visits up to probe keys. h determines the first key, and the stride from one key to the
// next. If all samples had the same stride, keys that can be dropped would become rare in some
// parts of the table.
func (t *table) sample(h hash) iter.Seq[int] {
	return func(yield func(at int) bool) {
		n, seen := len(t.slots), 0
		stride := 1 + int((h*oddLimit>>32)%hash(max(1, n/(2*probe))))
		for at, i := t.home(h), 0; i < n && seen < probe; i += stride {
			if t.slots[at].key != 0 {
				if seen++; !yield(at) {
					return
				}
			}
			at = (at + stride) % n
		}
	}
}

// share replaces the user's own state in the i-th ref by the shared state of its limit. It returns
// false if another ref of the charge uses this shared state already, because one charge cannot
// charge a state twice.
func (s *Store) share(tx *transaction, i int) bool {
	r := &tx.refs[i]
	if r.in.shared == nil {
		r.in.shared = &table{slots: empty[:]}
	}
	in, shared := r.in.shared, key(0, 1, r.rule)
	if slices.ContainsFunc(tx.refs, func(o ref) bool { return o.in == in && o.key == shared }) {
		return false
	}
	r.in, r.key, r.shared = in, shared, true
	e := &tx.entries[i]
	*e = machine.Entry{Epoch: e.Epoch}
	if _, found := r.locate(); found {
		e.State = in.load(r.slot)
	}
	return true
}

// sharedWait returns the time for which the shared states refuse a charge.
func (tx *transaction) sharedWait(c *core.Charge) (wait int64) {
	for i := range tx.refs {
		if r, e := &tx.refs[i], &tx.entries[i]; r.shared && !e.Fits {
			r.rule.Read(e, tx.now, c.Part(int(r.subject)).Cost)
			wait = max(wait, e.Wait)
		}
	}
	return wait
}

// noRoom returns the refusal of a charge for which the store has no room. The argument lacks is the
// ref whose key has no place.
func noRoom(c *core.Charge, lacks *ref, wait int64) core.Decision {
	d := time.Duration(wait) * time.Microsecond
	return core.Decision{
		Limit: c.Part(int(lacks.subject)).Limits[0].Quota(), RetryAfter: d, ResetAfter: d,
		Reason: core.ReasonFull, Source: core.SourceStore, Subject: int(lacks.subject),
	}
}

// saveNew saves the states that have no key yet, and makes room for those that makeRoom has not
// looked at. Take saves the states with keys before, because insert may remove expired keys. If a
// bucket with Initial finds no room, saveNew returns its ref, because a bucket that is not kept
// does not fill.
func (s *Store) saveNew(tx *transaction, until int64) (lacks *ref) {
	for i := range tx.refs {
		switch r, e := &tx.refs[i], &tx.entries[i]; {
		case r.slot != nil || !e.Dirty:
		case r.shared || s.reserve(tx, r, false):
			at, removed := r.in.insert(r.key, tx.now)
			if r.slot = &r.in.slots[at]; !r.shared {
				s.used.Add(-removed)
				r.reserved, tx.reserved = false, tx.reserved-1
			}
			r.save(e, tx.now, until)
		case r.rule.ForgetAfter > 0 && !r.rule.Shadow:
			return r
		}
	}
	return nil
}
