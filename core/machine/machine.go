package machine

// The kinds of limits, and what the machine of each computes.

import "iter"

// A Kind is a kind of limit. The states of one kind are never read by a rule of a kind with another
// [Form].
type Kind uint8

// The kinds of limits.
const (
	KindSlidingWindow  Kind = iota + 1
	KindSlidingRefused      // a sliding window that counts refusals too
	KindMovingWindow
	KindFixedWindow
	KindElasticWindow
	KindTokenBucket
	KindFunnel
	KindCalendarWindow
	KindBan // a ban policy, which is decided as a limit is
	KindInFlight
)

// kinds is the table of all kinds. The package's documentation says what else a new kind needs.
var kinds = [...]kind{
	KindSlidingWindow:  {word: "sliding", constructor: "SlidingWindow", most: 10_000, form: FormTrail},
	KindSlidingRefused: {word: "refused", constructor: "SlidingWindow", most: 10_000, form: FormTrail, records: true},
	KindMovingWindow:   {word: "moving", constructor: "MovingWindow", most: 50_000_000, form: FormTrail, prepaid: true},
	KindFixedWindow:    {word: "fixed", constructor: "FixedWindow", most: 1_000_000_000, form: FormCounter, prepaid: true},
	KindElasticWindow:  {word: "elastic", constructor: "ElasticWindow", most: 1_000_000_000, form: FormCounter, records: true},
	KindTokenBucket:    {word: "bucket", constructor: "TokenBucket", most: 1_000_000_000, form: FormMeter, prepaid: true},
	KindFunnel:         {word: "funnel", constructor: "Funnel", most: 1_000_000_000, form: FormMeter, prepaid: true},
	KindCalendarWindow: {word: "calendar", constructor: "CalendarWindow", most: 1_000_000_000, form: FormCounter, prepaid: true},
	KindBan:            {word: "ban", constructor: "BanPolicy", most: 100, form: FormBans},
	KindInFlight:       {word: "inflight", constructor: "InFlight", most: 10_000, form: FormSlots},
}

// Kinds are all kinds.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := Kind(1); int(k) < len(kinds) && yield(k); k++ {
		}
	}
}

type kind struct {
	word        string // in keys, headers and logs, and on Redis
	constructor string // in package core, and in a limit's text
	most        int    // the highest quota
	form        Form
	records     bool // a window that records what it refuses
	prepaid     bool // a process may charge units before their actions: see Rule.WithPrepay
}

// A Form is the way in which a kind uses a [State]. All kinds of one form have one machine.
type Form uint8

// The forms. They are also the second byte of a binary state, so their numbers stay.
const (
	FormMeter   Form = iota + 1 // Expires is when the debt ends and N its fraction, or Data is a *debt
	FormCounter                 // Expires is the window's end, and N the count
	FormTrail                   // Data is a *queue
	FormBans                    // a *banRecord
	FormSlots                   // a *slotList
)

// forms lists for each form its machine and its name, which is also the name of the machine's files
// in Go and Lua.
var forms = [...]struct {
	name    string
	machine machine
	units   bool // a charge writes each of its units
}{
	FormMeter:   {"meter", &meter{}, false},
	FormCounter: {"counter", &counter{}, false},
	FormTrail:   {"trail", &trail{}, true},
	FormBans:    {"ban", &bans{}, false},
	FormSlots:   {"slots", &slots{}, true},
}

// String returns the name of the form's machine.
func (f Form) String() string { return forms[f].name }

// String returns the word for the kind in keys, headers and logs.
func (k Kind) String() string {
	if int(k) < len(kinds) && k > 0 {
		return kinds[k].word
	}
	return "invalid"
}

// Constructor returns the name of the function in package core that makes a limit of the kind.
func (k Kind) Constructor() string { return kinds[k].constructor }

// Most returns the highest quota that a limit of the kind may have.
func (k Kind) Most() int { return kinds[k].most }

// Prepaid reports whether a process may charge units of such a limit before their actions: see
// [Rule.WithPrepay].
func (k Kind) Prepaid() bool { return int(k) < len(kinds) && kinds[k].prepaid }

// Form says which part of a [State] the kind uses.
func (k Kind) Form() Form { return kinds[k].form }

// A machine is the arithmetic of the kinds with one form. Its first seven functions have their
// counterparts in its Lua file, in the same sequence. They take and return states by value, so that
// no state moves to the heap. After a Peek a store drops the state, so only charge, refuse and
// amend change what Data points to. These three and check report whether the state has changed.
type machine interface {
	// load reads what save has written.
	load(r *Rule, d *decoder) State

	// check brings a state to now, and reports whether the rule has room.
	check(r *Rule, now, cost int64, a *Ask, s State) (checked State, fits, changed bool)

	// charge charges a checked state that has room. It returns the reading too, for one more unit.
	charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, detail int64, charged State, changed bool)

	// refuse does not charge a checked state, and returns its reading. If record is set, it records
	// the refusal, or starts a bucket with Initial.
	refuse(r *Rule, now, cost int64, record bool, s State) (v numbers, detail int64, refused State, changed bool)

	// read returns the reading of a checked state. Its Wait is that of the cost.
	read(r *Rule, now, cost int64, s State) (v numbers, detail int64)

	// amend amends what a charge has taken. A state of which nothing is left becomes the zero State.
	amend(r *Rule, now int64, t Taken, a Amendment, s State) (amended State, changed bool)

	// save appends the state in binary form.
	save(r *Rule, b []byte, s State) []byte

	predictable(r *Rule, v Reading, count bool) bool

	// prepay tightens a rule whose units are charged up to so long before their actions.
	prepay(r *Rule, d int64)
}

// numbers are most fields of a [Reading]. They are a separate struct of four words, because the
// compiler keeps no larger struct in registers. Results have the state after the numbers, and
// arguments have it last, so that it stays in the same registers.
type numbers struct {
	Count int64
	Rest  Span
	Wait  int64
}

// plain has two methods that are the same for most machines: a reading determines all later
// readings of the state, and units that are charged before their actions need no stricter rule.
type plain struct{}

func (plain) predictable(*Rule, Reading, bool) bool { return true }

func (plain) prepay(*Rule, int64) {}
