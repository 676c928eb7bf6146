package machine

// meter is the machine of buckets and funnels. A state is the instant at which the debt ends: the funnel
// is then empty, or the bucket full. A charge moves the instant into the future, and nothing
// moves as time passes. This is the virtual scheduling form of the generic cell rate
// algorithm ([ITU-T I.371]), which calls the instant the theoretical arrival time (TAT).
//
// The state expires at the TAT, rounded up, and N is the TAT's fraction. With a debt in More it may expire later: of
// a bucket with Initial when it is forgotten, and else when no refund matters any more.
//
// [ITU-T I.371]: https://www.itu.int/rec/T-REC-I.371
type meter struct{}

// debt is the More of few meters: those with Initial, and those after a refund or with a debt above the quota.
// It has four words, so that it is passed in registers.
type debt struct {
	At Span // the TAT

	// Turns, if not 0, is the instant of the last charge that left a debt above the quota: one
	// that reserved a turn for a waiting caller, or negated one with ModeOwe, which reserves none.
	Turns int64

	Refunds *refunds // those that still matter
}

func (*debt) form() Form { return FormMeter }

// debt is what a state has at an instant.
func (r *Rule) debt(s State, now int64) debt {
	switch m, _ := s.More.(*debt); {
	case s.Expires <= now:
		return debt{At: Span{now + r.Start.Whole, r.Start.Part}}
	case m != nil:
		return *m
	case s.N > 0:
		return debt{At: Span{s.Expires - 1, int64(s.N)}}
	}
	return debt{At: Span{s.Expires, 0}}
}

// left is what is owed at an instant.
func (d debt) left(now int64) Span {
	if d.At.Whole < now {
		return Span{}
	}
	return Span{d.At.Whole - now, d.At.Part}
}

func abs(n int64) int64 { return max(n, -n) }

// owing is the state of a meter that is forgotten at an instant, if it has Initial. It is written to m if
// it is more than a TAT.
func (r *Rule) owing(d debt, forget int64, m *debt) State {
	s := State{Expires: d.At.Ceil()}
	if r.ForgetAfter == 0 && d.Turns == 0 && d.Refunds == nil {
		s.N = uint32(d.At.Part)
		return s
	}
	if m == nil {
		m = new(debt)
	}
	*m, s.More = d, m
	if d.Refunds != nil {
		s.Expires = max(s.Expires, d.Refunds.Until)
	}
	if r.ForgetAfter > 0 {
		s.Expires = forget
	}
	return s
}

func (*meter) args(r *Rule, b []int64, cost, _ int64) []int64 {
	span := r.Time(min(cost, 2*r.Max))
	b = append(b, span.Whole, r.Burst.Whole)
	if r.Parts > 1 || r.ForgetAfter > 0 {
		b = append(b, r.Parts, span.Part, r.Burst.Part)
	}
	if r.ForgetAfter > 0 {
		b = append(b, r.Start.Whole, r.Start.Part, r.ForgetAfter)
	}
	return b
}

func (*meter) load(r *Rule, d *decoder) State {
	m := debt{At: Span{d.int(), int64(d.part())}}
	forget := d.int()
	m.Turns = d.instant()
	if len(d.rest) > 0 {
		m.Refunds = loadRefunds(r, d)
	}
	d.bad = d.bad || m.At.Part >= r.Parts || (forget > 0) != (r.ForgetAfter > 0)
	return r.owing(m, forget, nil)
}

func (*meter) check(r *Rule, s State, now, cost int64, a *Ask) (State, bool) {
	d := r.debt(s, now)
	left, bound := d.left(now), r.Burst
	if s.Expires > now && (abs(d.Turns) > now || d.Turns == 0 && (left.exceeds(bound) || r.late(s.Expires, now))) {
		s = r.correct(s, d, now)
		d = r.debt(s, now)
		left = d.left(now)
	}
	if !r.Shadow { // nobody waits for a shadow
		bound.Whole += a.Ahead
	}
	return s, a.Mode.forced() || cost <= r.Max && !left.add(r.Time(cost), r.Parts).exceeds(bound)
}

// late reports whether a bucket with Initial is forgotten later than the rule says.
func (r *Rule) late(forget, now int64) bool { return r.ForgetAfter > 0 && forget > now+r.ForgetAfter }

// correct returns a state as it is at now if the clock stepped back, or if another limiter has a longer
// ForgetAfter.
func (r *Rule) correct(s State, d debt, now int64) State {
	forget := min(s.Expires, now+r.ForgetAfter)
	if back := abs(d.Turns) - now; back > 0 { // turns that are reserved move back with the clock
		d.At.Whole -= back
		d.Refunds = nil
		if d.Turns > 0 {
			d.Turns = now
		} else {
			d.Turns = -now
		}
		forget = s.Expires - back
	}
	left := d.left(now)
	if left.exceeds(r.Burst) && d.Turns == 0 {
		left, d.Refunds = r.Burst, nil
	}
	d.At = Span{now + left.Whole, left.Part}
	return r.owing(d, forget, nil)
}

// after is the debt after a charge.
func (r *Rule) after(owed Span, cost int64, mode Mode) Span {
	next, most := owed.add(r.Time(min(cost, 2*r.Max)), r.Parts), r.Burst
	if !mode.forced() {
		return next
	}
	if mode == ModeOwe {
		most = r.deepest()
	}
	if next.exceeds(most) { // charge what there is room for
		next = most
	}
	if owed.exceeds(most) {
		next = owed
	}
	return next
}

// mostDebt is what the Lua function read can reply.
const mostDebt = 1<<52 - 1

// deepest is the most debt that ModeOwe leaves: two quotas, and no more than mostDebt.
func (r *Rule) deepest() Span {
	if most := r.Burst.add(r.Burst, r.Parts); most.Whole <= mostDebt {
		return most
	}
	return Span{mostDebt, 0}
}

func (*meter) charge(r *Rule, s State, now, cost int64, a *Ask) (State, bool) {
	d := r.debt(s, now)
	left, turn := d.left(now), now
	next := r.after(left, cost, a.Mode)
	reserved := !a.Mode.forced() || d.Turns > 0 && left.exceeds(r.Burst)
	d.At, d.Turns = Span{now + next.Whole, next.Part}, 0
	if next.exceeds(r.Burst) {
		if d.Turns = now; !reserved {
			d.Turns = -now
		}
		turn += next.sub(r.Burst, r.Parts).Ceil()
	}
	if d.Refunds != nil && d.Refunds.Until <= now {
		d.Refunds = nil
	}
	m, _ := s.More.(*debt)
	return r.owing(d, turn+r.ForgetAfter, m), true
}

// refuse starts a bucket with Initial that has not been used before.
func (*meter) refuse(r *Rule, s State, now, _ int64, record bool) (State, bool) {
	if !record || r.ForgetAfter == 0 || s.Expires > now {
		return s, false
	}
	return r.owing(debt{At: Span{now + r.Start.Whole, r.Start.Part}}, now+r.ForgetAfter, nil), true
}

func (*meter) read(r *Rule, s State, now, cost int64, fits bool) (count int64, rest Span, wait, detail int64) {
	d := r.debt(s, now)
	if fits {
		cost = 1
	}
	left := d.left(now)
	return 0, left, r.Delay(left, cost), d.Refunds.last()
}

// amend takes the units' time from the debt. It takes at most what is left of the debt
// after the charge, and of the debt after any refund since: the rest was charged by other
// actions, or has drained. While turns are reserved, only the last one can be given back:
// else a later turn would come too early.
func (*meter) amend(r *Rule, s State, t Taken, now int64, a Amendment) (State, bool) {
	d := r.debt(s, now)
	after := Span{t.At + t.Reading.Rest.Whole, t.Reading.Rest.Part}
	left := d.Refunds.limit(after, t.Reading.Detail)
	if left.exceeds(d.At) { // the debt was cut when the clock stepped back
		left = d.At
	}
	left.Whole -= now
	before, owed := d.At.Ceil(), d.left(now)
	switch {
	case left.Whole < 0 || left == (Span{}) || before <= now:
		return s, false
	case d.Turns > 0 && d.At != after && owed.exceeds(r.Burst):
		return s, false
	}
	give := r.Time(a.Units)
	if give.exceeds(left) {
		give = left
	}
	d.At = d.At.sub(give, r.Parts)
	d.Refunds = d.Refunds.add(given{give, before, d.At, t.Reading.Detail}, r.Parts, now)
	m, _ := s.More.(*debt)
	return r.owing(d, s.Expires, m), true
}

func (*meter) save(r *Rule, s State, b []byte) []byte {
	d, forget := r.debt(s, s.Expires-1), int64(0)
	if r.ForgetAfter > 0 {
		forget = s.Expires
	}
	return d.Refunds.save(appendInts(appendUint(appendInts(b, d.At.Whole), uint32(d.At.Part)), forget, d.Turns))
}

func (*meter) reply(r *Rule, n []int64, cost int64, amendable bool) (v Reading, rest []int64) {
	v.Rest.Whole, n = n[0]>>1, n[1:]
	if r.Parts > 1 {
		v.Rest.Part, n = n[0], n[1:]
	}
	if amendable {
		v.Detail, n = n[0], n[1:]
	}
	v.Wait = r.Delay(v.Rest, cost)
	return v, n
}

func (*meter) amendArgs(r *Rule, b []int64, t Taken, a Amendment) []int64 {
	give := r.Time(a.Units)
	return append(b, give.Whole, give.Part, r.Parts, t.At+t.Reading.Rest.Whole, t.Reading.Rest.Part,
		r.Burst.Whole, r.Burst.Part, t.Reading.Detail)
}

// Delay is how long, in microseconds, a cost waits until it fits into a meter of which so much is
// owed. It is not positive if the cost fits now.
func (r *Rule) Delay(owed Span, cost int64) int64 {
	return owed.add(r.Time(cost), r.Parts).sub(r.Burst, r.Parts).Ceil()
}

// foreseen is false for a bucket with Initial that may not have been used: it does not fill.
func (*meter) foreseen(r *Rule, v Reading, _ bool) bool {
	return r.ForgetAfter == 0 || !v.Fits && v.Rest != r.Start
}

// prepay takes from the quota what the meter gains or drains meanwhile: the actions of any time were charged
// within that time and so long before it.
func (*meter) prepay(r *Rule, d int64) {
	gain := r.units(Span{Whole: d})
	if (Span{Whole: d}).exceeds(r.Time(gain)) {
		gain++
	}
	r.Max = max(0, r.Max-gain)
	r.Burst = spanOf(r.pace, r.Max, r.Parts)
}
