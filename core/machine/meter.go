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

// at is the TAT with its fraction.
func (m *Meter) at() Span { return Span{m.TAT, int64(m.Part)} }

// debt is what the meter owes now.
func (m *Meter) debt(now int64) Span {
	if m.TAT < now {
		return Span{}
	}
	return Span{m.TAT - now, int64(m.Part)}
}

func (m *Meter) set(now int64, debt Span) { m.TAT, m.Part = now+debt.Whole, uint32(debt.Part) }

// meter is the machine of buckets and funnels.
type meter struct{}

func (meter) args(r *Rule, b []int64, a Ask) []int64 {
	cost := r.Time(min(a.Cost, r.Max+1))
	b = append(b, cost.Whole, r.Burst.Whole, r.Parts, cost.Part, r.Burst.Part)
	if r.ForgetAfter > 0 {
		b = append(b, r.Start.Whole, r.Start.Part, r.ForgetAfter)
	}
	return b
}

func (meter) load(s *State, d *decoder) {
	m := &s.Meter
	*m = Meter{TAT: d.int(), Part: d.part(), Forget: d.int(), Turns: d.int()}
	if len(d.rest) > 0 {
		m.Refunds = loadRefunds(d)
	}
}

// check brings the meter to now, and sets s.next, the debt after the charge.
func (meter) check(r *Rule, s *State, now int64, a Ask) bool {
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
	s.next = debt.add(r.Time(min(a.Cost, r.Max)), r.Parts)
	fits := a.Cost <= r.Max && !s.next.exceeds(burst)
	if a.Mode == Force {
		if s.next.exceeds(r.Burst) { // charge what there is room for
			s.next = r.Burst
			if debt.exceeds(r.Burst) {
				s.next = debt
			}
		}
		return true
	}
	return fits
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

func (meter) charge(r *Rule, s *State, now int64, _ Ask) {
	m, turn := &s.Meter, now
	m.set(now, s.next)
	if m.Turns = 0; s.next.exceeds(r.Burst) {
		m.Turns = now
		turn += s.next.sub(r.Burst, r.Parts).Ceil()
	}
	if r.ForgetAfter > 0 {
		m.Forget = turn + r.ForgetAfter
	}
	s.Exists, s.Dirty = true, true
}

// refuse starts a bucket with Initial that has not been used before.
func (meter) refuse(r *Rule, s *State, now int64, a Ask, record bool) {
	if record && r.refused(s, a) && r.ForgetAfter > 0 && !s.Exists {
		s.Meter.Forget = now + r.ForgetAfter
		s.Exists, s.Dirty = true, true
	}
}

func (meter) read(_ *Rule, s *State, now int64, _ Ask) {
	s.Reading.Rest, s.Reading.Refund = Span{s.Meter.TAT - now, int64(s.Meter.Part)}, s.Meter.Refunds.last()
}

// refund takes the units' time from the debt. It takes at most what is left of the debt
// after the charge, and of the debt after any refund since: the rest was charged by other
// actions, or has drained. While turns are reserved, only the last one can be given back:
// else a later turn would come too early.
func (meter) refund(r *Rule, s *State, t Taken, now, units int64) bool {
	m := &s.Meter
	at := m.at()
	after := Span{t.At + t.Reading.Rest.Whole, t.Reading.Rest.Part}
	left := m.Refunds.limit(after, t.Reading.Refund)
	if left.exceeds(at) { // the debt was cut when the clock stepped back
		left = at
	}
	left.Whole -= now
	switch {
	case left.Whole < 0 || left == (Span{}) || at.Ceil() <= now:
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

func (meter) save(s *State, b []byte) []byte {
	m := &s.Meter
	return m.Refunds.save(appendInts(appendUint(appendInts(b, m.TAT), m.Part), m.Forget, m.Turns))
}

func (meter) reply(r *Rule, n []int64, dated bool) (v Reading) {
	v.Rest.Whole = n[0] >> 1
	if r.Parts > 1 {
		v.Rest.Part = n[1]
	}
	if dated {
		v.Refund = n[len(n)-1]
	}
	return v
}

func (meter) replySize(r *Rule, dated bool) int {
	n := 1
	if r.Parts > 1 {
		n++
	}
	if dated {
		n++
	}
	return n
}

func (meter) refundArgs(r *Rule, b []int64, t Taken, units int64) []int64 {
	give := r.Time(units)
	return append(b, give.Whole, give.Part, r.Parts, t.At+t.Reading.Rest.Whole, t.Reading.Rest.Part,
		r.Burst.Whole, r.Burst.Part, t.Reading.Refund)
}

func (meter) weight(*Rule, int64) int { return 1 }

func (meter) remaining(r *Rule, v *Reading) int64 {
	if v.Rest.exceeds(r.Burst) { // turns are reserved
		return 0
	}
	return r.units(r.Burst.sub(v.Rest, r.Parts))
}

func (meter) retryAfter(r *Rule, v *Reading, cost int64) int64 { return r.Delay(v.Rest, cost) }

// Delay is how long, in microseconds, a cost waits until it fits into a meter with that
// debt. It is not positive if the cost fits now.
func (r *Rule) Delay(debt Span, cost int64) int64 {
	return debt.add(r.Time(cost), r.Parts).sub(r.Burst, r.Parts).Ceil()
}

func (meter) expires(r *Rule, s *State) int64 {
	m := &s.Meter
	switch {
	case r.ForgetAfter > 0:
		return m.Forget
	case m.Refunds != nil:
		return max(m.at().Ceil(), m.Refunds.Until)
	}
	return m.at().Ceil()
}

func (meter) refusedUntil(r *Rule, s *State) int64 { return r.Delay(s.Meter.at(), 1) }

// foreseen is false for a bucket with Initial that may not have been used: it does not fill.
func (meter) foreseen(r *Rule, v Reading, _ bool) bool {
	return r.ForgetAfter == 0 || !v.Fits && v.Rest != r.Start
}
