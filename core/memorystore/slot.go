package memorystore

// A slot of a table: how it holds a state.

import "github.com/tailcut/tailcut/core/machine"

// A slot holds the state of one key.
type slot struct {
	key       hash   // 0: the slot is empty
	expires   int64  // the state's Expires
	protected int64  // the key is not dropped for another one before this instant
	n         uint32 // the state's N, or the index of its More
	more      bool
}

// A pool has the More of the states of a table that have one.
type pool struct {
	all  []machine.More
	free []uint32 // indices
}

// load returns the state of a slot. An expired one may leave its memory to the next one.
func (t *table) load(s *slot) machine.State {
	if s.more {
		return machine.State{Expires: s.expires, More: t.pool.all[s.n]}
	}
	return machine.State{Expires: s.expires, N: s.n}
}

// store writes a state to its slot.
func (t *table) store(s *slot, state *machine.State) {
	s.expires = state.Expires
	switch {
	case state.More == nil:
		t.pool.release(s)
		s.n = state.N
		return
	case !s.more:
		s.n, s.more = t.pool.place(), true
	}
	t.pool.all[s.n] = state.More
}

// protect keeps the key from being dropped for another one until then.
func (s *slot) protect(until int64) { s.protected = max(s.protected, until) }

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

// release frees the place of a slot's More.
func (p *pool) release(s *slot) {
	if s.more {
		p.all[s.n], s.more = nil, false
		p.free = append(p.free, s.n)
	}
}
