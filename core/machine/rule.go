package machine

import (
	"math"
	"math/bits"
)

// A Rule is a limit in integers: see [NewWindow], [NewMeter] and [NewBan]. All times are in
// microseconds. Package core validates the numbers, and a Rule does not.
type Rule struct {
	Kind    Kind
	machine machine // the machine of the kind
	records bool    // a refusal changes the state
	Max     int64   // the quota: a window's units, a meter's capacity, the slots of InFlight, or the refusals before a ban

	// Package core sets these fields. Hash is a hash of the limit's identity. It is different in
	// each process, and two limits may have the same hash. For a key outside of the process use
	// core.Limit.Identity.
	Hash     uint64
	PerUser  bool  // the limit counts all of a user's actions together
	Shadow   bool  // the limit never refuses
	Failures bool  // only ModeForce and ModeOwe are charged, after an action has failed: core.OnlyFailures
	Held     int64 // slots that the action has taken before: see [Rule.Takes]

	Prepay int64 // how long before its action a unit may be charged: see [Rule.WithPrepay]

	// Windows and InFlight have these fields. For InFlight, Period is the lease of a slot.
	Period   int64     // for a calendar window, the longest period
	Calendar *Calendar // nil unless the rule is a calendar window

	// For meters, which are buckets and funnels.
	Emission    Span   // the emission interval: the time in which one unit drains
	Burst       Span   // the time in which the full quota drains
	Start       Span   // the debt of a bucket with Initial that has not been used
	Parts       int64  // the denominator of all spans; 0 if the rule is not a meter
	ForgetAfter int64  // how long a bucket with Initial is kept after its last action; 0 for other meters
	oneMore     Span   // Burst less Emission: the highest debt at which one more unit fits
	pace        int64  // Emission is pace/Parts microseconds
	inverse     uint64 // (2^64-1)/pace, rounded down

	Ban *BanRule // nil unless the rule is a ban policy
}

// NewWindow returns the rule of a window of at most max units per period.
func NewWindow(kind Kind, max, period int64) Rule {
	return Rule{Kind: kind, machine: forms[kind.Form()].machine, records: kinds[kind].records, Max: max, Period: period}
}

// NewCalendarWindow returns the rule of a window of at most max units in each period of a calendar.
func NewCalendarWindow(max int64, c *Calendar) Rule {
	r := NewWindow(KindCalendarWindow, max, c.Longest())
	r.Calendar = c
	return r
}

// NewMeter returns the rule of a bucket or funnel whose quota is capacity. A bucket gains n units
// per period, and a funnel drains n units per period.
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

// WithInitial returns the rule of a bucket that starts with n units instead of full. The bucket
// forgets its state when forgetAfter microseconds have passed since the last admitted action, or
// since the refused action that started the bucket. If forgetAfter is shorter than the time in
// which the bucket fills, the bucket keeps its state for that time and a microsecond, so that a
// user who waits finds the bucket full. If an action leaves a debt above the quota, the state is
// kept longer.
func (r Rule) WithInitial(n, forgetAfter int64) Rule {
	r.Start = spanOf(r.pace, r.Max-n, r.Parts)
	r.ForgetAfter = max(forgetAfter, r.Burst.Ceil()+1)
	return r
}

// WithPrepay returns the rule of a limit whose units may be charged up to d microseconds before
// their actions. The limit still holds for the actions:
//
//   - The window of a MovingWindow becomes longer by d.
//   - The quota of a bucket or funnel becomes smaller, and may become 0.
//   - A FixedWindow or CalendarWindow keeps its quota and period. The caller must not use a unit
//     after the end of the window in which the unit was charged.
//
// Call WithPrepay only for these kinds: see [Kind.Prepaid].
func (r Rule) WithPrepay(d int64) Rule {
	r.Prepay = d
	r.machine.prepay(&r, d)
	return r
}

// Rate returns a meter's rate in lowest terms: n units per period.
func (r *Rule) Rate() (n, period int64) { return r.Parts, r.pace }

// A Span is an exact length of time, in microseconds: Whole + Part/Parts. Parts is the rule's field
// of that name, and Part is less than Parts. So even the interval of 7 units per second is exact.
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

// Ceil returns the span in microseconds, rounded up.
func (a Span) Ceil() int64 { return a.Whole + min(a.Part, 1) }

// beyond stands for all spans that are too long for a valid rule.
const beyond = math.MaxInt64 / 4

// Time returns the time in which n units drain at the rule's rate. It returns at most 2^61
// microseconds.
func (r *Rule) Time(n int64) Span {
	if n == 1 {
		return r.Emission
	}
	return spanOf(r.pace, n, r.Parts)
}

// spanOf returns pace*n/parts microseconds, but at most beyond.
func spanOf(pace, n, parts int64) Span {
	hi, lo := bits.Mul64(uint64(pace), uint64(n))
	if hi < uint64(parts) {
		if whole, part := bits.Div64(hi, lo, uint64(parts)); whole < beyond {
			return Span{int64(whole), int64(part)}
		}
	}
	return Span{beyond, 0}
}

// units returns the number of whole units that drain in the time a-b, or 0 if b is longer than a.
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
	n, _ := bits.Mul64(lo, r.inverse) // too low by at most 1; a division would take ten times as long
	if lo-n*pace >= pace {
		n++
	}
	return int64(n)
}

// A Mode says whether a charge needs room, and what it may change.
type Mode uint8

// The modes of an [Ask].
const (
	ModeCharge  Mode = iota // charge if there is room
	ModePatient             // like ModeCharge, but the caller waits for its turn, so no limit records that the charge is refused
	ModePeek                // decide, but write nothing
	ModeForce               // allow even if there is no room, and charge as much of the cost as fits
	ModeOwe                 // like ModeForce, but fill the state up to two quotas: core.Limiter.Settle
)

// NeedsRoom reports whether a charge of the mode is refused if there is no room for it: ModeCharge
// and ModePatient.
func (m Mode) NeedsRoom() bool { return m == ModeCharge || m == ModePatient }

// forced reports whether a limit allows a charge of the mode without room for it: ModeForce and
// ModeOwe.
func (m Mode) forced() bool { return m >= ModeForce }

// An Ask is what a caller asks of a rule, without the cost.
type Ask struct {
	Mode Mode

	// Ahead lets a meter admit an action up to Ahead microseconds before there is room for it. The
	// caller then waits for its turn. Shadow rules ignore Ahead.
	Ahead int64

	// Ban is the length of a manual ban, in microseconds, for a rule of KindBan. 0 means no ban.
	Ban int64
}

// A State is what a store keeps for one rule, one user and one action. If the rule is PerUser, the
// state is for all of the user's actions. The zero State means that nothing is kept. A state that
// has expired means the same.
//
// [Rule.Marshal] returns a state as bytes. A copy of a State shares its Data, and Charge, Refuse and
// Amend may change Data. So if a store drops a decision, for example after a failed
// compare-and-swap, it must load the state again.
type State struct {
	Expires int64 // from this instant on, the store need not keep the state
	N       uint32
	Data    Data // nil for most buckets and funnels, and for all counters; if not nil, N is 0
}

// Data is the part of a state beyond Expires and N. A store keeps it, and only the machine knows
// its fields.
type Data interface{ form() Form }

// An Entry is the state of one rule during a decision, and the result of the decision. A store
// makes an Entry for each rule of a charge, with the State that it has kept. If Dirty is set after
// the decision, the store must write the State back. The methods of core.Charge decide about
// several entries together: all of them are charged, or none.
type Entry struct {
	State

	// Epoch is the store's instant 0, in microseconds since 1970. A store must set it if the rule
	// has a Calendar, and must leave it 0 otherwise. It may differ from decision to decision,
	// because the time of day can be set.
	Epoch int64

	Dirty bool // the store must write the state, or delete it if it has expired

	Reading // Check sets Fits; Charge, Refuse and Read set the other fields; Amend sets none
}

// Check brings an entry to the instant now, in microseconds on the store's clock. It sets Fits if
// the rule has room for the cost. For ModeForce and ModeOwe it sets Fits even if there is no room,
// unless the rule is a ban policy. A ban policy has room if the user is not banned.
func (r *Rule) Check(e *Entry, now, cost int64, a *Ask) {
	s, fits, changed := r.machine.check(r, now+e.Epoch, cost, a, e.dated())
	if e.Fits = fits; changed {
		s.Expires -= e.Epoch
		e.State, e.Dirty = s, s.Expires > now
	}
}

// dated returns the state with Expires in microseconds since 1970, if Epoch is set.
func (e *Entry) dated() State { return State{e.Expires + e.Epoch, e.N, e.Data} }

// set fills in the Reading, and keeps a changed state that dated has converted.
func (e *Entry) set(v numbers, detail int64, s State, changed bool) {
	if changed {
		e.State, e.Dirty = State{s.Expires - e.Epoch, s.N, s.Data}, true
	}
	e.Count, e.Rest, e.Wait, e.Detail = v.Count, v.Rest, v.Wait, detail
}

// Charge charges the cost to a checked entry, and fills in the Reading. There are exceptions:
//
//   - With ModeForce it charges only what fits, and with ModeOwe only what fits into two quotas.
//     InFlight is not charged with these modes.
//   - A rule of Failures is charged only with ModeForce or ModeOwe.
//   - A ban policy is not charged. If Ask.Ban is set, Charge bans the user.
func (r *Rule) Charge(e *Entry, now, cost int64, a *Ask) {
	if r.Failures && !a.Mode.forced() {
		r.Read(e, now, cost)
		return
	}
	e.set(r.machine.charge(r, now+e.Epoch, cost, a, e.dated()))
}

// most returns the number of units up to which a forced charge fills a state.
func (r *Rule) most(mode Mode) int64 {
	if mode == ModeOwe {
		return 2 * r.Max
	}
	return r.Max
}

// RecordsRefusals reports whether the rule records refused actions: see [Rule.Refuse]. A bucket
// with Initial does not, although a refused action may start it.
func (r *Rule) RecordsRefusals() bool { return r.records }

// Refuse fills in the Reading of a checked entry without charging it. If record is set, it may do
// one of these:
//
//   - If the rule records refusals, and patient is not set, Refuse records the refusal: see
//     [Rule.RecordsRefusals].
//   - If the rule is a bucket with Initial that has not been used, the bucket starts to fill, even
//     if patient is set.
//
// A rule that is not a ban policy does this only if it has no room now, and the cost is at most Max.
// Callers do not set record during a ban.
func (r *Rule) Refuse(e *Entry, now, cost int64, record, patient bool) {
	if r.Ban == nil {
		record = record && !e.Fits && cost <= r.Max // an action that could pass later
	}
	record = record && (r.ForgetAfter > 0 || r.records && !patient)
	e.set(r.machine.refuse(r, now+e.Epoch, cost, record, e.dated()))
}

// A Reading is a state in numbers, after a decision. A store that decides elsewhere, for example in
// Lua, makes Readings from the reply.
type Reading struct {
	Fits  bool
	Count int64 // for a window, the units that count; for InFlight, the slots; for a ban policy, the refusals since the last ban that count
	Rest  Span  // the time until the full quota is available, or until bans and refusals are forgotten

	// Wait has a meaning only in these cases:
	//   - After Refuse or Read, if the rule has no room for the cost now, and the cost is at most
	//     Max: the time after which it has room.
	//   - After a Charge of a limit with a Max of at least 1: the time after which one more unit
	//     fits, and 0 or less if it fits now. If a rule of Failures was not charged, Wait is as
	//     after Read.
	//   - During a ban: the time until the ban ends.
	Wait int64

	// Detail has a meaning only in these cases:
	//   - A ban policy: the number of bans in a row, without bans by hand.
	//   - A calendar window in which nothing counts, after Read: the time until the period ends.
	//   - A meter whose charge can be amended: the number of the last refund.
	//   - InFlight, if its charge can be amended: the ID of the first slot.
	Detail int64
}

// Read fills in the Reading of an entry that is neither charged nor refused. Call it after Check or
// Amend.
func (r *Rule) Read(e *Entry, now, cost int64) {
	v, detail := r.machine.read(r, now+e.Epoch, cost, e.dated())
	e.set(v, detail, State{}, false)
}

// Remaining returns the number of units that fit now.
func (r *Rule) Remaining(v *Reading) int64 {
	if r.Parts == 0 {
		return max(0, r.Max-v.Count)
	}
	return r.units(r.Burst, v.Rest)
}

// Used returns the number of units that count now, rounded up, but for a meter at most 2^40. It may
// be more than Max.
func (r *Rule) Used(v *Reading) int64 {
	const most = 1 << 40 // only a state that this package has not made owes more
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

// WritesUnits reports whether a charge writes each of its units separately. A charge of a high cost
// then takes long.
func (r *Rule) WritesUnits() bool { return forms[r.Kind.Form()].units }

// Reserves reports whether the rule is a meter, which can reserve a turn: see Ask.Ahead.
func (r *Rule) Reserves() bool { return r.Parts > 0 }

// AtOnce reports whether the full quota comes back at a single instant, the end of a window.
func (r *Rule) AtOnce() bool { return r.Kind.Form() == FormCounter }

// Predictable reports whether v determines the later readings of the state, as long as nothing
// changes the state. If count is not set, the later Counts do not matter.
func (r *Rule) Predictable(v *Reading, count bool) bool {
	return r.machine.predictable(r, *v, count)
}
