package memorystore

import (
	"math"
)

// probe is how many keys are looked at for one to drop.
const probe = 32

// add makes a slot for a new key, unless the store is full.
func (s *Store) add(sh *shard, h hash, now int64) (at int, ok bool) {
	places := [1]place{{key: h}}
	if !s.insert(sh, places[:], 0, now) {
		return 0, false
	}
	return places[0].at, true
}

// insert makes a slot for the i-th place, at the bound by dropping another key. What a
// refusal would add to a full store stays unwritten.
func (s *Store) insert(sh *shard, places []place, i int, now int64) bool {
	p := &places[i]
	takesOver := !p.reserved && sh.slots[sh.spot(p.key, places, now)].key() != 0 // from an expired key
	if !takesOver && !p.reserved && !s.reserve(sh, places, i, now) {
		return false
	}
	counted := sh.used
	if p.reserved {
		counted++
	}
	p.at, p.found = sh.insert(p.key, places, now), true
	if sh.used != counted {
		s.used.Add(int64(sh.used - counted))
	}
	return true
}

// reserve counts the i-th place, at the bound in place of another key.
func (s *Store) reserve(sh *shard, places []place, i int, now int64) bool {
	if s.used.Add(1) > s.max {
		s.used.Add(-1)
		if !sh.evict(places, i, now) {
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

// roomFor reports whether reserve would find room for so many places, the i-th being
// the last.
func (s *Store) roomFor(sh *shard, places []place, i, n int, now int64) bool {
	missing := s.used.Load() + int64(n) - s.max
	return missing <= 0 || int64(sh.victims(places, i, now)) >= missing
}

// evict drops a key to make room for the i-th place: one that has expired, or else the one
// nearest to whole. It spares what is refused, and the places.
func (sh *shard) evict(places []place, i int, now int64) bool {
	if at := sh.spot(places[i].key, places, now); sh.slots[at].key() != 0 {
		sh.remove(at)
		return true
	}
	victim, least := -1, int64(math.MaxInt64)
	sh.sample(places, i, func(at int) {
		if s := &sh.slots[at]; s.mayGo(now) && s.until() < least {
			victim, least = at, s.until()
		}
	})
	if victim < 0 {
		return false
	}
	sh.remove(victim)
	return true
}

// victims is how many keys evict chooses from.
func (sh *shard) victims(places []place, i int, now int64) (n int) {
	spot := sh.spot(places[i].key, places, now)
	if sh.slots[spot].key() != 0 {
		n++
	}
	sh.sample(places, i, func(at int) {
		if at != spot && sh.slots[at].mayGo(now) {
			n++
		}
	})
	return n
}

func (s *slot) mayGo(now int64) bool { return s.refused <= now || s.until() <= now }

// nextFree is when the first of the refused keys that evict looks at can be dropped.
func (sh *shard) nextFree(places []place, i int, now int64) int64 {
	first := int64(math.MaxInt64)
	sh.sample(places, i, func(at int) {
		if s := &sh.slots[at]; !s.mayGo(now) {
			first = min(first, s.refused, s.until())
		}
	})
	if first == math.MaxInt64 {
		return now
	}
	return first
}

// sample visits up to probe keys, less the places. The hash of the i-th place says which:
// the first of them and the step between them. Neighbours would not do, since the keys that
// may go would become rare in some parts of a table while others are full of them.
func (sh *shard) sample(places []place, i int, visit func(at int)) {
	h, n := places[i].key, len(sh.slots)
	at, step := sh.home(h), 1
	if most := n / (2 * probe); most > 1 {
		step += int(uint64(h*oddLimit>>32) % uint64(most))
	}
	seen := 0
	for range min(n, 2*probe) {
		if k := sh.slots[at].key(); k != 0 {
			if seen++; !spared(places, k) {
				visit(at)
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
