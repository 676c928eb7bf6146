package machine

import (
	"cmp"
	"math"
	"slices"
)

// Slots is the state of InFlight: the slots that are taken, in the order of At.
type Slots []Slot

// A Slot is one unit of a charge. At is the instant of the charge or of the last renewal. ID is
// unique among the slots of a state and never changes, so a release or a renewal can be repeated
// and never meets another action's slot. The slots of one charge have IDs in a row.
type Slot struct{ ID, At int64 }

func (*Slots) form() Form { return FormSlots }

func (s *State) slots() *Slots {
	q, _ := s.Other.(*Slots)
	return q
}

// slotID is the first ID of an instant. Those of another instant, less than six days away, are others.
// It is below 2^53, as Lua needs, and an instant has more IDs than there can be slots.
func slotID(at int64) int64 { return at & (1<<39 - 1) << 14 }

// slots is the machine of InFlight. A slot counts until it is released or its lease, which is the
// rule's period, has ended.
//
// check and read are written as in trail.go, and slots.lua has them from trail.lua. Calling them through
// an interface of the queue would make a charge of a SlidingWindow 12 % slower.
type slots struct{ plain }

func (*slots) args(r *Rule, b []int64, a Ask) []int64 {
	a.Cost = r.Takes(a.Cost)
	return windowArgs(r, b, a)
}

func (*slots) load(s *State, d *decoder) {
	q := Slots{}
	for at := d.instant(); ; at += d.int() {
		q = append(q, Slot{ID: at + d.instant(), At: at})
		if d.bad = d.bad || at > math.MaxInt64/4; len(d.rest) == 0 {
			break
		}
	}
	s.Other = &q
}

func (q Slots) newest() int64 { return q[len(q)-1].At }

// free is the instant from which there are slots for cost if none is released.
func (q Slots) free(r *Rule, cost int64) int64 {
	over := int64(len(q)) - (r.Max - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return q[over].At + r.Period
}

// live are the slots that were taken or renewed after an instant.
func (q Slots) live(after int64) Slots {
	n, _ := slices.BinarySearchFunc(q, after+1, func(x Slot, at int64) int { return cmp.Compare(x.At, at) })
	return q[n:]
}

func (*slots) check(r *Rule, s *State, now int64, a Ask) bool {
	q := s.slots()
	if !s.Exists || q == nil {
		s.Other, s.Exists = nil, false
		return a.forced() || a.Cost <= r.Max
	}
	s.ahead = max(0, q.newest()-now) // the clock stepped back
	return a.forced() || a.Cost <= r.Max && q.free(r, r.Takes(a.Cost))-s.ahead <= now
}

// charge takes slots. A surcharge takes none: its action has ended.
func (m *slots) charge(r *Rule, s *State, now int64, a Ask) {
	m.shift(s)
	cost := r.Takes(a.Cost)
	if a.forced() || cost == 0 {
		return
	}
	q := s.slots()
	if q == nil {
		q = new(Slots)
		s.Other = q
	}
	*q = append((*q)[:0], q.live(now-r.Period)...)
	first := q.unused(slotID(now), cost)
	q.take(first, cost, now)
	s.Mark, s.Exists, s.Dirty = first-slotID(now), true, true
}

// take appends the slots of a charge.
func (q *Slots) take(first, cost, now int64) {
	for i := range cost {
		*q = append(*q, Slot{ID: first + i, At: now})
	}
}

// unused is the first of cost IDs in a row that no slot has. It is from or later.
func (q Slots) unused(from, cost int64) int64 {
	for moved := true; moved; {
		moved = false
		for _, x := range q {
			if x.ID >= from && x.ID < from+cost {
				from, moved = x.ID+1, true
			}
		}
	}
	return from
}

func (m *slots) refuse(_ *Rule, s *State, _ int64, _ Ask, _ bool) { m.shift(s) }

// shift moves the leases back if the clock stepped back, so that none lasts longer than before.
func (*slots) shift(s *State) {
	if s.ahead > 0 {
		q := *s.slots()
		for i := range q {
			q[i].At -= s.ahead
		}
		s.ahead, s.Dirty = 0, true
	}
}

func (*slots) read(r *Rule, s *State, now, cost int64) {
	q, v := s.slots(), &s.Reading
	if q == nil {
		return
	}
	if v.Count = int64(len(q.live(now + s.ahead - r.Period))); v.Count == 0 {
		return
	}
	v.Rest.Whole = q.newest() - s.ahead + r.Period - now
	if cost <= r.Max {
		v.Wait = q.free(r, r.Takes(cost)) - s.ahead - now
	}
}

// amend releases or renews the slots of a charge if their lease has not ended. Their IDs tell them,
// so that it finds them also after the clock stepped back.
func (m *slots) amend(r *Rule, s *State, t Taken, now int64, a Amendment) bool {
	q := s.slots()
	if q == nil {
		return false
	}
	first := slotID(t.At) + t.Reading.Mark
	its := func(x Slot) bool { return x.ID >= first && x.ID < first+t.Cost }
	ahead := max(0, q.newest()-now)
	if !slices.ContainsFunc(q.live(now+ahead-r.Period), its) {
		return false
	}
	s.ahead = ahead
	m.shift(s)
	*q = slices.DeleteFunc(*q, its)
	if a.Verb == VerbRenew {
		q.take(first, t.Cost, now)
	}
	s.Exists = len(*q) > 0
	return true
}

func (*slots) save(s *State, b []byte) []byte {
	last := int64(0)
	for _, x := range *s.slots() {
		b = appendInts(b, x.At-last, x.ID-x.At)
		last = x.At
	}
	return b
}

func (*slots) reply(_ *Rule, n []int64, _ int64, dated bool) (v Reading, rest []int64) {
	v.Count, v.Rest.Whole, v.Wait, n = n[0]>>1, n[1], n[2], n[3:]
	if dated {
		v.Mark, n = n[0], n[1:]
	}
	return v, n
}

func (*slots) amendArgs(r *Rule, b []int64, t Taken, a Amendment) []int64 {
	renew := int64(0)
	if a.Verb == VerbRenew {
		renew = 1
	}
	return append(b, renew, r.Period, t.Reading.Mark, t.Cost)
}

func (*slots) expires(r *Rule, s *State) int64 { return s.slots().newest() + r.Period }

func (*slots) refuses(r *Rule, s *State) int64 { return s.slots().free(r, 1) }

// foreseen is false while slots are taken: each may be released at any moment.
func (*slots) foreseen(_ *Rule, v Reading, _ bool) bool { return v.Count == 0 }
