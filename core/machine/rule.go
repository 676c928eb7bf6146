package machine

import (
	"math"
	"math/bits"
)

// A Rule is a limit compiled to integers; see [NewWindow], [NewMeter] and [NewBan]. Times
// are microseconds. Package core validates the numbers; a Rule does not.
type Rule struct {
	Kind    Kind
	machine machine // the kind's
	records bool    // it records refusals
	Max     int64   // the quota: units for a window, capacity for a meter, refusals for a ban

	// These are set by package core. Hash is that of the limit's identity. It differs from process to
	// process, and two limits may have the same. A key outside of the process uses core.Limit.Identity.
	Hash     uint64
	PerUser  bool  // it counts all of a user's actions together
	Shadow   bool  // it never refuses
	Failures bool  // it charges only a forced ask, for an action that has failed: core.OnlyFailures
	Held     int64 // slots that the action has already: see [Rule.Takes]

	Prepay int64 // how long before its action a unit may be charged: see [Rule.WithPrepay]

	// Windows, and InFlight, where Period is the lease of a slot.
	Period   int64     // of a calendar window the longest one
	Calendar *Calendar // nil but for a calendar window

	// Meters: buckets and funnels.
	Emission    Span   // the emission interval: the time of one unit
	Burst       Span   // the time of the full quota: the most debt that a meter may have
	Start       Span   // the debt of a bucket with Initial that has no state
	Parts       int64  // the denominator of all spans; 0 if the rule is not a meter's
	ForgetAfter int64  // how long a bucket with Initial is kept after its last action; else 0
	oneMore     Span   // the most debt at which one more unit fits: Burst less Emission
	pace        int64  // Emission is pace/Parts microseconds
	inverse     uint64 // (2^64-1)/pace, rounded down

	Ban *BanRule // nil but for a ban policy
}

// NewWindow makes the rule of a window of at most max units a period.
func NewWindow(kind Kind, max, period int64) Rule {
	return Rule{Kind: kind, machine: forms[kind.Form()].machine, records: kinds[kind].records, Max: max, Period: period}
}

// NewCalendarWindow makes the rule of a window of at most max units in each period of a calendar.
func NewCalendarWindow(max int64, c *Calendar) Rule {
	r := NewWindow(KindCalendarWindow, max, c.Longest())
	r.Calendar = c
	return r
}

// NewMeter makes the rule of a bucket or funnel whose quota is capacity, and which gains
// or drains n units per period.
func NewMeter(kind Kind, capacity, n, period int64) Rule {
	g := gcd(period, n)
	period, n = period/g, n/g
	r := Rule{
		Kind: kind, machine: forms[kind.Form()].machine, pace: period, inverse: math.MaxUint64 / uint64(period), Parts: n,
		Emission: spanOf(period, 1, n),
	}
	r.setMax(capacity)
	return r
}

// setMax sets the quota of a meter.
func (r *Rule) setMax(capacity int64) {
	r.Max, r.Burst = capacity, spanOf(r.pace, capacity, r.Parts)
	r.oneMore = r.Burst.sub(r.Emission, r.Parts)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// WithInitial makes a bucket start with n units instead of full, and forget its state after
// forgetAfter without an admitted action. The state is kept at least for the time that the bucket
// takes to fill, and a microsecond more, so that a user who waits sees the bucket full.
func (r Rule) WithInitial(n, forgetAfter int64) Rule {
	r.Start = spanOf(r.pace, r.Max-n, r.Parts)
	r.ForgetAfter = max(forgetAfter, r.Burst.Ceil()+1)
	return r
}

// WithPrepay makes a rule that holds for actions even if their units are charged up to d
// microseconds before them. It has a longer window or a smaller quota. If nothing of the quota is
// left, the quota is 0.
func (r Rule) WithPrepay(d int64) Rule {
	r.Prepay = d
	r.machine.prepay(&r, d)
	return r
}

// Rate is a meter's rate in lowest terms: n units per period.
func (r *Rule) Rate() (n, period int64) { return r.Parts, r.pace }

// A Span is a time: Whole microseconds and the fraction Part/Parts of one. Parts is the rule's.
// Part is from 0 to Parts-1. So a rate of 7 per second is exact.
type Span struct{ Whole, Part int64 }

func (a Span) add(b Span, parts int64) Span {
	a.Whole += b.Whole
	if a.Part += b.Part; a.Part >= parts {
		a.Whole++
		a.Part -= parts
	}
	return a
}

func (a Span) sub(b Span, parts int64) Span {
	a.Whole -= b.Whole
	if a.Part -= b.Part; a.Part < 0 {
		a.Whole--
		a.Part += parts
	}
	return a
}

func (a Span) exceeds(b Span) bool {
	return a.Whole > b.Whole || a.Whole == b.Whole && a.Part > b.Part
}

// Ceil is the span in microseconds, rounded up.
func (a Span) Ceil() int64 { return a.Whole + min(a.Part, 1) }

// beyond stands for all spans that are too long for a valid rule.
const beyond = math.MaxInt64 / 4

// Time returns the time that n units take at the rule's rate, at most 2^61 microseconds.
func (r *Rule) Time(n int64) Span {
	if n == 1 {
		return r.Emission
	}
	return spanOf(r.pace, n, r.Parts)
}

// spanOf is pace*n/parts microseconds.
func spanOf(pace, n, parts int64) Span {
	hi, lo := bits.Mul64(uint64(pace), uint64(n))
	if hi < uint64(parts) {
		if whole, part := bits.Div64(hi, lo, uint64(parts)); whole < beyond {
			return Span{int64(whole), int64(part)}
		}
	}
	return Span{beyond, 0}
}

// units is how many whole units fit between two spans, or 0 if b is the longer one.
func (r *Rule) units(a, b Span) int64 {
	if a = a.sub(b, r.Parts); a.Whole < 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a.Whole), uint64(r.Parts))
	lo, carry := bits.Add64(lo, uint64(a.Part), 0)
	pace := uint64(r.pace)
	if hi += carry; hi > 0 {
		n, _ := bits.Div64(hi, lo, pace)
		return int64(n)
	}
	n, _ := bits.Mul64(lo, r.inverse) // at most 1 too low; a division takes ten times as long
	if lo-n*pace >= pace {
		n++
	}
	return int64(n)
}

// A Mode says what a charge may change: for example nothing, or as much as fits.
type Mode uint8

// The modes of an [Ask].
const (
	ModeCharge  Mode = iota // charge if there is room
	ModePatient             // as ModeCharge, but the caller waits if it is refused: no limit records the refusal
	ModePeek                // answer, and write nothing
	ModeForce               // charge up to the cost, as far as there is room; always allowed
	ModeOwe                 // as ModeForce, but charge above the quota too, up to two quotas: core.Limiter.Settle
)

// NeedsRoom reports whether a charge of the mode depends on room: with room it is charged, and without it is refused.
func (m Mode) NeedsRoom() bool { return m == ModeCharge || m == ModePatient }

// forced reports whether a charge of the mode is allowed whatever the state is: ModeForce, and those after it.
func (m Mode) forced() bool { return m >= ModeForce }

// An Ask is a request to a rule, without the cost.
type Ask struct {
	Mode Mode

	// Ahead, in microseconds, lets a meter admit an action up to that time before it has room. The
	// caller waits for its turn. Shadow rules ignore Ahead.
	Ahead int64

	// Ban is the length of a manual ban, in microseconds, for a rule of KindBan; 0 is none.
	Ban int64
}

// A State is what a store keeps for one rule, one user and one action: when it expires, a small
// number, and for few states Data. The zero State means that the store keeps nothing. So does a
// state that has expired.
//
// [Rule.Marshal] returns its bytes. A copy has the same Data as the original, and a charge changes
// Data. So a store that may discard a decision, as after a compare-and-swap that failed, must load
// the state again.
type State struct {
	Expires int64 // the store need not keep it from this instant on
	N       uint32
	Data    Data // nil for most buckets and funnels, and for all counters; then N counts, and else not
}

// Data is the part of a state beyond its two numbers. Only the machine knows its fields. A store
// keeps it.
type Data interface{ form() Form }

// An Entry is the state of one rule during a decision, and what is decided about it. A store makes
// an Entry for each rule of a charge, with the State that it keeps. If Dirty is set after the
// decision, the store writes the State back. Package core's Charge decides about several entries at
// once, all or none.
type Entry struct {
	State

	// Epoch is the store's instant 0, in microseconds since 1970. A store sets it if the rule has a
	// Calendar. It may differ from decision to decision, because the time of day may be set.
	Epoch int64

	Dirty bool // the state is to be written, or deleted if it has expired

	Reading // Fits is set by Check, the rest by Charge, Refuse or Read
}

// Check brings an entry to the instant now, in microseconds on the store's clock. It sets Fits if
// the rule has room for the cost.
func (r *Rule) Check(e *Entry, now, cost int64, a *Ask) {
	s, fits, changed := r.machine.check(r, now+e.Epoch, cost, a, e.dated())
	if e.Fits = fits; changed {
		s.Expires -= e.Epoch
		e.State, e.Dirty = s, s.Expires > now
	}
}

// dated is the state with Expires since 1970, if it has an Epoch.
func (e *Entry) dated() State { return State{e.Expires + e.Epoch, e.N, e.Data} }

// set keeps a dated state, if it has changed, and fills in the Reading.
func (e *Entry) set(v numbers, detail int64, s State, changed bool) {
	if changed {
		e.State, e.Dirty = State{s.Expires - e.Epoch, s.N, s.Data}, true
	}
	e.Count, e.Rest, e.Wait, e.Detail = v.Count, v.Rest, v.Wait, detail
}

// Charge charges the cost to a checked entry, and fills in the Reading. It charges all of the cost,
// or with ModeForce what fits, or with ModeOwe what a state can hold. A rule of Failures is charged
// only with ModeForce or ModeOwe.
func (r *Rule) Charge(e *Entry, now, cost int64, a *Ask) {
	if r.Failures && !a.Mode.forced() {
		r.Read(e, now, cost)
		return
	}
	e.set(r.machine.charge(r, now+e.Epoch, cost, a, e.dated()))
}

// most is how many units a forced charge may leave: with ModeOwe two quotas.
func (r *Rule) most(mode Mode) int64 {
	if mode == ModeOwe {
		return 2 * r.Max
	}
	return r.Max
}

// RecordsRefusals reports whether a refused action may change the state: see [Rule.Refuse].
func (r *Rule) RecordsRefusals() bool { return r.records }

// Refuse does not charge a checked entry, and fills in the Reading. The refusal is recorded if
// record is set, the caller is not patient, and the rule [Rule.RecordsRefusals]. record is never
// set during a ban. A bucket with Initial that has no state is started, even if the caller is
// patient.
func (r *Rule) Refuse(e *Entry, now, cost int64, record, patient bool) {
	if r.Ban == nil {
		record = record && !e.Fits && cost <= r.Max // what a later one could pass
	}
	record = record && (r.ForgetAfter > 0 || r.records && !patient)
	e.set(r.machine.refuse(r, now+e.Epoch, cost, record, e.dated()))
}

// A Reading has the numbers of a state after a decision. A store that decides elsewhere, for
// example in Lua, makes Readings from its reply.
type Reading struct {
	Fits  bool
	Count int64 // windows: the units in the window; a ban: the refusals that count towards the next
	Rest  Span  // until the full quota is available; a ban: until all is forgotten

	// Wait is the time after which the rule has room for the cost, if it has no room now and the
	// cost is at most Max. After a charge, Wait is the time after which one more unit fits, and not
	// positive if it fits now. During a ban it is the time until the ban ends. In all other cases
	// it may be any number.
	Wait int64

	// Detail has another meaning for each of these kinds:
	//   - a ban: the number of bans in a row
	//   - a calendar window in which nothing counts, after Read: the time until the period ends
	//   - a meter whose charge can be amended: the number of the last refund
	//   - slots whose charge can be amended: the ID of the first slot
	Detail int64
}

// Read fills in the Reading of an entry that is neither charged nor refused. It comes after Check
// or Amend.
func (r *Rule) Read(e *Entry, now, cost int64) {
	v, detail := r.machine.read(r, now+e.Epoch, cost, e.dated())
	e.set(v, detail, State{}, false)
}

// Remaining returns the number of units that fit right now.
func (r *Rule) Remaining(v *Reading) int64 {
	if r.Parts == 0 {
		return max(0, r.Max-v.Count)
	}
	return r.units(r.Burst, v.Rest)
}

// Used returns the number of units that count at present, rounded up. It may be more than Max.
func (r *Rule) Used(v *Reading) int64 {
	const most = 1 << 40 // only a state that is not of this package owes more
	switch {
	case r.Parts == 0:
		return v.Count
	case v.Rest.exceeds(r.Time(most)):
		return most
	}
	used := r.units(v.Rest, Span{})
	if v.Rest.exceeds(r.Time(used)) {
		used++
	}
	return used
}

// WritesUnits reports whether a charge writes each of its units separately, so that a high cost
// takes long.
func (r *Rule) WritesUnits() bool { return forms[r.Kind.Form()].units }

// Reserves reports whether a turn can be reserved: whether the rule heeds Ask.Ahead.
func (r *Rule) Reserves() bool { return r.Parts > 0 }

// AtOnce reports whether the full quota comes back at once, when a window ends.
func (r *Rule) AtOnce() bool { return r.Kind.Form() == FormCounter }

// Predictable reports whether v determines all later readings of the state, as long as nothing is
// charged. Then the full quota returns steadily, or at once after v.Rest. count says whether the
// later readings must have the right Count.
func (r *Rule) Predictable(v *Reading, count bool) bool {
	return r.machine.predictable(r, *v, count)
}
