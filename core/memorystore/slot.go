package memorystore

import (
	"sync/atomic"
	"unsafe"

	"github.com/tailcut/tailcut/core/machine"
)

// A slot holds the state of one key: a counter, a meter with nothing but a TAT, or with the
// slot after it a trail of up to five instants. Of other states the rest is in an arena: the
// blocks of longer trails, the states of ban policies, and meters with more than a TAT. The
// tags of the word say which. The word alone may hold a meter: see word.go.
type slot struct {
	hash      atomic.Uint64 // the key; 0 is none
	expires   int64         // Rule.Expires: a plain meter's TAT, rounded up; a counter's End
	word      atomic.Uint64 // a meter's Part, a counter's Count, a trail's length; or a tag with a meter or an index in an arena
	protected int64         // the key is not evicted before this instant
}

// words are in the slot after the key's, in a wide table.
func (s *slot) words() *[machine.TrailWords]int64 {
	return (*[machine.TrailWords]int64)(unsafe.Add(unsafe.Pointer(s), unsafe.Sizeof(*s)))
}

const (
	tagBlocks = 3 << 61
	tagMeter  = 2 << 61
	tagBans   = 1 << 61
	tags      = 3 << 61 // the bits of a tag, if tagWord is not set
)

func (s *slot) key() hash { return hash(s.hash.Load()) }

// clear gives the slot to another key, or to none if h is 0.
func (s *slot) clear(h hash) {
	s.word.Store(0)
	s.expires, s.protected = 0, 0
	s.hash.Store(uint64(h))
}

// move copies a key to another cell. The caller overwrites or clears the first one.
func move(from, to []slot, wide int) {
	for i := range 1 << wide {
		to[i].word.Store(from[i].word.Load())
		to[i].expires, to[i].protected = from[i].expires, from[i].protected
		to[i].hash.Store(from[i].hash.Load())
	}
}

// load fills in st, a zero State, from an unpacked slot. An expired state does not exist, but
// the memory of its trail is used again.
func (t *table) load(s *slot, r *machine.Rule, st *machine.State, now int64) {
	st.Exists = s.expires > now
	word := s.word.Load()
	switch at := word &^ tags; {
	case word&tags == tagBlocks:
		st.Trail.UnpackBlocks(s.words(), t.arenas.blocks.at(at))
	case r.Kind.Form() == machine.FormTrail:
		st.Trail.Unpack(s.words(), int(word), s.expires-r.Period)
	case word&tags == tagMeter:
		st.Meter = *t.arenas.meters.at(at)
	case word&tags == tagBans:
		st.Bans = t.arenas.bans.at(at)
	case r.Kind.Form() == machine.FormMeter:
		s.meter(&st.Meter)
	default:
		st.Counter = machine.Counter{Count: int64(word), End: s.expires}
	}
}

// store writes a state to its slot.
func (t *table) store(s *slot, r *machine.Rule, st *machine.State) {
	s.expires = r.Expires(st)
	s.protect(r.RefusedUntil(st))
	special := r.ForgetAfter > 0 || st.Meter.Turns != 0 || st.Meter.Refunds != nil
	word := s.word.Load()
	switch {
	case r.Kind.Form() == machine.FormTrail:
		switch n, blocks := st.Trail.Pack(s.words()); {
		case blocks == nil:
			t.release(s)
			s.word.Store(uint64(n))
		case word&tags == 0:
			s.word.Store(tagBlocks | t.rest().blocks.add(blocks))
		default:
			*t.arenas.blocks.at(word &^ tags) = *blocks
		}
	case st.Bans != nil:
		if word == 0 {
			s.word.Store(tagBans | t.rest().bans.add(st.Bans))
		} else {
			*t.arenas.bans.at(word &^ tags) = *st.Bans
		}
	case special:
		if word&tags == 0 {
			s.word.Store(tagMeter | t.rest().meters.add(&st.Meter))
		} else {
			*t.arenas.meters.at(word &^ tags) = st.Meter
		}
	case r.Kind.Form() == machine.FormMeter:
		t.release(s)
		s.word.Store(uint64(st.Meter.Part))
	default:
		s.word.Store(uint64(st.Counter.Count))
	}
}

func (t *table) rest() *arenas {
	if t.arenas == nil {
		t.arenas = new(arenas)
	}
	return t.arenas
}

// release frees a slot's entry in an arena.
func (t *table) release(s *slot) {
	word := s.word.Load()
	switch at := word &^ tags; word & tags {
	case tagBlocks:
		t.arenas.blocks.drop(at)
	case tagMeter:
		t.arenas.meters.drop(at)
	case tagBans:
		t.arenas.bans.drop(at)
	}
}

// protect keeps the key from being evicted until then.
func (s *slot) protect(until int64) { s.protected = max(s.protected, until) }

// meter fills in m from the slot. Returning m would cost a decision 5 ns.
func (s *slot) meter(m *machine.Meter) {
	m.TAT, m.Part = s.expires, uint32(s.word.Load())
	if m.Part > 0 {
		m.TAT--
	}
}

func (s *slot) until() int64 { return s.expires }
