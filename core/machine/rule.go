package machine

// A Rule is a limit compiled to integers; see [NewWindow], [NewMeter] and [NewBan]. Times
// are microseconds. Package core validates the numbers; a Rule does not.
type Rule struct {
	Kind Kind
	Max  int64 // the quota: units for a window, capacity for a meter, refusals for a ban

	// Hash is that of the limit's identity; package core sets it. It differs from process to
	// process, and two limits may have the same. A key uses core.Limit.Identity instead.
	Hash uint64

	Period int64 // windows

	// Meters: buckets and funnels.
	Emission    Span  // the emission interval: the time of one unit
	Burst       Span  // the time of the full quota: the most debt that a meter may have
	Start       Span  // the debt of a bucket with Initial that has no state
	Parts       int64 // the denominator of all spans
	ForgetAfter int64 // how long a bucket with Initial is kept after its last action; else 0
	pace        int64 // Emission is pace/Parts microseconds

	Ban *BanRule // KindBan
}

// NewWindow makes the rule of a window of at most max units a period.
func NewWindow(kind Kind, max, period int64) Rule {
	return Rule{Kind: kind, Max: max, Period: period}
}

// NewMeter makes the rule of a bucket or funnel whose quota is capacity, and which gains
// or drains n units per period.
func NewMeter(kind Kind, capacity, n, period int64) Rule {
	if g := gcd(period, n); g > 1 {
		period, n = period/g, n/g
	}
	return Rule{
		Kind: kind, Max: capacity, pace: period, Parts: n,
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

// Rate is a meter's rate in lowest terms: n units per period.
func (r *Rule) Rate() (n, period int64) { return r.Parts, r.pace }

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

	// Ban is the length of a manual ban, in microseconds, for a rule of KindBan; 0 is none.
	Ban int64
}

// Check brings a state to the instant now, in microseconds on the store's clock, and sets
// Fits if the rule has room for the ask.
func (r *Rule) Check(s *State, now int64, a Ask) {
	s.Dirty = false
	s.Fits = kinds[r.Kind].machine.check(r, s, now, a)
}

// Charge charges the cost to a checked state: all of it, or with Force what fits.
func (r *Rule) Charge(s *State, now int64, a Ask) { kinds[r.Kind].machine.charge(r, s, now, a) }

// Refuse records the refusal in a checked state, if the rule's kind records refusals. If
// record is false, as while a ban lasts, or the caller is Patient, it records nothing. A refused
// action that starts a bucket with Initial starts it nonetheless if the caller is Patient.
func (r *Rule) Refuse(s *State, now int64, a Ask, record bool) {
	kinds[r.Kind].machine.refuse(r, s, now, a, record)
}

// refused reports whether the rule itself has refused an ask that a later one could pass.
func (r *Rule) refused(s *State, a Ask) bool { return !s.Fits && a.Cost <= r.Max }

// A Reading is the numbers of a state after a decision. A store that decides elsewhere, in
// Lua for example, makes Readings of its reply.
type Reading struct {
	Fits bool

	Count  int64 // windows: the units in the window
	Rest   Span  // until the full quota is available; a ban: until all is forgotten
	Wait   int64 // a trail without room: until it has room; a ban: until it ends
	Refund int64 // meters: the number of the last refund; see [Refunds]

	Refusals, Level int // a ban: refusals that count towards the next, and bans in a row
}

// Read fills in s.Reading after Check, and after Charge or Refuse if the store calls them.
func (r *Rule) Read(s *State, now int64, a Ask) *Reading {
	s.Reading = Reading{Fits: s.Fits}
	kinds[r.Kind].machine.read(r, s, now, a)
	return &s.Reading
}

// Remaining is how many units fit right now.
func (r *Rule) Remaining(v *Reading) int64 { return kinds[r.Kind].machine.remaining(r, v) }

// RetryAfter is the wait, in microseconds, until the rule has room for a cost that does not
// fit now. The cost is at most Max.
func (r *Rule) RetryAfter(v *Reading, cost int64) int64 {
	return kinds[r.Kind].machine.retryAfter(r, v, cost)
}

// AtOnce reports whether the full quota comes back at once, when a window ends.
func (r *Rule) AtOnce() bool { return r.Kind.Form() == FormCounter }

// Foreseen reports whether v determines the later readings of a state that nothing is charged to:
// its full quota returns steadily, or at once when v.Rest is over. count says whether the Count
// matters.
func (r *Rule) Foreseen(v *Reading, count bool) bool {
	return kinds[r.Kind].machine.foreseen(r, *v, count)
}

// Taken is what an admitted ask has charged: Cost units at the instant At. Reading is the
// state's reading just after the charge.
type Taken struct {
	At, Cost int64
	Reading  Reading
}

// Refund gives units of t back to the state as it is kept now. The state then has no more
// room than if the action had never happened, except that a bucket with Initial stays
// started. Refund sets Dirty if the state is to be written, and clears Exists if the state
// is to be deleted.
func (r *Rule) Refund(s *State, t Taken, now, units int64) {
	s.Dirty = s.Exists && now >= t.At && kinds[r.Kind].machine.refund(r, s, t, now, units)
}

// Expires is the instant from which the store need not keep a state. One that keeps it for longer
// decides the same, with one exception: if two BanPolicies with different ForgetAfter share a state,
// the longer one may count bans that the shorter one has forgotten.
//
// Call Expires after each write and keep the result with the state: a limiter with other
// numbers may share the state, and its rule would give another instant.
func (r *Rule) Expires(s *State) int64 { return kinds[r.Kind].machine.expires(r, s) }

// RefusedUntil is the instant before which a cost of 1 is refused, unless a refund or a
// reset comes first. It may be past.
func (r *Rule) RefusedUntil(s *State) int64 { return kinds[r.Kind].machine.refusedUntil(r, s) }
