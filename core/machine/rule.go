package machine

// A Rule is a limit compiled to integers; see [NewWindow], [NewMeter] and [NewBan]. Times
// are microseconds. Package core validates the numbers; a Rule does not.
type Rule struct {
	Kind    Kind
	machine machine // the kind's
	Max     int64   // the quota: units for a window, capacity for a meter, refusals for a ban

	// Hash is that of the limit's identity; package core sets it. It differs from process to
	// process, and two limits may have the same. A key outside of the process uses core.Limit.Identity.
	Hash uint64

	Period   int64     // windows; of a calendar window the longest one
	Calendar *Calendar // KindCalendarWindow

	// Meters: buckets and funnels.
	Emission    Span  // the emission interval: the time of one unit
	Burst       Span  // the time of the full quota: the most debt that a meter may have
	Start       Span  // the debt of a bucket with Initial that has no state
	Parts       int64 // the denominator of all spans
	ForgetAfter int64 // how long a bucket with Initial is kept after its last action; else 0
	pace        int64 // Emission is pace/Parts microseconds

	Lease int64 // how long before the action a unit may be charged: see [Rule.WithLease]

	Ban *BanRule // KindBan

	// Failures says that only a forced ask is charged, for an action that has failed: core.OnlyFailures.
	Failures bool

	Held int64 // slots that the action has already: see [Rule.Takes]
}

// NewWindow makes the rule of a window of at most max units a period.
func NewWindow(kind Kind, max, period int64) Rule {
	return Rule{Kind: kind, machine: forms[kind.Form()].machine, Max: max, Period: period}
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
	if g := gcd(period, n); g > 1 {
		period, n = period/g, n/g
	}
	return Rule{
		Kind: kind, machine: forms[kind.Form()].machine, Max: capacity, pace: period, Parts: n,
		Emission: spanOf(period, 1, n), Burst: spanOf(period, capacity, n),
	}
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

// WithLease makes a rule whose units may be charged up to lease before their actions, and which
// still holds for the actions. A longer window or a smaller quota makes up for the lease. A quota of
// which nothing is left is 0.
func (r Rule) WithLease(lease int64) Rule {
	r.Lease = lease
	r.machine.lease(&r, lease)
	return r
}

// Rate is a meter's rate in lowest terms: n units per period.
func (r *Rule) Rate() (n, period int64) { return r.Parts, r.pace }

// A Mode says what an [Ask] may change.
type Mode uint8

// The modes of an [Ask].
const (
	ModeCharge Mode = iota // charge if there is room
	ModePeek               // answer, and write nothing
	ModeForce              // charge up to the cost, as far as there is room; always allowed
	ModeOwe                // as ModeForce, but charge above the quota too, up to two quotas: core.Limiter.Settle
)

// An Ask is a request to a rule.
type Ask struct {
	Cost int64 // units, at least 1

	// Ahead, in microseconds, lets a meter admit an action that long before it has room.
	// The caller waits for its turn.
	Ahead int64

	// Ban is the length of a manual ban, in microseconds, for a rule of KindBan; 0 is none.
	Ban int64

	Mode Mode

	// Patient says that the caller waits if it is refused: no limit records the refusal.
	Patient bool
}

// forced reports whether the ask is allowed whatever the state is.
func (a *Ask) forced() bool { return a.Mode == ModeForce || a.Mode == ModeOwe }

// A State is what a store keeps for one rule, one user and one action. The zero State stands
// for a rule of which the store keeps nothing.
//
// A store loads a state, passes it to [Rule.Check] and then to [Rule.Charge] or
// [Rule.Refuse], and writes it back if Dirty is set. Package core's Charge does so for
// several rules at once, all or none. The methods of a rule make a State that is on the stack
// escape to the heap, so a store that must not allocate keeps States to use again.
//
// A copy of a State shares Other and the instants of a long Trail with the original. A store
// that may discard what it has decided, as with a compare-and-swap that failed, does not decide
// on a copy: it loads the state again, with [State.UnmarshalBinary].
//
// What every decision of a bucket or funnel uses comes first, in few cache lines.
type State struct {
	Exists bool // the store keeps it; if false, the rest is ignored
	Dirty  bool // the state is to be written

	// Epoch is the store's instant 0, in microseconds since 1970. A store sets it if the rule has a
	// Calendar. The time of day may be set, so it may be another one each time.
	Epoch int64

	Reading // Fits is set by Check, the rest by Read

	next  Span  // the debt of a meter after the charge
	ahead int64 // how far the state is ahead of a clock that stepped back

	Meter   Meter   // buckets and funnels
	Counter Counter // FixedWindow, ElasticWindow and CalendarWindow
	Trail   Trail   // SlidingWindow and MovingWindow
	Other   Other   // what other kinds keep; nil: nothing
}

// Other is a state that few keys have: *[Bans] or *[Slots].
type Other interface{ form() Form }

// Check brings a state to the instant now, in microseconds on the store's clock, and sets
// Fits if the rule has room for the ask.
func (r *Rule) Check(s *State, now int64, a *Ask) {
	s.Dirty, s.ahead, s.Reading = false, 0, Reading{}
	s.Fits = r.machine.check(r, s, now, *a)
}

// Charge charges the cost to a checked state: all of it, with ModeForce what fits, with ModeOwe what a
// state can hold. Of a rule of Failures, nothing unless the ask is forced.
func (r *Rule) Charge(s *State, now int64, a *Ask) {
	if !r.Failures || a.forced() {
		r.machine.charge(r, s, now, *a)
	}
}

// RecordsRefusals reports whether a refused action changes the state: see [Rule.Refuse].
func (r *Rule) RecordsRefusals() bool { return kinds[r.Kind].records && (r.Ban == nil || r.Max > 0) }

// Refuse records the refusal in a checked state, if the rule [Rule.RecordsRefusals]. If
// record is false, as while a ban lasts, or the caller is Patient, it records nothing. A refused
// action that starts a bucket with Initial starts it nonetheless if the caller is Patient.
func (r *Rule) Refuse(s *State, now int64, a *Ask, record bool) {
	r.machine.refuse(r, s, now, *a, record)
}

// refused reports whether the rule itself has refused an ask that a later one could pass.
func (r *Rule) refused(s *State, a Ask) bool { return !s.Fits && a.Cost <= r.Max }

// A Reading is the numbers of a state after a decision. A store that decides elsewhere, in
// Lua for example, makes Readings of its reply.
type Reading struct {
	Fits  bool
	Count int64 // windows: the units in the window; a ban: the refusals that count towards the next
	Level int   // a ban: bans in a row
	Rest  Span  // until the full quota is available; a ban: until all is forgotten
	Wait  int64 // until the rule has room for a cost up to Max, if it has none; a ban: until it ends

	// Mark is what an amendment needs. Of a meter it is the number of the last refund: see [Refunds]. Of
	// slots it is the first one's ID, less the first ID of the instant of the charge.
	Mark int64
}

// Read fills in s.Reading after Check, and after Charge or Refuse if the store calls them.
func (r *Rule) Read(s *State, now int64, a *Ask) *Reading {
	r.machine.read(r, s, now, a.Cost)
	return &s.Reading
}

// Remaining is how many units fit right now.
func (r *Rule) Remaining(v *Reading) int64 { return r.machine.remaining(r, v) }

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
func (r *Rule) TakesSlots() bool { return kinds[r.Kind].slots }

// Takes is how many units an ask of that cost takes: slots that the action has already are not taken again.
func (r *Rule) Takes(cost int64) int64 { return max(0, cost-r.Held) }

// Concerns reports whether an amendment changes states of the rule.
func (r *Rule) Concerns(a Amendment) bool { return r.TakesSlots() == (a.Verb != VerbRefund) }

// Amend amends t in the state as it is kept now. It sets Dirty if the state is to be written, and
// clears Exists if the state is to be deleted. If there is nothing left to amend, it changes nothing.
//
// After a refund the state has no more room than if the action had never happened, except that
// a bucket with Initial stays started.
func (r *Rule) Amend(s *State, t Taken, now int64, a Amendment) {
	s.Dirty = s.Exists && r.Concerns(a) && (r.TakesSlots() || now >= t.At) && r.machine.amend(r, s, t, now, a)
}

// Expires is the instant from which the store need not keep a state. One that keeps it for longer
// decides the same, with one exception: if two BanPolicies with different ForgetAfter share a state,
// the longer one may count bans that the shorter one has forgotten.
//
// Call Expires after each write and keep the result with the state: a limiter with other
// numbers may share the state, and its rule would give another instant.
func (r *Rule) Expires(s *State) int64 { return r.machine.expires(r, s) }

// Refuses is the instant until which a cost of 1 is refused, unless a refund or a reset comes first. It
// may be past.
func (r *Rule) Refuses(s *State) int64 { return r.machine.refuses(r, s) }

// Pack returns a number that is, with what [Rule.Expires] returns, all of a state. So a store can keep
// it in a few bytes. ok is false for a state that needs more. Those of most meters and of all counters
// need no more.
func (r *Rule) Pack(s *State) (value uint32, ok bool) { return r.machine.pack(r, s) }

// Unpack makes s, a zero State, the one that Pack was given. It leaves Exists to the store.
func (r *Rule) Unpack(s *State, expires int64, value uint32) { r.machine.unpack(r, s, expires, value) }
