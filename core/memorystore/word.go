package memorystore

import (
	"math/bits"

	"github.com/tailcut/tailcut/core/internal/mono"
	"github.com/tailcut/tailcut/core/machine"
)

// The meter of a [machine.Rule.Plain] rule is an instant and a part of a microsecond. If both
// fit into the slot's word, a compare-and-swap of the word decides without the lock. From the
// high bits down, such a word is
//
//	 1  tagWord
//	 3  how many bits the part has
//	54  the instant and the part
//	 6  of the key
//
// A charge takes the lock if the key is not found or its meter is in the slot's fields, if the
// clock stepped back, and if the user is refused after it, or a cost above 1 is refused: the key
// must then be protected from eviction. A holder of the lock unpacks a slot, and then reads the
// clock: the meter is in the slot's fields, no swap succeeds, and none was at a later instant.
//
// A swap that was held up may find another key in the slot, whose key was dropped meanwhile.
// It charges that key only if the word is the same: the instant to the microsecond, the part
// and six bits of the key.
const (
	partAt    = 60
	meterBits = 54
	keyBits   = 6
	maxPart   = 7 // bits of a part
)

// packs reports whether the rule's meters fit into the word as long as their instants do.
func packs(r *machine.Rule) bool { return r.Plain() && r.Parts <= 1<<maxPart }

// swap decides a charge of a meter that is in its word. Otherwise the verdict is Undecided.
func (s *Store) swap(t *table, h hash, r *machine.Rule, cost int64) (v machine.Verdict, at mono.Time) {
	slots := t.unlocked()
	i, found := search(h, slots, 0)
	if !found {
		return v, 0
	}
	now, at := s.now()
	for slot := &slots[i]; ; {
		word := slot.word.Load()
		if word < tagWord || (word^uint64(h>>32))%(1<<keyBits) != 0 || slot.key() != h {
			return machine.Verdict{}, 0
		}
		var m machine.Meter
		decode(&m, word)
		v, until := r.Pour(&m, true, now, cost)
		if v.Outcome == machine.Refused {
			// The word may have a charge from after now, and its debt then seemed larger. To read
			// the clock here for every charge would slow two callers of one key by 40 ns.
			if again, later := s.now(); again != now {
				now, at = again, later
				v, until = r.Pour(&m, true, now, cost)
			}
		}
		// The charge that left no room has protected the key, unless the clock stepped back since.
		if v.Outcome == machine.Refused && cost == 1 {
			return v, at
		}
		next, fits := encode(h, &m, word>>partAt%8)
		if v.Outcome != machine.Admitted || until > 0 || !fits {
			return machine.Verdict{}, 0
		}
		if slot.word.CompareAndSwap(word, next) {
			return v, at
		}
	}
}

// encode returns the word of a meter, if it fits.
func encode(h hash, m *machine.Meter, part uint64) (word uint64, fits bool) {
	word = tagWord | part<<partAt | (uint64(m.TAT)<<part|uint64(m.Part))<<keyBits | uint64(h>>32)%(1<<keyBits)
	return word, uint64(m.TAT)>>(meterBits-part) == 0
}

func decode(m *machine.Meter, word uint64) {
	part, meter := word>>partAt%8, word>>keyBits%(1<<meterBits)
	m.TAT, m.Part = int64(meter>>part), uint32(meter&(1<<part-1))
}

// pack moves the meter of an unpacked slot into the word, if it fits.
func (s *slot) pack(r *machine.Rule) {
	if !packs(r) || s.word.Load()&tags != 0 {
		return
	}
	var m machine.Meter
	s.meter(&m)
	if word, fits := encode(s.key(), &m, uint64(bits.Len64(uint64(r.Parts-1)))); fits {
		s.word.Store(word)
	}
}

// unpack undoes pack. The caller holds the lock.
func (s *slot) unpack() {
	if s.word.Load() < tagWord {
		return
	}
	var m machine.Meter
	decode(&m, s.word.Swap(0))
	s.expires = m.Expires()
	s.word.Store(uint64(m.Part))
}

// until is when the key may be dropped, whether the slot is packed or not.
func (s *slot) until() int64 {
	word := s.word.Load()
	if word < tagWord {
		return s.expires
	}
	var m machine.Meter
	decode(&m, word)
	return m.Expires()
}
