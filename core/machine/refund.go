package machine

import "slices"

// Taken is what an admitted ask has charged: Cost units at the instant At. Reading is the
// state's reading just after the charge.
type Taken struct {
	At, Cost int64
	Reading  Reading
}

// Refund gives units of t back to the state as it is kept now. The state then has no more
// room than if the action had never happened, except that a bucket with Initial stays
// started. Refund sets Dirty if the state is to be written, and clears Exists if the state
// is to be deleted.
func (r *Rule) Refund(s *State, t *Taken, now, units int64) {
	s.Dirty = false
	if !s.Exists || now < t.At {
		return
	}
	switch r.Kind {
	case KindFixedWindow, KindElasticWindow:
		s.Dirty = r.refundCounter(s, t, now, units)
	case KindTokenBucket, KindFunnel:
		s.Dirty = r.refundMeter(s, t, now, units)
	case KindSlidingWindow, KindSlidingRefused, KindMovingWindow:
		s.Dirty = r.refundTrail(s, t, now, units)
	}
}

func (r *Rule) refundCounter(s *State, t *Taken, now, units int64) bool {
	c := &s.Counter
	if r.Kind == KindElasticWindow {
		if now >= t.At+r.Period {
			return false // the charge may belong to an earlier window
		}
	} else {
		opened := t.Reading.Count == t.Cost && units == t.Cost
		if c.End != t.At+t.Reading.Rest.Whole || opened && c.Count > units {
			return false
		}
	}
	c.Count -= units
	s.Exists = c.Count > 0
	return true
}

// maxSince bounds how many later entries move when one is removed.
const maxSince = 1 << 16

func (r *Rule) refundTrail(s *State, t *Taken, now, units int64) bool {
	trail := &s.Trail
	if r.Kind == KindSlidingRefused && int64(trail.Len()-trail.dead(now-r.Period)) >= r.Max {
		return false // older entries that still count may have been dropped for newer ones
	}
	to := trail.dead(t.At)
	from := max(trail.dead(t.At-1), to-int(units))
	if from == to || r.Kind == KindMovingWindow && trail.Len()-to > maxSince {
		return false
	}
	trail.remove(from, to)
	s.Exists = trail.n > 0
	return true
}

// refundMeter takes the units' time from the debt. It takes at most what is left of the debt
// after the charge, and of the debt after any refund since: the rest was charged by other
// actions, or has drained. While turns are reserved, only the last one can be given back:
// else a later turn would come too early.
func (r *Rule) refundMeter(s *State, t *Taken, now, units int64) bool {
	m := &s.Meter
	at := Span{m.TAT, int64(m.Part)}
	after := Span{t.At + t.Reading.Rest.Whole, t.Reading.Rest.Part}
	left := m.Refunds.limit(after, t.Reading.Refund)
	if left.exceeds(at) { // the debt was cut when the clock stepped back
		left = at
	}
	left.Whole -= now
	switch {
	case left.Whole < 0 || left == (Span{}) || m.gone() <= now:
		return false
	case m.Turns != 0 && at != after && m.debt(now).exceeds(r.Burst):
		return false
	}
	give := r.Time(units)
	if give.exceeds(left) {
		give = left
	}
	before := at.Ceil()
	at = at.sub(give, r.Parts)
	m.Refunds = m.Refunds.add(at, give, before, t.Reading.Refund, r.Parts, now)
	m.TAT, m.Part = at.Whole, uint32(at.Part)
	return true
}

// Refunds is what a meter remembers of refunds, so that no time is given back twice. It is
// replaced, never changed.
type Refunds struct {
	Until int64    // when all that was charged before the last refund has drained
	After []Refund // oldest first, each TAT later than the one before
}

// A Refund is the debt of a meter just after a refund.
type Refund struct {
	Number int64 // a later refund has a higher one
	TAT    int64
	Part   uint32
}

// maxRefunds is how many refunds a meter remembers.
const maxRefunds = 8

func (f *Refunds) last() int64 {
	if f == nil {
		return 0
	}
	return f.After[len(f.After)-1].Number
}

// limit is the TAT up to which a charge may be given back. The charge knew of the refunds up
// to known, and the TAT was after just after it.
func (f *Refunds) limit(after Span, known int64) Span {
	if f == nil {
		return after
	}
	for i := range f.After {
		if f.After[i].Number > known { // the first such entry has the least TAT
			if at := f.After[i].tat(); after.exceeds(at) {
				return at
			}
			break
		}
	}
	return after
}

func (f *Refund) tat() Span { return Span{f.TAT, int64(f.Part)} }

// add adds a refund at the instant now: gave is the time that it gave back, at and before
// are the TAT after it and before it. The charge knew of the refunds up to known. Without
// the charge, the TAT after each later refund would have been less by gave.
//
// A refund replaces earlier ones with no lower TAT, and all earlier ones if its TAT is past.
// If there are too many, the two with the nearest TATs become one, with the lower TAT.
func (f *Refunds) add(at, gave Span, before, known, parts, now int64) *Refunds {
	next := &Refunds{Until: before}
	push := func(number int64, at Span) {
		for n := len(next.After); n > 0 && !at.exceeds(next.After[n-1].tat()); n-- {
			next.After = next.After[:n-1]
		}
		if at.Whole < now {
			next.After = next.After[:0]
		}
		next.After = append(next.After, Refund{number, at.Whole, uint32(at.Part)})
	}
	if f != nil {
		next.Until, next.After = max(before, f.Until), make([]Refund, 0, len(f.After)+1)
		for i := range f.After {
			left := f.After[i].tat()
			if f.After[i].Number > known {
				left = left.sub(gave, parts)
			}
			push(f.After[i].Number, left)
		}
	}
	push(max(f.last()+1, now), at)
	if n := len(next.After); n > maxRefunds {
		nearest := 0
		for i := range n - 1 {
			if next.After[i+1].TAT-next.After[i].TAT < next.After[nearest+1].TAT-next.After[nearest].TAT {
				nearest = i
			}
		}
		next.After[nearest].Number = next.After[nearest+1].Number
		next.After = slices.Delete(next.After, nearest+1, nearest+2)
	}
	return next
}
