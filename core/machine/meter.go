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
	Owed   bool   // see Turns
	Forget int64  // when the state is forgotten; only for a bucket with Initial

	// Turns, if not 0, is the instant of the last charge that left a debt above the quota: one
	// that reserved a turn for a waiting caller, or one with ModeOwe. With Owed, no turn is reserved.
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

func (*meter) args(r *Rule, b []int64, a Ask) []int64 {
	cost := r.Time(min(a.Cost, 2*r.Max))
	b = append(b, cost.Whole, r.Burst.Whole)
	if r.Parts > 1 || r.ForgetAfter > 0 {
		b = append(b, r.Parts, cost.Part, r.Burst.Part)
	}
	if r.ForgetAfter > 0 {
		b = append(b, r.Start.Whole, r.Start.Part, r.ForgetAfter)
	}
	return b
}

func (*meter) load(s *State, d *decoder) {
	m := &s.Meter
	*m = Meter{TAT: d.int(), Part: d.part(), Forget: d.int(), Turns: d.instant()}
	if m.Owed = m.Turns < 0; m.Owed {
		m.Turns = -m.Turns
	}
	if len(d.rest) > 0 {
		m.Refunds = loadRefunds(d)
	}
}

// refresh is check for what is more than a TAT.
func (r *Rule) refresh(s *State, now int64) {
	m := &s.Meter
	back := m.Turns - now
	switch {
	case !s.Exists, r.ForgetAfter > 0 && now >= m.Forget:
		s.Exists, m.Turns, m.Owed, m.Refunds = false, 0, false, nil
		m.set(now, r.Start)
		return
	case back > 0: // the clock stepped back: turns that are reserved move back with it
		m.TAT, m.Turns, m.Refunds, s.Dirty = m.TAT-back, now, nil, true
		if r.ForgetAfter > 0 {
			m.Forget -= back
		}
	case m.Refunds != nil && m.Refunds.Until <= now:
		m.Refunds = nil
	}
	// The clock stepped back, or another limiter has a longer ForgetAfter.
	if r.ForgetAfter > 0 && m.Forget > now+r.ForgetAfter && m.Turns == 0 {
		m.Forget, s.Dirty = now+r.ForgetAfter, true
	}
}

// check brings the meter to now, and sets s.next, the debt after the charge.
func (*meter) check(r *Rule, s *State, now int64, a Ask) bool {
	r.refresh(s, now)
	m := &s.Meter
	debt, bound := m.debt(now), r.Burst
	if debt.exceeds(r.Burst) && m.Turns == 0 { // the clock stepped back
		debt, m.Refunds, s.Dirty = r.Burst, nil, true
	}
	m.set(now, debt)
	s.next = debt.add(r.Time(min(a.Cost, 2*r.Max)), r.Parts)
	bound.Whole += a.Ahead
	fits := a.Cost <= r.Max && !s.next.exceeds(bound)
	if !fits && a.forced() { // charge what there is room for
		most := r.Burst
		if a.Mode == ModeOwe {
			most = r.deepest()
		}
		fits = true
		if s.next.exceeds(most) {
			s.next = most
		}
		if debt.exceeds(most) {
			s.next = debt
		}
	}
	return fits
}

// deepest is the most debt that ModeOwe leaves: two quotas, and what the Lua function read can reply.
func (r *Rule) deepest() Span {
	if most := r.Burst.add(r.Burst, r.Parts); most.Whole < 1<<52 {
		return most
	}
	return Span{1<<52 - 1, 0}
}

func (*meter) charge(r *Rule, s *State, now int64, a Ask) {
	m, turn := &s.Meter, now
	reserved := !a.forced() || m.Turns != 0 && !m.Owed && m.debt(now).exceeds(r.Burst)
	m.set(now, s.next)
	if m.Turns, m.Owed = 0, false; s.next.exceeds(r.Burst) {
		m.Turns, m.Owed = now, !reserved
		turn += s.next.sub(r.Burst, r.Parts).Ceil()
	}
	if r.ForgetAfter > 0 {
		m.Forget = turn + r.ForgetAfter
	}
	s.Exists, s.Dirty = true, true
}

// refuse starts a bucket with Initial that has not been used before.
func (*meter) refuse(r *Rule, s *State, now int64, a Ask, record bool) {
	if record && r.refused(s, a) && r.ForgetAfter > 0 && !s.Exists {
		s.Meter.Forget = now + r.ForgetAfter
		s.Exists, s.Dirty = true, true
	}
}

func (*meter) read(r *Rule, s *State, now, cost int64) {
	s.Rest, s.Mark = Span{s.Meter.TAT - now, int64(s.Meter.Part)}, s.Meter.Refunds.last()
	if !s.Fits {
		s.Wait = r.Delay(s.Rest, cost)
	}
}

// amend takes the units' time from the debt. It takes at most what is left of the debt
// after the charge, and of the debt after any refund since: the rest was charged by other
// actions, or has drained. While turns are reserved, only the last one can be given back:
// else a later turn would come too early.
func (*meter) amend(r *Rule, s *State, t Taken, now int64, a Amendment) bool {
	m := &s.Meter
	at := m.at()
	after := Span{t.At + t.Reading.Rest.Whole, t.Reading.Rest.Part}
	left := m.Refunds.limit(after, t.Reading.Mark)
	if left.exceeds(at) { // the debt was cut when the clock stepped back
		left = at
	}
	left.Whole -= now
	switch {
	case left.Whole < 0 || left == (Span{}) || at.Ceil() <= now:
		return false
	case m.Turns != 0 && !m.Owed && at != after && m.debt(now).exceeds(r.Burst):
		return false
	}
	give := r.Time(a.Units)
	if give.exceeds(left) {
		give = left
	}
	before := at.Ceil()
	at = at.sub(give, r.Parts)
	m.Refunds = m.Refunds.add(at, give, before, t.Reading.Mark, r.Parts, now)
	m.TAT, m.Part = at.Whole, uint32(at.Part)
	return true
}

func (*meter) save(s *State, b []byte) []byte {
	m, turns := &s.Meter, s.Meter.Turns
	if m.Owed {
		turns = -turns
	}
	return m.Refunds.save(appendInts(appendUint(appendInts(b, m.TAT), m.Part), m.Forget, turns))
}

func (*meter) reply(r *Rule, n []int64, cost int64, dated bool) (v Reading, rest []int64) {
	v.Rest.Whole, n = n[0]>>1, n[1:]
	if r.Parts > 1 {
		v.Rest.Part, n = n[0], n[1:]
	}
	if dated {
		v.Mark, n = n[0], n[1:]
	}
	v.Wait = r.Delay(v.Rest, cost)
	return v, n
}

func (*meter) amendArgs(r *Rule, b []int64, t Taken, a Amendment) []int64 {
	give := r.Time(a.Units)
	return append(b, give.Whole, give.Part, r.Parts, t.At+t.Reading.Rest.Whole, t.Reading.Rest.Part,
		r.Burst.Whole, r.Burst.Part, t.Reading.Mark)
}

func (*meter) remaining(r *Rule, v *Reading) int64 {
	if v.Rest.exceeds(r.Burst) { // turns are reserved, or more is owed
		return 0
	}
	return r.units(r.Burst.sub(v.Rest, r.Parts))
}

// Delay is how long, in microseconds, a cost waits until it fits into a meter with that
// debt. It is not positive if the cost fits now.
func (r *Rule) Delay(debt Span, cost int64) int64 {
	return debt.add(r.Time(cost), r.Parts).sub(r.Burst, r.Parts).Ceil()
}

func (*meter) expires(r *Rule, s *State) int64 {
	m := &s.Meter
	switch {
	case r.ForgetAfter > 0:
		return m.Forget
	case m.Refunds != nil:
		return max(m.at().Ceil(), m.Refunds.Until)
	}
	return m.at().Ceil()
}

func (*meter) refuses(r *Rule, s *State) int64 { return r.Delay(s.Meter.at(), 1) }

// foreseen is false for a bucket with Initial that may not have been used: it does not fill.
func (*meter) foreseen(r *Rule, v Reading, _ bool) bool {
	return r.ForgetAfter == 0 || !v.Fits && v.Rest != r.Start
}

// pack returns the Part. A TAT with a Part is rounded up to the expiry.
func (*meter) pack(r *Rule, s *State) (value uint32, ok bool) {
	m := &s.Meter
	return m.Part, r.ForgetAfter == 0 && m.Turns == 0 && m.Refunds == nil
}

func (*meter) unpack(_ *Rule, s *State, expires int64, value uint32) {
	s.Meter.TAT, s.Meter.Part = expires, value
	if value > 0 {
		s.Meter.TAT--
	}
}

// lease takes from the quota what the meter gains or drains within a lease: the actions of any time
// were charged within that time and a lease.
func (*meter) lease(r *Rule, lease int64) {
	gain := r.units(Span{Whole: lease})
	if (Span{Whole: lease}).exceeds(r.Time(gain)) {
		gain++
	}
	r.Max = max(0, r.Max-gain)
	r.Burst = spanOf(r.pace, r.Max, r.Parts)
}
