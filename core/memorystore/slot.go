package memorystore

// A slot of a table: how it holds a state, and which key is dropped first when the store is full.
//
// Each key has a level, and each table too. When a state is written, its key's level becomes the
// table's level plus the part of the quota that is used. The key with the lowest level is dropped
// first, and the table's level rises to the level of that key. So a key that is not used falls
// behind as other keys come. A key that has used n times as much of its quota stays n times as
// long. This is the cache replacement GreedyDual, of Young. If only the used part counted, keys
// that were once nearly refused would stay for ever, and all others would drop one another.

import (
	"math"

	"github.com/tailcut/tailcut/core/machine"
)

// A slot holds the state of one key.
type slot struct {
	key       hash   // 0: the slot is empty
	expires   int64  // the state's Expires
	protected int64  // the key is not dropped for another one before this instant
	n         uint32 // the state's N, or the index of its Data
	more      bool
	level     uint16 // that of the table when the state was written, and the part of its quota that was used
}

// A pool has the Data of the states of a table that have one.
type pool struct {
	all  []machine.Data
	free []uint32 // indices
}

// load returns the state of a slot. An expired one may leave its memory to the next one.
func (t *table) load(s *slot) machine.State {
	if s.more {
		return machine.State{Expires: s.expires, Data: t.pool.all[s.n]}
	}
	return machine.State{Expires: s.expires, N: s.n}
}

// store writes a state to its slot.
func (t *table) store(s *slot, state *machine.State) {
	s.expires = state.Expires
	switch {
	case state.Data == nil:
		t.pool.release(s)
		s.n = state.N
		return
	case !s.more:
		s.n, s.more = t.pool.place(), true
	}
	t.pool.all[s.n] = state.Data
}

// protect keeps the key from being dropped for another one until then.
func (s *slot) protect(until int64) { s.protected = max(s.protected, until) }

// fullPart is the part of a quota that is used up.
const fullPart = 255

// part is which part of its quota a state has used: 1 to fullPart.
func part(r *machine.Rule, v *machine.Reading) uint16 {
	used, quota := v.Count, r.Max
	switch {
	case r.Ban != nil: // to forget bans in a row would shorten the next one
		return fullPart
	case r.Parts > 0: // in microseconds
		used, quota = v.Rest.Whole, r.Burst.Whole
	}
	return uint16(1 + min(used*fullPart/max(quota, 1), fullPart-1))
}

// rank says which key is dropped first: one of a low rank. It compares levels, which wrap around.
func (t *table) rank(s *slot, now int64) int {
	if s.expires <= now {
		return math.MinInt
	}
	return int(int16(s.level - t.level))
}

// drop removes a key for another one, and raises the table's level to that of the key.
func (t *table) drop(at int, now int64) {
	if t.rank(&t.slots[at], now) > 0 {
		t.level = t.slots[at].level
	}
	t.remove(at)
}

// place returns an index that is free.
func (p *pool) place() (i uint32) {
	if n := len(p.free); n > 0 {
		i = p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	p.all = append(p.all, nil)
	return uint32(len(p.all) - 1)
}

// release frees the place of a slot's Data.
func (p *pool) release(s *slot) {
	if s.more {
		p.all[s.n], s.more = nil, false
		p.free = append(p.free, s.n)
	}
}
