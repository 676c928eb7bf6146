package machine

// Meter is the state of a bucket or funnel: the instant at which its debt ends. The funnel
// is then empty, or the bucket full. A charge moves the instant into the future, and nothing
// moves as time passes. This is the virtual scheduling form of the generic cell rate
// algorithm ([ITU-T I.371]), which calls the instant the theoretical arrival time (TAT).
//
// [ITU-T I.371]: https://www.itu.int/rec/T-REC-I.371
type Meter struct {
	TAT    int64  // microseconds, rounded down
	Part   uint32 // the fraction Part/Parts of a microsecond
	Forget int64  // when the state is forgotten; only for a bucket with Initial

	// Turns, if not 0, is the instant of the last reservation. The debt may then exceed
	// the quota, by the turns that waiting callers have reserved.
	Turns int64

	Refunds *Refunds // the refunds that still matter
}

// Expires is the instant from which the store need not keep the meter of a [Rule.Plain]
// rule.
func (m *Meter) Expires() int64 {
	if m.Refunds != nil {
		return max(m.gone(), m.Refunds.Until)
	}
	return m.gone()
}

// gone is the first instant without debt.
func (m *Meter) gone() int64 { return Span{m.TAT, int64(m.Part)}.Ceil() }

func (m *Meter) refusedUntil(r *Rule) int64 {
	return Span{m.TAT, int64(m.Part)}.add(r.Emission, r.Parts).sub(r.Burst, r.Parts).Ceil()
}

// debt is what the meter owes now.
func (m *Meter) debt(now int64) Span {
	if m.TAT < now {
		return Span{}
	}
	return Span{m.TAT - now, int64(m.Part)}
}

func (m *Meter) set(now int64, debt Span) { m.TAT, m.Part = now+debt.Whole, uint32(debt.Part) }

// pour adds a cost to a debt, and reports whether a burst has room for both.
func (r *Rule) pour(debt Span, cost int64, burst Span) (Span, bool) {
	after := debt.add(r.Time(cost), r.Parts)
	return after, !after.exceeds(burst)
}

// Room is how many units fit into a meter with that debt.
func (r *Rule) Room(debt Span) int64 {
	if debt.exceeds(r.Burst) { // turns are reserved
		return 0
	}
	return r.units(r.Burst.sub(debt, r.Parts))
}

// Delay is how long, in microseconds, a cost waits until it fits into a meter with that
// debt. It is not positive if the cost fits now.
func (r *Rule) Delay(debt Span, cost int64) int64 {
	return debt.add(r.Time(cost), r.Parts).sub(r.Burst, r.Parts).Ceil()
}

// Pour is [Rule.Decide] for a [Rule.Plain] rule, a cost of 1 to Max, and a meter without
// turns and refunds, in a third of the time. exists says whether the store keeps the meter.
// If the cost is admitted, the store writes m back, and until is the instant before which a
// cost of 1 is refused, or 0. If it is refused, until is the instant at which it fits. If the
// clock stepped back, the verdict is Undecided.
func (r *Rule) Pour(m *Meter, exists bool, now, cost int64) (v Verdict, until int64) {
	var debt Span
	if exists {
		if debt = m.debt(now); debt.exceeds(r.Burst) {
			return v, 0
		}
	}
	v.Outcome = Refused
	next, fits := r.pour(debt, cost, r.Burst)
	if fits {
		v.Outcome, debt = Admitted, next
		m.set(now, next)
		next = next.add(r.Emission, r.Parts)
	}
	v.Rest = debt
	if next.exceeds(r.Burst) {
		until = now + next.sub(r.Burst, r.Parts).Ceil()
	}
	return v, until
}

// checkMeter brings the meter to now, and sets s.next, the debt after the charge.
func (r *Rule) checkMeter(s *State, now int64, a *Ask) bool {
	m := &s.Meter
	if s.Exists && r.ForgetAfter > 0 {
		s.Exists = now < m.Forget
	}
	debt := r.Start
	if s.Exists {
		debt, s.Dirty = r.settled(m, now)
		if m.Refunds != nil && (s.Dirty || m.Refunds.Until <= now) {
			m.Refunds = nil
		}
		// The clock stepped back, or another limiter has a longer ForgetAfter.
		if r.ForgetAfter > 0 && m.Forget > now+r.ForgetAfter && m.Turns == 0 {
			m.Forget = now + r.ForgetAfter
			s.Dirty = true
		}
	} else {
		m.Turns, m.Refunds = 0, nil
	}
	m.set(now, debt)
	burst := r.Burst
	burst.Whole += a.Ahead
	var fits bool
	s.next, fits = r.pour(debt, min(a.Cost, r.Max), burst)
	if a.Mode == Force {
		if !fits { // charge what there is room for
			s.next = r.Burst
			if debt.exceeds(r.Burst) {
				s.next = debt
			}
		}
		return true
	}
	return fits && a.Cost <= r.Max
}

// settled is the debt now. A debt above the burst without turns means that the clock stepped
// back, and the debt is cut. If turns are reserved, they move back with the clock.
func (r *Rule) settled(m *Meter, now int64) (debt Span, cut bool) {
	if back := m.Turns - now; back > 0 {
		m.TAT, m.Turns, cut = m.TAT-back, now, true
		if r.ForgetAfter > 0 {
			m.Forget -= back
		}
	}
	if debt = m.debt(now); debt.exceeds(r.Burst) && m.Turns == 0 {
		return r.Burst, true
	}
	return debt, cut
}

func (r *Rule) chargeMeter(s *State, now int64) {
	m, turn := &s.Meter, now
	m.set(now, s.next)
	if m.Turns = 0; s.next.exceeds(r.Burst) {
		m.Turns = now
		turn += s.next.sub(r.Burst, r.Parts).Ceil()
	}
	if r.ForgetAfter > 0 {
		m.Forget = turn + r.ForgetAfter
	}
}
