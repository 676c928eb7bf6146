package machine

import "slices"

// Taken is what an admitted ask has taken from a state: Cost units at the instant At. Reading
// is the state's, just after that.
type Taken struct {
	At, Cost int64
	Reading  Reading
}

// Refund gives units of it back to the state as it is kept now. It gives no more than if
// the action had never happened. It sets Dirty if the state is to be written, and clears
// Exists if the state is to be deleted.
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
			return false // the window may be another
		}
	} else {
		opened := t.Reading.Count == t.Cost && units == t.Cost
		if c.End != t.At+t.Reading.Rest.Whole || opened && c.Count > units {
			return false
		}
	}
	c.Count -= units
	s.Exists = c.Count > 0 // or it is whole
	return true
}

// maxSince bounds how many entries move up when one is taken out.
const maxSince = 1 << 16

func (r *Rule) refundTrail(s *State, t *Taken, now, units int64) bool {
	trail := s.Trail
	if r.Kind == KindSlidingRefused && int64(trail.Len()-trail.dead(now-r.Period)) >= r.Max {
		return false // older entries may have made room for newer ones
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

// refundMeter takes time from the debt: that of the units, but no more than would be left
// of the debt after the charge, or after any refund since. What others charged since is
// not the action's to give back, nor is what has drained by itself. While turns are to
// come only the last one is given back: a turn behind it would come too early.
func (r *Rule) refundMeter(s *State, t *Taken, now, units int64) bool {
	m := &s.Meter
	at := Span{m.TAT, int64(m.Part)}
	after := Span{t.At + t.Reading.Rest.Whole, t.Reading.Rest.Part}
	left := m.Refunds.limit(after, t.Reading.Refund)
	if left.exceeds(at) { // the clock stepped back and has cut the debt
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

// Refunds is what a meter remembers of refunds, so that none gives back what others have
// given back already. It is replaced, not changed.
type Refunds struct {
	Until int64    // when all is drained that was charged before the last refund
	After []Refund // oldest first, each debt later than the one before
}

// A Refund is the debt of a meter just after a refund.
type Refund struct {
	Number int64 // it grows
	TAT    int64
	Part   uint32
}

// maxRefunds is how many refunds are kept apart.
const maxRefunds = 8

func (f *Refunds) last() int64 {
	if f == nil {
		return 0
	}
	return f.After[len(f.After)-1].Number
}

// limit is when all is drained that may be given back of a charge that knew of the refunds
// up to known, and after which the debt was to be gone at after.
func (f *Refunds) limit(after Span, known int64) Span {
	if f == nil {
		return after
	}
	for i := range f.After {
		if f.After[i].Number > known { // and the later debts are higher
			if at := f.After[i].tat(); after.exceeds(at) {
				return at
			}
			break
		}
	}
	return after
}

func (f *Refund) tat() Span { return Span{f.TAT, int64(f.Part)} }

// add adds a refund, at the instant now, of a charge that knew of those up to known: what
// it gave, when the debt is gone, and when it was to be gone before. Without that charge
// the debt would have been less by as much after the refunds that it did not know of. A
// refund speaks for those before it that left no less, and the last one that is over, for
// all of them. If there are too many, the two nearest to each other become one, the lower.
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
