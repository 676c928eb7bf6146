package machine

import "math"

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

	// Windows, and InFlight, whose period is the lease of a slot.
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

// WithInitial makes a bucket start with n units instead of full, and forget its state
// after forgetAfter without an admitted action. The state is kept for at least as long as
// the bucket takes to fill, and a microsecond more: a user who waits must see it full.
func (r Rule) WithInitial(n, forgetAfter int64) Rule {
	r.Start = spanOf(r.pace, r.Max-n, r.Parts)
	r.ForgetAfter = max(forgetAfter, r.Burst.Ceil()+1)
	return r
}

// WithPrepay makes a rule whose units may be charged up to d microseconds before their actions, and which
// still holds for the actions. A longer window or a smaller quota makes up for it. A quota of
// which nothing is left is 0.
func (r Rule) WithPrepay(d int64) Rule {
	r.Prepay = d
	r.machine.prepay(&r, d)
	return r
}

// Rate is a meter's rate in lowest terms: n units per period.
func (r *Rule) Rate() (n, period int64) { return r.Parts, r.pace }

// A Mode says what an [Ask] may change.
type Mode uint8

// The modes of an [Ask].
const (
	ModeCharge  Mode = iota // charge if there is room
	ModePatient             // as ModeCharge, but the caller waits if it is refused: no limit records the refusal
	ModePeek                // answer, and write nothing
	ModeForce               // charge up to the cost, as far as there is room; always allowed
	ModeOwe                 // as ModeForce, but charge above the quota too, up to two quotas: core.Limiter.Settle
)

// Asks reports whether a charge of the mode is charged if there is room, and otherwise refused.
func (m Mode) Asks() bool { return m == ModeCharge || m == ModePatient }

// forced reports whether a charge of the mode is allowed whatever the state is: ModeForce, and those after it.
func (m Mode) forced() bool { return m >= ModeForce }

// An Ask is what a request to a rule has besides its cost.
type Ask struct {
	Mode Mode

	// Ahead, in microseconds, lets a meter admit an action that long before it has room.
	// The caller waits for its turn. Shadow rules ignore it.
	Ahead int64

	// Ban is the length of a manual ban, in microseconds, for a rule of KindBan; 0 is none.
	Ban int64
}

// A State is what a store keeps for one rule, one user and one action: until when, a small number, and what
// few states have besides. The zero State stands for a rule of which the store keeps nothing, and so does one
// that has expired.
//
// [Rule.Marshal] makes bytes of it. A copy shares More with the original, and a charge changes that. So a
// store that may discard what it has decided, as with a compare-and-swap that failed, loads the state again.
type State struct {
	Expires int64 // the store need not keep it from this instant on
	N       uint32
	More    More // nil for most buckets and funnels, and for all counters; then N counts, and else not
}

// More is what a state has besides two numbers. What it is belongs to the machine: a store only keeps it.
type More interface{ form() Form }

// An Entry is the part of one rule in a decision: its state, and what is decided of it. A store makes an
// Entry of each rule of a charge, with the State that it keeps, and writes the State back if Dirty is set.
// Package core's Charge does the rest for several rules at once, all or none.
type Entry struct {
	State

	// Epoch is the store's instant 0, in microseconds since 1970. A store sets it if the rule has a
	// Calendar. The time of day may be set, so it may be another one each time.
	Epoch int64

	Dirty bool // the state is to be written, or deleted if it has expired

	Reading // Fits is set by Check, the rest by Charge, Refuse or Read
}

// Check brings an entry to the instant now, in microseconds on the store's clock, and sets
// Fits if the rule has room for the cost.
func (r *Rule) Check(e *Entry, now, cost int64, a *Ask) {
	s, fits, changed := r.machine.check(r, now+e.Epoch, cost, a, e.dated())
	if e.Fits = fits; changed {
		s.Expires -= e.Epoch
		e.State, e.Dirty = s, s.Expires > now
	}
}

// dated is the state with Expires since 1970, if it has an Epoch.
func (e *Entry) dated() State { return State{e.Expires + e.Epoch, e.N, e.More} }

// set keeps a dated state, if it has changed, and fills in the Reading.
func (e *Entry) set(v numbers, detail int64, s State, changed bool) {
	if changed {
		e.State, e.Dirty = State{s.Expires - e.Epoch, s.N, s.More}, true
	}
	e.Count, e.Rest, e.Wait, e.Detail = v.Count, v.Rest, v.Wait, detail
}

// Charge charges the cost to a checked entry: all of it, with ModeForce what fits, with ModeOwe what a
// state can hold. Of a rule of Failures, nothing unless the mode is one of these two. It fills in the Reading.
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

// RecordsRefusals reports whether a refused action changes the state: see [Rule.Refuse].
func (r *Rule) RecordsRefusals() bool { return r.records }

// Refuse leaves a checked entry uncharged, and fills in the Reading. If record is set, which it is not while a ban
// lasts, a rule that [Rule.RecordsRefusals] records the refusal, unless the caller is patient. A bucket with Initial
// that has no state is started, whether the caller is patient or not.
func (r *Rule) Refuse(e *Entry, now, cost int64, record, patient bool) {
	if r.Ban == nil {
		record = record && !e.Fits && cost <= r.Max // what a later one could pass
	}
	record = record && (r.ForgetAfter > 0 || r.records && !patient)
	e.set(r.machine.refuse(r, now+e.Epoch, cost, record, e.dated()))
}

// A Reading is the numbers of a state after a decision. A store that decides elsewhere, in
// Lua for example, makes Readings of its reply.
type Reading struct {
	Fits  bool
	Count int64 // windows: the units in the window; a ban: the refusals that count towards the next
	Rest  Span  // until the full quota is available; a ban: until all is forgotten

	// Wait is how long it takes until the rule has room for a cost up to Max, if it has none. After a charge, it is
	// how long one more unit waits, and not positive if that has room too. Otherwise it may be any number. A ban:
	// until it ends.
	Wait int64

	// Detail is one number of some kinds. A ban: bans in a row. A calendar window in which nothing counts, after
	// Read: until the period ends. What an amendment of a charge needs: of a meter the number of the last refund, of
	// slots the ID of the first.
	Detail int64
}

// Read fills in the Reading of an entry that is neither charged nor refused: after Check, or after Amend.
func (r *Rule) Read(e *Entry, now, cost int64) {
	v, detail := r.machine.read(r, now+e.Epoch, cost, e.dated())
	e.set(v, detail, State{}, false)
}

// Remaining is how many units fit right now.
func (r *Rule) Remaining(v *Reading) int64 {
	if r.Parts == 0 {
		return max(0, r.Max-v.Count)
	}
	return r.units(r.Burst, v.Rest)
}

// Used is how many units count at present, a part of one as a whole one. It may be more than Max.
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

// WritesUnits reports whether a charge writes each of its units, so that a high cost takes long.
func (r *Rule) WritesUnits() bool { return forms[r.Kind.Form()].units }

// Reserves reports whether the rule heeds Ask.Ahead, so that a turn can be reserved.
func (r *Rule) Reserves() bool { return r.Parts > 0 }

// AtOnce reports whether the full quota comes back at once, when a window ends.
func (r *Rule) AtOnce() bool { return r.Kind.Form() == FormCounter }

// Foreseen reports whether v determines the later readings of a state that nothing is charged to:
// its full quota returns steadily, or at once when v.Rest is over. count says whether the Count
// matters.
func (r *Rule) Foreseen(v *Reading, count bool) bool {
	return r.machine.foreseen(r, *v, count)
}

// Taken is what an admitted ask has charged: Cost units at the instant At, less what [Rule.Takes] leaves out.
// Reading is the state's reading just after the charge.
type Taken struct {
	At, Cost int64
	Reading  Reading
}

// An Amendment is a change of what an admitted ask has taken.
type Amendment struct {
	Verb  Verb
	Units int64 // of a refund, 1 to the cost
}

// A Verb says what an [Amendment] does.
type Verb uint8

// The verbs. Each concerns some kinds only: see [Rule.Concerns].
const (
	VerbRefund  Verb = iota // give units back, as if the action had never happened
	VerbRelease             // free the slots, because the action has ended
	VerbRenew               // have the lease of the slots begin now
)

// TakesSlots reports whether the rule counts actions in progress. Its charge is released, and not
// refunded.
func (r *Rule) TakesSlots() bool { return r.Kind.Form() == FormSlots }

// Takes is how many units an ask of that cost takes: slots that the action has already are not taken again.
func (r *Rule) Takes(cost int64) int64 { return max(0, cost-r.Held) }

// Concerns reports whether an amendment changes states of the rule.
func (r *Rule) Concerns(a Amendment) bool { return r.TakesSlots() == (a.Verb != VerbRefund) }

// Amend amends t in an entry's state as it is kept now. It sets Dirty if the state is to be written, or
// deleted because it has expired. If there is nothing left to amend, it changes nothing.
//
// After a refund the state has no more room than if the action had never happened, except that
// a bucket with Initial stays started.
//
// What a refund of a meter gives back: call the instant at which a debt will have drained its end. Let e be
// the end just after the charge, but no later than the end now, nor than that of any refund since the charge.
// The refund gives back the time that the units take at the rate, and at most that from now to e; the end now
// is then earlier by that. The end of this refund is this new end, and the ends of the other refunds since the
// charge become earlier by the same time. A refund does not matter any more if its end is not before that of a
// later one, or if the end of a later one is past, or when all that was charged before the last refund has
// drained, or if it gave nothing back. Eight refunds are remembered. Of nine, two in a row become one: those whose
// ends, in whole microseconds, are the nearest, and of several such two the first. It has the earlier end and counts
// as the later refund, so that a refund may give back less.
func (r *Rule) Amend(e *Entry, t Taken, now int64, a Amendment) {
	e.Dirty = false
	if e.Expires > now && r.Concerns(a) && (r.TakesSlots() || now >= t.At) {
		e.State, e.Dirty = r.machine.amend(r, now, t, a, e.State)
	}
}
