package machine

// A Mode says what an [Ask] may change.
type Mode uint8

// The modes of an [Ask].
const (
	Charge Mode = iota // charge if there is room
	Peek               // answer, and write nothing
	Force              // charge up to the cost, as far as there is room; always allowed
)

// An Ask is a request to a rule.
type Ask struct {
	Mode Mode
	Cost int64 // units, at least 1

	// Ahead, in microseconds, lets a meter admit an action that long before it has room.
	// The caller waits for its turn.
	Ahead int64

	// Patient says that the caller waits if it is refused: no limit records the refusal.
	Patient bool

	// Ban is a ban by hand, in microseconds, for a rule of KindBan; 0 is none.
	Ban int64
}

// A State is what a store keeps for one rule, one user and one action. The zero State stands
// for a rule of which the store keeps nothing.
//
// A store loads a state, passes it to [Rule.Check] and then to [Rule.Charge] or
// [Rule.Refuse], and writes it back if Dirty is set. Package core's Charge does so for
// several rules at once, all or none.
//
// A copy of a State shares Bans and the instants of a long Trail with the original. A store
// that may discard what it has decided, as with a compare-and-swap that failed, does not decide
// on a copy: it loads the state anew, with [State.UnmarshalBinary].
type State struct {
	Exists bool // the store keeps it; if false, the rest is ignored
	Fits   bool // set by Check: the rule has room
	Dirty  bool // the state is to be written

	Meter   Meter   // buckets and funnels
	Counter Counter // FixedWindow and ElasticWindow
	Trail   Trail   // SlidingWindow and MovingWindow
	Bans    *Bans   // KindBan

	next  Span  // the debt of a meter after the charge
	ahead int64 // how far the state is ahead of a clock that stepped back
}

// A Reading is the numbers of a state after a decision. A store that decides elsewhere, in
// Lua for example, fills in Readings.
type Reading struct {
	Fits bool

	Count  int64 // windows: the units in the window
	Rest   Span  // until the full quota is available; a ban: until all is forgotten
	Wait   int64 // a trail without room: until it has room; a ban: until it ends
	Refund int64 // meters: the number of the last refund; see [Refunds]

	Refusals, Level int // a ban: refusals that count towards the next, and bans in a row
}

// A Verdict is the [Reading] of a charge that a single rule decides. Four fields of 32 bytes
// stay in registers: one more would cost 30 ns.
type Verdict struct {
	Outcome Outcome
	Count   int32
	Wait    int64
	Rest    Span
}

// An Outcome is the result of a charge.
type Outcome uint8

// The outcomes.
const (
	Undecided Outcome = iota // nothing was done
	Admitted
	Refused
)

// Reading returns the verdict as a Reading.
func (v Verdict) Reading() Reading {
	return Reading{Fits: v.Outcome == Admitted, Count: int64(v.Count), Wait: v.Wait, Rest: v.Rest}
}

// Decide checks a state for a cost of 1 to Max, and charges it, or records the refusal. It
// is for a charge that this rule alone decides, and is not for a ban policy.
func (r *Rule) Decide(s *State, now, cost int64) Verdict {
	a, outcome := Ask{Cost: cost}, Refused
	if r.Check(s, now, &a); s.Fits {
		r.Charge(s, now, &a)
		outcome = Admitted
	} else {
		r.Refuse(s, now, &a, true)
	}
	var v Reading
	r.Read(&v, s, now, &a)
	return Verdict{outcome, int32(v.Count), v.Wait, v.Rest}
}

// Expires is the instant from which the store need not keep a state. One that keeps it for longer
// decides the same, with one exception: if two BanPolicies with different ForgetAfter share a state,
// the longer one may count bans that the shorter one has forgotten.
//
// Call Expires after each write and keep the result with the state: a limiter with other
// numbers may share the state, and its rule would give another instant.
func (r *Rule) Expires(s *State) int64 {
	switch {
	case r.Kind == KindBan:
		return r.Ban.forgotten(s.Bans)
	case r.ForgetAfter > 0:
		return s.Meter.Forget
	case !r.Windowed():
		return s.Meter.Expires()
	case r.Trailed():
		return s.Trail.newest() + r.Period
	default:
		return s.Counter.End
	}
}

// RefusedUntil is the instant before which a cost of 1 is refused, unless a refund or a
// reset comes first. It may be past.
func (r *Rule) RefusedUntil(s *State) int64 {
	switch {
	case r.Kind == KindBan:
		return s.Bans.Until
	case !r.Windowed():
		return s.Meter.refusedUntil(r)
	case r.Trailed():
		return s.Trail.free(r, 1)
	case s.Counter.Count >= r.Max:
		return s.Counter.End
	}
	return 0
}

// noKind is the panic for a Kind that this file has forgotten.
const noKind = "machine: no such kind"

// Check brings a state to the instant now, in microseconds on the store's clock, and sets
// Fits if the rule has room for the ask.
func (r *Rule) Check(s *State, now int64, a *Ask) {
	s.Dirty = false
	switch r.Kind {
	case KindFixedWindow, KindElasticWindow:
		s.Fits = r.checkCounter(s, now, a)
	case KindTokenBucket, KindFunnel:
		s.Fits = r.checkMeter(s, now, a)
	case KindBan:
		s.Fits = r.checkBan(s, now, a)
	case KindSlidingWindow, KindSlidingRefused, KindMovingWindow:
		s.Fits = r.checkTrail(s, now, a)
	default:
		panic(noKind)
	}
}

// Charge charges the cost to a checked state: all of it, or with Force what fits.
func (r *Rule) Charge(s *State, now int64, a *Ask) {
	cost := a.Cost
	if a.Mode == Force && r.Windowed() {
		var v Reading
		r.Read(&v, s, now, a)
		if cost = min(cost, r.Remaining(&v)); cost == 0 {
			r.shift(s, now)
			return
		}
	}
	switch r.Kind {
	case KindFixedWindow, KindElasticWindow:
		r.chargeCounter(s, now, cost)
	case KindTokenBucket, KindFunnel:
		r.chargeMeter(s, now)
	case KindBan:
		if a.Ban > 0 {
			r.ban(s, now, a.Ban)
		} else {
			r.shift(s, now)
		}
		return
	case KindSlidingWindow, KindSlidingRefused, KindMovingWindow:
		r.chargeTrail(s, now, cost)
	default:
		panic(noKind)
	}
	s.Exists, s.Dirty = true, true
}

// Refuse records the refusal in a checked state, if the rule's kind records refusals. If
// record is false, as while a ban lasts, or the caller is Patient, it records nothing. A refused
// action that starts a bucket with Initial starts it nonetheless if the caller is Patient.
func (r *Rule) Refuse(s *State, now int64, a *Ask, record bool) {
	refused := record && !s.Fits && a.Cost <= r.Max // by this rule
	switch {
	case a.Patient && r.RecordsRefusals():
		r.shift(s, now)
	case r.Kind == KindBan && record:
		r.refusal(s, now)
	case r.Kind == KindElasticWindow && refused:
		s.Counter.End = now + r.Period
		s.Dirty = true
	case r.Kind == KindSlidingRefused && refused:
		r.chargeTrail(s, now, a.Cost)
		s.Dirty = true
	case r.ForgetAfter > 0 && refused && !s.Exists:
		s.Meter.Forget = now + r.ForgetAfter
		s.Exists, s.Dirty = true, true
	default:
		r.shift(s, now)
	}
}

// shift moves a state back if the clock stepped back, so that no user waits longer than
// before.
func (r *Rule) shift(s *State, now int64) {
	if s.ahead == 0 {
		return
	}
	if r.Kind == KindBan {
		r.counting(s, now)
		return
	}
	s.Trail.base -= s.ahead
	s.ahead, s.Dirty = 0, true
}

// Read fills in v, a zero Reading, from a state after Check, and after Charge or Refuse if
// the store calls them.
func (r *Rule) Read(v *Reading, s *State, now int64, a *Ask) {
	v.Fits = s.Fits
	switch r.Kind {
	case KindFixedWindow, KindElasticWindow:
		v.Count, v.Rest.Whole = s.Counter.Count, s.Counter.End-now
	case KindTokenBucket, KindFunnel:
		v.Rest, v.Refund = Span{s.Meter.TAT - now, int64(s.Meter.Part)}, s.Meter.Refunds.last()
	case KindBan:
		r.readBan(v, s, now)
	case KindSlidingWindow, KindSlidingRefused, KindMovingWindow:
		r.readTrail(v, s, now, a.Cost)
	default:
		panic(noKind)
	}
}

// Remaining is how many units fit right now.
func (r *Rule) Remaining(v *Reading) int64 {
	if r.Windowed() {
		return max(0, r.Max-v.Count)
	}
	return r.Room(v.Rest)
}

// RetryAfter is the wait, in microseconds, until the rule has room for a cost that does not
// fit now. The cost is at most Max.
func (r *Rule) RetryAfter(v *Reading, cost int64) int64 {
	switch r.Kind {
	case KindTokenBucket, KindFunnel:
		return r.Delay(v.Rest, cost)
	case KindFixedWindow, KindElasticWindow:
		return v.Rest.Whole
	}
	return v.Wait
}
