package machine

import "cmp"

// meter is the machine of buckets and funnels. Its state is the instant at which the debt ends:
// when the funnel will be empty or the bucket full. A charge moves this instant into the future. As
// time passes, the state does not change. This is the generic cell rate algorithm in its virtual
// scheduling form ([ITU-T I.371]), which calls the instant the theoretical arrival time (TAT).
//
// State.Expires is the TAT, rounded up, and State.N its fraction. If State.Data is a debt, the debt
// has the TAT, and Expires may be later. Expires is then the instant at which a bucket with Initial
// is forgotten, or at which no remembered refund matters any more.
//
// [ITU-T I.371]: https://www.itu.int/rec/T-REC-I.371
type meter struct{}

// debt is the Data of some meters: of a bucket with Initial, of a meter after a refund, and of a
// meter whose debt is above the quota. It has only four words, so that it is passed in registers.
type debt struct {
	At Span // the TAT

	// Turns is the instant of the last charge, if that charge left a debt above the quota, and
	// otherwise 0. It is negative if the debt comes from ModeOwe, because then no caller waits
	// and no turn is reserved.
	Turns int64

	Refunds *refunds // the refunds that still matter
}

func (*debt) form() Form { return FormMeter }

// debtOf returns the debt of a state at the instant now.
func (r *Rule) debtOf(s State, now int64) debt {
	if m, _ := s.Data.(*debt); m != nil && s.Expires > now {
		return *m
	}
	owed := r.owed(s, now)
	return debt{At: Span{now + owed.Whole, owed.Part}}
}

// owed returns the time until the debt of a state ends.
func (r *Rule) owed(s State, now int64) Span {
	switch m, _ := s.Data.(*debt); {
	case s.Expires <= now:
		return r.Start
	case m != nil:
		return m.At.from(now)
	}
	return Span{s.Expires - now - min(int64(s.N), 1), int64(s.N)}
}

// from returns the time from now to the instant a, or 0 if a is past.
func (a Span) from(now int64) Span {
	if a.Whole < now {
		return Span{}
	}
	return Span{a.Whole - now, a.Part}
}

// state returns the state of a debt. forget is the instant at which a bucket with Initial is
// forgotten. If the state needs Data, state writes the debt to m, or to new memory if m is nil.
func (d debt) state(r *Rule, forget int64, m *debt) State {
	s := State{Expires: d.At.Ceil(), N: uint32(d.At.Part)}
	if r.ForgetAfter == 0 && d.Turns == 0 && d.Refunds == nil {
		return s
	}
	if m == nil {
		m = new(debt)
	}
	*m, s.Data, s.N = d, m, 0
	if d.Refunds != nil {
		s.Expires = max(s.Expires, d.Refunds.Until)
	}
	if r.ForgetAfter > 0 {
		s.Expires = forget
	}
	return s
}

func (*meter) load(r *Rule, d *decoder) State {
	m := debt{At: Span{d.int(), int64(d.part())}}
	forget := d.int()
	m.Turns = d.instant()
	if len(d.rest) > 0 {
		m.Refunds = loadRefunds(r, d)
	}
	d.bad = d.bad || m.At.Part >= r.Parts || (forget > 0) != (r.ForgetAfter > 0)
	return m.state(r, forget, nil)
}

func (*meter) check(r *Rule, now, cost int64, a *Ask, s State) (_ State, fits, changed bool) {
	owed, bound := r.owed(s, now), r.Burst
	if s.Data != nil || owed.exceeds(bound) {
		s, changed = r.correct(s, now)
		owed = r.owed(s, now)
	}
	if !r.Shadow { // nobody waits for a shadow rule
		bound.Whole += a.Ahead
	}
	return s, a.Mode.forced() || cost <= r.Max && !owed.add(r.Time(cost), r.Parts).exceeds(bound), changed
}

// correct returns the state as it counts at now. It changes the state if the clock stepped back, or
// if a limiter with a larger quota or a longer ForgetAfter wrote it.
func (r *Rule) correct(s State, now int64) (_ State, changed bool) {
	d, forget := r.debtOf(s, now), min(s.Expires, now+r.ForgetAfter)
	owed, back := d.At.from(now), max(d.Turns, -d.Turns)-now
	switch {
	case back > 0: // reserved turns move back with the clock
		d.At.Whole -= back
		d.Turns, d.Refunds = int64(cmp.Compare(d.Turns, 0))*now, nil
		forget, owed = s.Expires-back, d.At.from(now)
	case d.Turns == 0 && owed.exceeds(r.Burst):
		owed, d.Refunds = r.Burst, nil
	case d.Turns != 0 || r.ForgetAfter == 0 || forget == s.Expires:
		return s, false
	}
	d.At = Span{now + owed.Whole, owed.Part}
	return d.state(r, forget, nil), true
}

// mostDebt is the highest debt that a forced charge causes: about 142 years, in microseconds. So
// twice such a debt plus a flag fits into a number of 53 bits.
const mostDebt = 1<<52 - 1

// forced returns the debt after a forced charge, which charges only what fits into one quota, or
// into two with ModeOwe. The argument next is the debt if all of the cost is charged, and owed is
// the debt before.
func (r *Rule) forced(next, owed Span, mode Mode) Span {
	most := r.Time(r.most(mode))
	if most.Whole > mostDebt {
		most = Span{mostDebt, 0}
	}
	if next.exceeds(most) {
		next = most
	}
	if owed.exceeds(most) {
		next = owed
	}
	return next
}

func (*meter) charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, refund int64, _ State, changed bool) {
	owed := r.owed(s, now)
	next := owed.add(r.Time(cost), r.Parts)
	if a.Mode.forced() {
		next = r.forced(next, owed, a.Mode)
	}
	if s.Data != nil || r.ForgetAfter > 0 || next.exceeds(r.Burst) {
		s, refund = r.chargeMore(s, owed, next, now, a.Mode)
	} else {
		s = State{Expires: now + next.Ceil(), N: uint32(next.Part)}
	}
	return numbers{Rest: next, Wait: next.sub(r.oneMore, r.Parts).Ceil()}, refund, s, true
}

// chargeMore does the work of charge for a state that has a debt in Data or needs one. It returns
// the number of the last refund.
func (r *Rule) chargeMore(s State, owed, next Span, now int64, mode Mode) (_ State, refund int64) {
	d, forget := r.debtOf(s, now), now+r.ForgetAfter
	reserved := !mode.forced() || d.Turns > 0 && owed.exceeds(r.Burst)
	d.At, d.Turns = Span{now + next.Whole, next.Part}, 0
	if next.exceeds(r.Burst) {
		if d.Turns = now; !reserved {
			d.Turns = -now
		}
		forget += r.Delay(next, Span{})
	}
	if d.Refunds != nil && d.Refunds.Until <= now {
		d.Refunds = nil
	}
	m, _ := s.Data.(*debt)
	return d.state(r, forget, m), d.Refunds.last()
}

// If record is set, refuse starts a bucket with Initial that has not been used.
func (m *meter) refuse(r *Rule, now, cost int64, record bool, s State) (v numbers, _ int64, _ State, changed bool) {
	if changed = record && s.Expires <= now; changed {
		s = r.debtOf(s, now).state(r, now+r.ForgetAfter, nil)
	}
	v, _ = m.read(r, now, cost, s)
	return v, 0, s, changed
}

func (*meter) read(r *Rule, now, cost int64, s State) (v numbers, _ int64) {
	owed := r.owed(s, now)
	return numbers{Rest: owed, Wait: r.Delay(owed, r.Time(cost))}, 0
}

// amend lowers the debt, as [Rule.Amend] describes. While turns are reserved, it refunds only the
// last charge. A refund of an earlier charge would let a later turn come too early.
func (*meter) amend(r *Rule, now int64, t Taken, a Amendment, s State) (State, bool) {
	d := r.debtOf(s, now)
	after := Span{t.At + t.Reading.Rest.Whole, t.Reading.Rest.Part}
	left := d.Refunds.limit(after, t.Reading.Detail)
	if left.exceeds(d.At) { // the debt was lowered, for example when the clock stepped back
		left = d.At
	}
	left.Whole -= now
	before := d.At.Ceil()
	drained := left.Whole < 0 || left == (Span{}) || before <= now
	if drained || d.Turns > 0 && d.At != after && d.At.from(now).exceeds(r.Burst) {
		return s, false
	}
	give := r.Time(a.Units)
	if give.exceeds(left) {
		give = left
	}
	d.At = d.At.sub(give, r.Parts)
	d.Refunds = d.Refunds.add(given{give, before, d.At, t.Reading.Detail}, r.Parts, now)
	m, _ := s.Data.(*debt)
	return d.state(r, s.Expires, m), true
}

func (*meter) save(r *Rule, b []byte, s State) []byte {
	d, forget := r.debtOf(s, s.Expires-1), int64(0)
	if r.ForgetAfter > 0 {
		forget = s.Expires
	}
	return d.Refunds.save(appendInts(appendUint(appendInts(b, d.At.Whole), uint32(d.At.Part)), forget, d.Turns))
}

// Delay returns the time, in microseconds, after which a cost fits into a meter. The argument owed
// is the debt of the meter, and the argument time is the time in which the cost drains. If the cost
// fits now, Delay returns 0 or less.
func (r *Rule) Delay(owed, time Span) int64 {
	return owed.add(time, r.Parts).sub(r.Burst, r.Parts).Ceil()
}

// predictable is false for a bucket with Initial that may not have been used, because an unused
// bucket does not fill.
func (*meter) predictable(r *Rule, v Reading, _ bool) bool {
	return r.ForgetAfter == 0 || !v.Fits && v.Rest != r.Start
}

// prepay lowers the quota by the units that drain in d, rounded up, because the actions in an
// interval of length x may have been charged within x+d.
func (*meter) prepay(r *Rule, d int64) {
	gain := r.units(Span{Whole: d}, Span{})
	if (Span{Whole: d}).exceeds(r.Time(gain)) {
		gain++
	}
	r.setMax(max(0, r.Max-gain))
}
