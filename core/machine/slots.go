package machine

import (
	"cmp"
	"math"
	"slices"
)

// slotList is the state of InFlight: the slots that are taken, sorted by At.
type slotList []slot

// A slot is one unit of a charge. At is the instant of the charge or of its last renewal. ID is
// unique among the slots of a state and does not change. It depends on the instant of the charge. So
// a repeated release or renewal practically never finds the slot of another action. The slots of one
// charge have consecutive IDs.
type slot struct{ ID, At int64 }

func (*slotList) form() Form { return FormSlots }

// slots returns the slots of a state that has not expired, or nil.
func (s State) slots(now int64) slotList {
	if q, _ := s.Data.(*slotList); q != nil && s.Expires > now {
		return *q
	}
	return nil
}

// slotID returns the first ID for slots that are taken at an instant. Instants less than six days
// apart have different IDs, and each instant has more IDs than there can be slots. On Redis the IDs
// are random.
func slotID(at int64) int64 { return at & (1<<39 - 1) << 14 }

// slots is the machine of InFlight. A slot counts until it is released or its lease ends. The lease
// is the rule's period.
//
// check and read are written as in trail.go, and slots.lua calls check and read of trail.lua.
// Sharing the Go code through an interface would make a charge of a SlidingWindow 12 % slower.
type slots struct{ plain }

func (*slots) load(r *Rule, d *decoder) State {
	q := slotList{}
	for at := d.instant(); ; at += d.int() {
		q = append(q, slot{ID: at + d.instant(), At: at})
		if d.bad = d.bad || at > math.MaxInt64/4; len(d.rest) == 0 {
			break
		}
	}
	return q.state(r)
}

func (q *slotList) state(r *Rule) State {
	if len(*q) == 0 {
		return State{}
	}
	return State{Expires: q.newest() + r.Period, Data: q}
}

// newest returns the instant at which the last slot was taken or renewed, or an instant long ago if
// there is none.
func (q slotList) newest() int64 {
	if len(q) == 0 {
		return math.MinInt64 / 2
	}
	return q[len(q)-1].At
}

// behind returns how far now is before the newest slot, because the clock stepped back.
func (q slotList) behind(now int64) int64 { return max(0, q.newest()-now) }

// free returns the instant at which cost fits if no slot is released.
func (q slotList) free(r *Rule, cost int64) int64 {
	over := int64(len(q)) - (r.Max - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return q[over].At + r.Period
}

// live returns the slots that were taken or renewed after an instant.
func (q slotList) live(after int64) slotList {
	n, _ := slices.BinarySearchFunc(q, after+1, func(x slot, at int64) int { return cmp.Compare(x.At, at) })
	return q[n:]
}

func (*slots) check(r *Rule, now, cost int64, a *Ask, s State) (_ State, fits, changed bool) {
	q := s.slots(now)
	return s, a.Mode.forced() || cost <= r.Max && q.free(r, r.Takes(cost))-q.behind(now) <= now, false
}

// charge takes slots. A charge with ModeForce or ModeOwe takes none, because its action has ended.
// If the action holds enough slots already, its charge takes none.
func (m *slots) charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, first int64, _ State, changed bool) {
	if cost = r.Takes(cost); a.Mode.forced() || cost == 0 {
		return m.refuse(r, now, 1, false, s)
	}
	live := s.slots(now)
	live.shift(now)
	q, _ := s.Data.(*slotList)
	if q == nil {
		q = new(slotList)
	}
	*q = append((*q)[:0], live.live(now-r.Period)...)
	first = q.unused(slotID(now), cost)
	q.take(first, cost, now)
	s = q.state(r)
	v, _ = m.read(r, now, 1, s)
	return v, first, s, true
}

// take appends cost slots, whose IDs start at first.
func (q *slotList) take(first, cost, now int64) {
	for i := range cost {
		*q = append(*q, slot{ID: first + i, At: now})
	}
}

// unused returns the first of cost consecutive IDs that no slot has. The IDs are from or higher.
func (q slotList) unused(from, cost int64) int64 {
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

func (m *slots) refuse(r *Rule, now, cost int64, _ bool, s State) (v numbers, _ int64, _ State, changed bool) {
	q := s.slots(now)
	if changed = q.shift(now); changed {
		s.Expires = q.newest() + r.Period
	}
	v, _ = m.read(r, now, cost, s)
	return v, 0, s, changed
}

// shift moves all leases back if the clock stepped back, so that none lasts longer than before.
func (q slotList) shift(now int64) (moved bool) {
	behind := q.behind(now)
	for i := range q {
		q[i].At -= behind
	}
	return behind > 0
}

func (*slots) read(r *Rule, now, cost int64, s State) (v numbers, _ int64) {
	q := s.slots(now)
	at := now + q.behind(now)
	if v.Count = int64(len(q.live(at - r.Period))); v.Count == 0 {
		return
	}
	v.Rest.Whole = q.newest() + r.Period - at
	if cost <= r.Max {
		v.Wait = q.free(r, r.Takes(cost)) - at
	}
	return
}

// amend releases or renews the slots of a charge. If their lease has ended, it changes nothing. It
// finds the slots by their IDs, so it also works after the clock stepped back.
func (*slots) amend(r *Rule, now int64, t Taken, a Amendment, s State) (State, bool) {
	q, _ := s.Data.(*slotList)
	first := t.Reading.Detail
	ofCharge := func(x slot) bool { return x.ID >= first && x.ID < first+t.Cost }
	if !slices.ContainsFunc(q.live(now+q.behind(now)-r.Period), ofCharge) {
		return s, false
	}
	q.shift(now)
	*q = slices.DeleteFunc(*q, ofCharge)
	if a.Verb == VerbRenew {
		q.take(first, t.Cost, now)
	}
	return q.state(r), true
}

func (*slots) save(_ *Rule, b []byte, s State) []byte {
	last := int64(0)
	for _, x := range *s.Data.(*slotList) {
		b = appendInts(b, x.At-last, x.ID-x.At)
		last = x.At
	}
	return b
}

// predictable is false while slots are taken, because each can be released at any moment.
func (*slots) predictable(_ *Rule, v Reading, _ bool) bool { return v.Count == 0 }
