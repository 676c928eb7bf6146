package memorystore

// Room for new keys in a store that is full: which key is dropped, and what decides if none
// can be.

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// probe is among how many keys of a shard the store looks for one to drop.
const probe = 32

// longestWait is the longest RetryAfter for a user without a key, in microseconds.
const longestWait = 60e6

// makeRoom finds room for the new keys of a charge that all limits admit. If there is none for
// a limit, the state that users without a key share decides: together they may do what one
// user may. If that refuses, or cannot be used, makeRoom returns how long the caller should wait, and the
// index of the last limit without room.
func (s *Store) makeRoom(c *core.Charge, sh *shard, now int64) (wait int64, lacks int) {
	var lacking place
	alone := c.Ban > 0 || c.Mode == machine.Owe // a shared state cannot hold the ban or the debt of one user
	for i := range sh.places {
		p, l := &sh.places[i], limit(c, i)
		if p.found || !required(c, l) || s.reserve(sh, p, now, c.Mode == machine.Peek) {
			continue
		}
		lacking, lacks = *p, i
		if !alone {
			if sh.shares(key(0, 1, l), p.in) { // it cannot be charged for two subjects at once
				return longestWait, i
			}
			*p = place{shared: true, key: key(0, 1, l), in: p.in}
			sh.states[i] = machine.State{}
			sh.find(i, l.Rule(), now)
		}
	}
	if lacking.key == 0 {
		return 0, 0
	}
	c.Ahead = 0 // no turns are reserved in a shared state
	if !alone && c.Check(sh.states, now) {
		return 0, 0
	}
	for i := range sh.places {
		if st, r := &sh.states[i], limit(c, i).Rule(); sh.places[i].shared && !st.Fits {
			wait = max(wait, r.Read(st, now, &c.Ask).Wait)
		}
	}
	if wait == 0 {
		wait = longestWait
	}
	return max(1, min(wait, sh.nextFree(&lacking, now)-now, longestWait)), lacks
}

// shares reports whether a place of the present charge is that shared state of a shard.
func (sh *shard) shares(key hash, in *shard) bool {
	return slices.ContainsFunc(sh.places, func(p place) bool { return p.shared && p.key == key && p.in == in })
}

// required reports whether a charge needs a place for the limit to pass. A shadow limit does
// not, nor does a ban policy without a refusal to record: a full store leaves them out.
func required(c *core.Charge, l *core.Limit) bool {
	if l.Rule().Kind == machine.KindBan {
		return c.Ban > 0
	}
	return !l.IsShadow()
}

// full is the refusal of a charge if there is no room for its keys, such as that of the i-th limit.
func full(c *core.Charge, wait int64, i int) core.Decision {
	d := time.Duration(wait) * time.Microsecond
	subject, limits := 0, c.Limits
	for ; i >= len(limits); subject++ {
		i -= len(limits)
		limits = c.And[subject].Limits
	}
	return core.Decision{Limit: limits[0].Quota(), RetryAfter: d, ResetAfter: d, Reason: core.ReasonFull, Source: core.SourceStore, Subject: subject}
}

// reserve counts the key of a place. If the store is full, it drops another key, or if peek is
// set, only finds one. It returns false if there is none.
func (s *Store) reserve(sh *shard, p *place, now int64, peek bool) bool {
	if p.reserved {
		return true
	}
	if p.reserved = s.used.Add(1) <= s.max; p.reserved {
		return true
	}
	s.used.Add(-1)
	from, at := p.in, p.in.victim(sh.places, p.key, now)
	if at < 0 || p.in.keys.slots[at].expires > now {
		if other := s.crowded(p.in); other != nil && (sh.holds(other) || other.mu.TryLock()) {
			if !sh.holds(other) {
				defer other.mu.Unlock()
			}
			if its := other.victim(sh.places, p.key, now); its >= 0 {
				from, at = other, its
			}
		}
	}
	if at < 0 {
		return false
	}
	if p.dropped = from.keys.slots[at].key; !peek {
		from.keys.remove(at)
		p.reserved = true
	}
	return true
}

// crowded returns the shard with the most keys, if sh has too few to choose from: all keys of a
// user are in one shard, so one user may fill the store. Otherwise it returns nil.
func (s *Store) crowded(sh *shard) (most *shard) {
	share := s.max / int64(len(s.shards))
	if sh.keys.used.Load() >= share-share/8 {
		return nil
	}
	for i := range s.shards {
		if n := s.shards[i].keys.used.Load(); n > share {
			most, share = &s.shards[i], n
		}
	}
	return most
}

// victim returns where a key is that can be dropped for h: of those that are looked at, the
// one that expires first. It is none of the places' keys. If there is none, it returns -1.
func (sh *shard) victim(places []place, h hash, now int64) (at int) {
	at = -1
	first := int64(math.MaxInt64)
	for i := range sh.keys.sample(h) {
		if s := &sh.keys.slots[i]; s.evictable(now) && s.expires < first && !contains(places, s.key) {
			at, first = i, s.expires
		}
	}
	return at
}

// nextFree is when the first of the protected keys that victim looks at can be dropped. If
// there is none, that is never.
func (sh *shard) nextFree(p *place, now int64) int64 {
	first := int64(math.MaxInt64)
	keys := &p.in.keys
	for i := range keys.sample(p.key) {
		if s := &keys.slots[i]; !s.evictable(now) && !contains(sh.places, s.key) {
			first = min(first, s.protected, s.expires)
		}
	}
	return first
}

func (s *slot) evictable(now int64) bool { return s.protected <= now || s.expires <= now }

// contains reports whether a key is one of the places', or is dropped for one.
func contains(places []place, h hash) bool {
	for i := range places {
		if p := &places[i]; p.key == h || p.dropped == h {
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
