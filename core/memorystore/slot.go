package memorystore

import (
	"sync/atomic"

	"github.com/tailcut/tailcut/core/machine"
)

// A slot holds the state of one key. A counter is in the slot itself, and so is a meter with
// nothing but a TAT. Other states are in an arena: trails, the states of ban policies, and
// meters with more than a TAT. The tags of the word say which. The word alone may hold a
// meter: see word.go.
type slot struct {
	hash      atomic.Uint64 // the key; 0 is none
	expires   int64         // when the key may be dropped: a meter's TAT, a counter's End
	word      atomic.Uint64 // a meter's Part, a counter's Count, or a tag and an index in an arena
	protected int64         // the key is not evicted before this instant
}

const (
	tagWord  = 1 << 63
	tagTrail = 3 << 61
	tagMeter = 2 << 61
	tagBans  = 1 << 61
	tags     = 3 << 61 // the bits of a tag, if tagWord is not set
)

func (s *slot) key() hash { return hash(s.hash.Load()) }

// clear gives the slot to another key, or to none if h is 0.
func (s *slot) clear(h hash) {
	s.word.Store(0)
	s.expires, s.protected = 0, 0
	s.hash.Store(uint64(h))
}

// move moves a key to another slot.
func (s *slot) move(to *slot) {
	s.unpack()
	to.word.Store(s.word.Load())
	to.expires, to.protected = s.expires, s.protected
	to.hash.Store(s.hash.Load())
}

// A rare holds the states that few shards have.
type rare struct {
	meters arena[machine.Meter]
	bans   arena[machine.Bans]
	shared map[overflowKey]overflow
}

// load fills in st, a zero State, from a slot. An expired state does not exist, but its trail
// is used again.
func (sh *shard) load(s *slot, r *machine.Rule, st *machine.State, now int64) {
	if r.Plain() {
		s.unpack()
	}
	st.Exists = s.expires > now
	word := s.word.Load()
	switch at := word &^ tags; word & tags {
	case tagTrail:
		st.Trail = sh.trails.at(at)
	case tagMeter:
		st.Meter = *sh.rare.meters.at(at)
	case tagBans:
		st.Bans = sh.rare.bans.at(at)
	default:
		if r.Metered() {
			s.meter(&st.Meter)
		} else {
			st.Counter = machine.Counter{Count: int64(word), End: s.expires}
		}
	}
}

// store writes a state to its slot.
func (sh *shard) store(s *slot, r *machine.Rule, st *machine.State) {
	s.expires, s.protected = r.Expires(st), r.RefusedUntil(st)
	special := r.ForgetAfter > 0 || st.Meter.Turns != 0 || st.Meter.Refunds != nil
	if sh.rare == nil && (special || st.Bans != nil) {
		sh.rare = new(rare)
	}
	word := s.word.Load()
	switch {
	case st.Trail != nil:
		if word == 0 {
			s.word.Store(tagTrail | sh.trails.add(st.Trail))
		}
	case st.Bans != nil:
		if word == 0 {
			s.word.Store(tagBans | sh.rare.bans.add(st.Bans))
		} else {
			*sh.rare.bans.at(word &^ tags) = *st.Bans
		}
	case special:
		if word&tags == 0 {
			s.word.Store(tagMeter | sh.rare.meters.add(&st.Meter))
		} else {
			*sh.rare.meters.at(word &^ tags) = st.Meter
		}
	case r.Metered():
		sh.release(word)
		s.word.Store(uint64(st.Meter.Part))
	default:
		s.word.Store(uint64(st.Counter.Count))
	}
}

// release frees a slot's entry in an arena.
func (sh *shard) release(word uint64) {
	switch at := word &^ tags; word & tags {
	case tagTrail:
		sh.trails.drop(at)
	case tagMeter:
		sh.rare.meters.drop(at)
	case tagBans:
		sh.rare.bans.drop(at)
	}
}

// protect keeps the key from being evicted until then.
func (s *slot) protect(until int64) { s.protected = max(s.protected, until) }

// pour decides a charge of a Plain rule on a slot with nothing in an arena.
func (s *slot) pour(r *machine.Rule, now, cost int64) machine.Verdict {
	var m machine.Meter
	s.meter(&m)
	v, until := r.Pour(&m, s.expires > now, now, cost)
	if v.Outcome == machine.Admitted {
		s.expires = m.Expires()
		s.word.Store(uint64(m.Part))
	}
	if until > 0 {
		s.protect(until)
	}
	return v
}

// meter fills in m from the slot. Returning m would cost a decision 5 ns.
func (s *slot) meter(m *machine.Meter) {
	m.TAT, m.Part = s.expires, uint32(s.word.Load())
	if m.Part > 0 {
		m.TAT--
	}
}

// An arena holds states that do not fit into a slot, in blocks that never move.
type arena[T any] struct {
	blocks []*[block]T
	used   uint64
	free   []uint32
}

// A block of trails is 256 bytes, small enough for the allocator to align it, so that each
// trail is one cache line.
const block = 4

func (a *arena[T]) at(i uint64) *T { return &a.blocks[i/block][i%block] }

func (a *arena[T]) add(v *T) (i uint64) {
	if n := len(a.free); n > 0 {
		i = uint64(a.free[n-1])
		a.free = a.free[:n-1]
	} else {
		if i = a.used; i%block == 0 {
			a.blocks = append(a.blocks, new([block]T))
		}
		a.used++
	}
	*a.at(i) = *v
	return i
}

func (a *arena[T]) drop(i uint64) {
	var zero T
	*a.at(i) = zero
	a.free = append(a.free, uint32(i))
}
