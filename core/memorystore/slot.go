package memorystore

import "github.com/tailcut/tailcut/core/machine"

// A meter and a counter stand in their slot. The tags say what stands in an arena: a trail, a
// ban policy's state, and a meter of which more is known than when its debt is gone.
const (
	tagTrail = 1 << 63
	tagMeter = 1 << 62
	tagBans  = tagTrail | tagMeter
	tags     = tagBans
)

type rare struct {
	meters arena[machine.Meter]
	bans   arena[machine.Bans]
	shared map[overflowKey]overflow
}

// load brings what a slot keeps into the zero state. What has expired is not kept, but its
// trail is used again.
func (sh *shard) load(s *slot, r *machine.Rule, st *machine.State, now int64) {
	st.Exists = s.expires > now
	switch at := s.word &^ tags; s.word & tags {
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
			st.Counter = machine.Counter{Count: int64(s.word), End: s.expires}
		}
	}
}

// store writes a state to its slot.
func (sh *shard) store(s *slot, r *machine.Rule, st *machine.State) {
	s.expires, s.refused = r.Expires(st), r.RefusedUntil(st)
	special := r.ForgetAfter > 0 || st.Meter.Turns != 0 || st.Meter.Refunds != nil
	if sh.rare == nil && (special || st.Bans != nil) {
		sh.rare = new(rare)
	}
	switch {
	case st.Trail != nil:
		if s.word == 0 {
			s.word = tagTrail | sh.trails.add(st.Trail)
		}
	case st.Bans != nil:
		if s.word == 0 {
			s.word = tagBans | sh.rare.bans.add(st.Bans)
		} else {
			*sh.rare.bans.at(s.word &^ tags) = *st.Bans
		}
	case special:
		if s.word&tags == 0 {
			s.word = tagMeter | sh.rare.meters.add(&st.Meter)
		} else {
			*sh.rare.meters.at(s.word &^ tags) = st.Meter
		}
	case r.Metered():
		sh.release(s.word)
		s.word = uint64(st.Meter.Part)
	default:
		s.word = uint64(st.Counter.Count)
	}
}

// release gives back what a slot has in an arena.
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

// refuse protects the key from eviction until then.
func (s *slot) refuse(until int64) { s.refused = max(s.refused, until) }

// pour decides a charge of a Plain rule on a slot with nothing in an arena.
func (s *slot) pour(r *machine.Rule, now, cost int64) machine.Verdict {
	var m machine.Meter
	s.meter(&m)
	v, until := r.Pour(&m, s.expires > now, now, cost)
	if v.Outcome == machine.Admitted {
		s.expires, s.word = m.Expires(), uint64(m.Part)
	}
	if until > 0 {
		s.refuse(until)
	}
	return v
}

// meter is the meter that stands in the slot. It fills m in, since a struct that is
// copied while it is new costs a decision 5 ns.
func (s *slot) meter(m *machine.Meter) {
	m.TAT, m.Part = s.expires, uint32(s.word)
	if m.Part > 0 {
		m.TAT--
	}
}

// An arena holds what does not fit into a slot, in blocks that never move.
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
