package machine

// The kinds of limits, and the interface of the machines that compute them.

import "iter"

// A Kind is a kind of limit. A state has no meaning for a rule of a kind with another [Form].
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
	KindBan // a ban policy, which a store decides like a limit
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

// Kinds returns all kinds.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := Kind(1); int(k) < len(kinds) && yield(k); k++ {
		}
	}
}

type kind struct {
	word        string // the name in keys, headers and logs, and on Redis
	constructor string // the name of the function or type in package core, and in a limit's text
	most        int    // the highest quota
	form        Form
	records     bool // a refusal changes the state; NewBan sets that for a ban policy
	prepaid     bool // units may be charged before their actions: see Rule.WithPrepay
}

// A Form says how a kind uses the fields of a [State]. All kinds of one form share one machine.
type Form uint8

// The forms. A form is also the second byte of a binary state, so its number must not change.
const (
	FormMeter   Form = iota + 1 // Expires is the instant at which the debt ends, and N is its fraction; or Data is a *debt
	FormCounter                 // Expires is the end of the window, or a second later for a calendar window; N is the count
	FormTrail                   // Data is a *queue
	FormBans                    // Data is a *banRecord
	FormSlots                   // Data is a *slotList
)

// forms has the machine of each form. name is the name of the machine's files in Go and in Lua.
var forms = [...]struct {
	name    string
	machine machine
	units   bool // a charge writes each of its units separately
}{
	FormMeter:   {"meter", &meter{}, false},
	FormCounter: {"counter", &counter{}, false},
	FormTrail:   {"trail", &trail{}, true},
	FormBans:    {"ban", &bans{}, false},
	FormSlots:   {"slots", &slots{}, true},
}

// String returns the name of the form's machine.
func (f Form) String() string { return forms[f].name }

// String returns the kind's name in keys, headers and logs.
func (k Kind) String() string {
	if int(k) < len(kinds) && k > 0 {
		return kinds[k].word
	}
	return "invalid"
}

// Constructor returns the name of the function in package core that makes a limit of the kind. For
// a ban policy it is the name of the type.
func (k Kind) Constructor() string { return kinds[k].constructor }

// Most returns the highest quota that a limit of the kind may have.
func (k Kind) Most() int { return kinds[k].most }

// Prepaid reports whether a process may charge units of a limit of the kind before their actions:
// see [Rule.WithPrepay].
func (k Kind) Prepaid() bool { return int(k) < len(kinds) && kinds[k].prepaid }

// Form says how the kind uses the fields of a [State].
func (k Kind) Form() Form { return kinds[k].form }

// A machine is the arithmetic of all kinds with one form. Its methods up to save have counterparts
// of the same names in its Lua file, in the same order. They take and return a state by value, so
// that the state does not move to the heap.
//
// After a Peek, a store drops the entry. So load, check and read must not change what State.Data
// points to. Only charge, refuse and amend may. The result changed says whether the state must be
// written.
type machine interface {
	// load reads a state that save has written.
	load(r *Rule, d *decoder) State

	// check brings a state to now. fits reports whether the rule has room for the cost.
	check(r *Rule, now, cost int64, a *Ask, s State) (checked State, fits, changed bool)

	// charge charges the cost to a checked state, as [Rule.Charge] describes. It returns the reading
	// after the charge, with Wait for one more unit.
	charge(r *Rule, now, cost int64, a *Ask, s State) (v numbers, detail int64, charged State, changed bool)

	// refuse returns the reading of a checked state that is not charged, with Wait for the cost. If
	// record is set, a rule that records refusals records this one. A bucket with Initial that has
	// not been used starts to fill, because otherwise a cost above Initial would be refused for
	// ever.
	refuse(r *Rule, now, cost int64, record bool, s State) (v numbers, detail int64, refused State, changed bool)

	// read returns the reading of a checked state, with Wait for the cost.
	read(r *Rule, now, cost int64, s State) (v numbers, detail int64)

	// amend changes what a charge has taken. If no unit or slot is left, counter, trail and slots
	// return the zero State.
	amend(r *Rule, now int64, t Taken, a Amendment, s State) (amended State, changed bool)

	// save appends the state to b in binary form.
	save(r *Rule, b []byte, s State) []byte

	// predictable is [Rule.Predictable].
	predictable(r *Rule, v Reading, count bool) bool

	// prepay changes a rule as [Rule.WithPrepay] describes.
	prepay(r *Rule, d int64)
}

// numbers has most fields of a [Reading]. It has only four words, because the compiler keeps no
// larger struct in registers. A state is always the last argument, and comes after the numbers in
// results, so that it stays in the same registers.
type numbers struct {
	Count int64
	Rest  Span
	Wait  int64
}

// plain has methods that several machines share. Every reading is predictable, and prepay changes
// nothing.
type plain struct{}

func (plain) predictable(*Rule, Reading, bool) bool { return true }

func (plain) prepay(*Rule, int64) {}
