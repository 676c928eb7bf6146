package memorystore

import (
	"math/bits"

	"github.com/tailcut/tailcut/core/machine"
)

// The meter of a [machine.Rule.Plain] rule is an instant and a part of a microsecond. If both
// fit into the slot's word, a compare-and-swap of the word decides without the lock. From the
// high bits down, such a word is
//
//	 1  tagWord
//	 3  how many bits the part has
//	54  the instant and the part
//	 6  of the key, so that a late swap does not charge another key in the same slot
//
// The lock is taken for a key that is not found, if the clock stepped back, and for a charge
// after which the user is refused, since that protects the key from eviction. A holder of the
// lock settles a slot before it uses it: then the meter stands there as others do, and no
// swap succeeds.
const (
	partAt    = 60
	meterBits = 54
	keyBits   = 6
)

// swap decides a charge of a meter that stands in its word. It leaves others undecided.
func (sh *shard) swap(h hash, r *machine.Rule, now, cost int64) (v machine.Verdict) {
	slots := sh.unlocked()
	at, found := search(h, slots)
	if !found {
		return v
	}
	for s := &slots[at]; ; {
		word := s.word.Load()
		if word < tagWord || (word^uint64(h>>32))%(1<<keyBits) != 0 || s.key() != h {
			return machine.Verdict{}
		}
		var m machine.Meter
		unpack(&m, word)
		v, until := r.Pour(&m, true, now, cost)
		if v.Outcome != machine.Admitted {
			return v
		}
		next, fits := pack(h, &m, word>>partAt%8)
		if until > 0 || !fits {
			return machine.Verdict{}
		}
		if s.word.CompareAndSwap(word, next) {
			return v
		}
	}
}

// pack is the word of a meter, if it fits.
func pack(h hash, m *machine.Meter, part uint64) (word uint64, fits bool) {
	word = tagWord | part<<partAt | (uint64(m.TAT)<<part|uint64(m.Part))<<keyBits | uint64(h>>32)%(1<<keyBits)
	return word, uint64(m.TAT)>>(meterBits-part) == 0
}

func unpack(m *machine.Meter, word uint64) {
	part, meter := word>>partAt%8, word>>keyBits%(1<<meterBits)
	m.TAT, m.Part = int64(meter>>part), uint32(meter&(1<<part-1))
}

// pack makes the meter of a settled slot stand in its word, if it is one that can.
func (s *slot) pack(r *machine.Rule) {
	part := bits.Len64(uint64(r.Parts - 1))
	if part >= 8 || s.word.Load()&tags != 0 {
		return
	}
	var m machine.Meter
	s.meter(&m)
	if word, fits := pack(s.key(), &m, uint64(part)); fits {
		s.word.Store(word)
	}
}

// settle undoes pack. It is for the holder of the lock.
func (s *slot) settle() {
	if s.word.Load() < tagWord {
		return
	}
	var m machine.Meter
	unpack(&m, s.word.Swap(0))
	s.expires = m.Expires()
	s.word.Store(uint64(m.Part))
}

// until is when the key may be dropped, of a slot that need not be settled.
func (s *slot) until() int64 {
	word := s.word.Load()
	if word < tagWord {
		return s.expires
	}
	var m machine.Meter
	unpack(&m, word)
	return m.Expires()
}
