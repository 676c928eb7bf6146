package memorystore

// Room for new keys, and which key is dropped if the store is full.

import (
	"math"
	"math/bits"
)

// probe is among how many keys evict chooses.
const probe = 32

// add makes a slot for a new key, unless the store is full.
func (s *Store) add(sh *shard, t *table, h hash, now int64) (at int, ok bool) {
	places := [1]place{{table: t, key: h}}
	if !s.insert(sh, places[:], 0, now) {
		return 0, false
	}
	return places[0].at, true
}

// insert makes a slot for the i-th place. If the store is full, it drops another key. If none
// can be dropped, it returns false and the state is not kept.
func (s *Store) insert(sh *shard, places []place, i int, now int64) bool {
	p := &places[i]
	t := p.table
	takesOver := !p.reserved && t.slots[t.slotFor(p.key, places, now)].key() != 0 // from an expired key
	if !takesOver && !p.reserved && !s.reserve(sh, places, i, now) {
		return false
	}
	counted := t.used
	if p.reserved {
		counted++
	}
	p.at, p.found = t.insert(p.key, places, now), true
	if t.used != counted {
		s.used.Add(int64(t.used - counted))
	}
	return true
}

// reserve counts the i-th place as a key. If the store is full, it drops another one.
func (s *Store) reserve(sh *shard, places []place, i int, now int64) bool {
	if s.used.Add(1) > s.max {
		s.used.Add(-1)
		if !s.evict(sh, places, i, now) {
			return false
		}
	}
	places[i].reserved = true
	return true
}

func (s *Store) cancel(places []place) {
	for i := range places {
		if places[i].reserved {
			s.used.Add(-1)
		}
	}
}

// roomFor reports whether reserve would find room for n places, the i-th being the last.
func (s *Store) roomFor(sh *shard, places []place, i, n int, now int64) bool {
	missing := s.used.Load() + int64(n) - s.max
	return missing <= 0 || int64(sh.victims(places, i, now)) >= missing ||
		s.elsewhere(sh, places[i].key, len(s.shards), func(other *shard) bool { t, _ := other.victim(places, i, now); return t != nil })
}

// evict drops a key to make room for the i-th place: an expired one, or else the one that
// expires first. It drops no protected key and none of the places.
func (s *Store) evict(sh *shard, places []place, i int, now int64) bool {
	t := places[i].table
	if at := t.slotFor(places[i].key, places, now); t.slots[at].key() != 0 {
		t.remove(at)
		return true
	}
	own, at := sh.victim(places, i, now)
	h, drop := places[i].key, func(from *shard) bool { return from.drop(places, i, now) }
	if own == nil {
		return s.elsewhere(sh, h, len(s.shards), drop)
	}
	if own.slots[at].until() <= now || !s.elsewhere(sh, h, glance, drop) {
		own.remove(at)
	}
	return true
}

// glance is at how many other shards evict looks if its own has a key to drop. To look at all
// 1,024 takes 40 us if they have none.
const glance = 4

// elsewhere tries shards that have more than their share of the keys, if sh has less: all keys
// of a user are in one shard, so one user may fill the store. It looks at the last shard that
// gave up a key, and at so many others, beginning at one that h names. It waits for no other
// lock, since it holds that of sh.
func (s *Store) elsewhere(sh *shard, h hash, others int, try func(other *shard) bool) bool {
	if sh.count() >= s.share() {
		return false
	}
	const most = 4
	tried, at := 0, int(s.crowd.Load())
	for i := 0; i <= others && tried < most; i++ {
		if i > 0 {
			at = int((h + hash(i)) % hash(len(s.shards)))
		}
		other := &s.shards[at]
		if other == sh || !other.mu.TryLock() {
			continue
		}
		done := false
		if other.count() > s.share() {
			done = try(other)
			tried++
		}
		other.mu.Unlock()
		if done {
			s.crowd.Store(int64(at))
			return true
		}
	}
	if tried > 0 && others == glance { // not for a Peek, which must look where the charge will
		s.crowd.Store(int64(h % hash(len(s.shards))))
	}
	return false
}

// share is how many keys each shard has if the store is full and all have as many.
func (s *Store) share() int { return int(s.max) / len(s.shards) }

// count is how many keys the shard has.
func (sh *shard) count() int { return sh.keys.used + sh.windows.used }

// drop drops one of the keys that sample visits.
func (sh *shard) drop(places []place, i int, now int64) bool {
	t, at := sh.victim(places, i, now)
	if t != nil {
		t.remove(at)
	}
	return t != nil
}

// victim is where the key is that drop would drop. t is nil if there is none.
func (sh *shard) victim(places []place, i int, now int64) (t *table, at int) {
	least := int64(math.MaxInt64)
	sh.sample(places, i, func(from *table, slot int) {
		if s := &from.slots[slot]; s.evictable(now) && s.until() < least {
			t, at, least = from, slot, s.until()
		}
	})
	return t, at
}

// victims is how many keys evict chooses from.
func (sh *shard) victims(places []place, i int, now int64) (n int) {
	t := places[i].table
	spot := &t.slots[t.slotFor(places[i].key, places, now)]
	if spot.key() != 0 {
		n++
	}
	sh.sample(places, i, func(from *table, at int) {
		if s := &from.slots[at]; s != spot && s.evictable(now) {
			n++
		}
	})
	return n
}

func (s *slot) evictable(now int64) bool { return s.protected <= now || s.until() <= now }

// nextFree is when the first of the protected keys that evict looks at can be dropped. If it
// sees none, that is never.
func (sh *shard) nextFree(places []place, i int, now int64) int64 {
	first := int64(math.MaxInt64)
	sh.sample(places, i, func(t *table, at int) {
		if s := &t.slots[at]; !s.evictable(now) {
			first = min(first, s.protected, s.until())
		}
	})
	return first
}

// sample visits up to probe keys of both tables other than the places. The hash of the i-th
// place gives the first one and the step between them. Adjacent ones would not do: the keys
// that can be dropped would become rare in some parts of a table.
func (sh *shard) sample(places []place, i int, visit func(t *table, at int)) {
	h, keys := places[i].key, sh.keys.cells()
	n := keys + sh.windows.cells()
	first, _ := bits.Mul64(uint64(h), uint64(n))
	at, step := int(first), 1
	if most := n / (2 * probe); most > 1 {
		step += int(uint64(h*oddLimit>>32) % uint64(most))
	}
	seen := 0
	for range min(n, 2*probe) {
		t, slot := &sh.keys, at
		if at >= keys {
			t, slot = &sh.windows, (at-keys)<<sh.windows.wide
		}
		if k := t.slots[slot].key(); k != 0 {
			if seen++; !contains(places, k) {
				visit(t, slot)
			}
			if seen == probe {
				return
			}
		}
		if at += step; at >= n {
			at -= n
		}
	}
}
