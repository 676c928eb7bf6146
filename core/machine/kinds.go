package machine

// A Kind is a kind of limit. A rule never reads a state of another kind's form.
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
	KindBan // a ban policy, which is decided as a limit is
)

// kinds is the table of all kinds. The package's documentation says what else a new kind needs.
var kinds = [...]kind{
	KindSlidingWindow:  {word: "sliding", constructor: "SlidingWindow", most: 10_000, form: FormTrail, machine: trail{}},
	KindSlidingRefused: {word: "refused", constructor: "SlidingWindow", most: 10_000, form: FormTrail, machine: trail{}, records: true},
	KindMovingWindow:   {word: "moving", constructor: "MovingWindow", most: 50_000_000, form: FormTrail, machine: trail{}},
	KindFixedWindow:    {word: "fixed", constructor: "FixedWindow", most: 1_000_000_000, form: FormCounter, machine: counter{}},
	KindElasticWindow:  {word: "elastic", constructor: "ElasticWindow", most: 1_000_000_000, form: FormCounter, machine: counter{}, records: true},
	KindTokenBucket:    {word: "bucket", constructor: "TokenBucket", most: 1_000_000_000, form: FormMeter, machine: meter{}},
	KindFunnel:         {word: "funnel", constructor: "Funnel", most: 1_000_000_000, form: FormMeter, machine: meter{}},
	KindBan:            {word: "ban", constructor: "BanPolicy", most: 100, form: FormBans, machine: bans{}, records: true},
}

type kind struct {
	word        string // in keys, headers and logs, and on Redis
	constructor string // in package core, and in a limit's text
	most        int    // the highest quota
	form        Form
	machine     machine
	records     bool // it records what it refuses
}

// A Form is the part of a [State] that a kind uses.
type Form uint8

// The forms. They are also the second byte of a binary state, so their numbers stay.
const (
	FormMeter   Form = iota + 1 // State.Meter
	FormCounter                 // State.Counter
	FormTrail                   // State.Trail
	FormBans                    // State.Bans
)

// A machine is the arithmetic of the kinds with one form. Its first eight functions have their
// counterparts in its Lua file, in the same order.
type machine interface {
	// args appends the numbers that the Lua function args reads, for a cost.
	args(r *Rule, b []int64, a Ask) []int64

	// load reads what save has written.
	load(s *State, d *decoder)

	// check brings a state to now, and reports whether the rule has room.
	check(r *Rule, s *State, now int64, a Ask) bool

	// charge charges a checked state.
	charge(r *Rule, s *State, now int64, a Ask)

	// refuse leaves a checked state uncharged, and may record the refusal.
	refuse(r *Rule, s *State, now int64, a Ask, record bool)

	// read fills in s.Reading, of which only Fits is set.
	read(r *Rule, s *State, now int64, a Ask)

	// refund gives back units, and reports whether the state has changed.
	refund(r *Rule, s *State, t Taken, now, units int64) bool

	// save appends the state in binary form.
	save(s *State, b []byte) []byte

	// reply makes a reading of the numbers that the Lua function read returns. dated says that the
	// charge may be refunded. replySize is how many numbers there are.
	reply(r *Rule, n []int64, dated bool) Reading
	replySize(r *Rule, dated bool) int

	// refundArgs appends the numbers that the Lua function refund reads.
	refundArgs(r *Rule, b []int64, t Taken, units int64) []int64

	// weight is how long Redis takes for a cost, in charges of a counter.
	weight(r *Rule, cost int64) int

	remaining(r *Rule, v *Reading) int64
	retryAfter(r *Rule, v *Reading, cost int64) int64
	expires(r *Rule, s *State) int64
	refusedUntil(r *Rule, s *State) int64
	foreseen(r *Rule, v Reading, count bool) bool
}

// String returns the word for the kind in keys, headers and logs.
func (k Kind) String() string {
	if int(k) < len(kinds) && k > 0 {
		return kinds[k].word
	}
	return "invalid"
}

// Constructor is the name of the function in package core that makes a limit of the kind.
func (k Kind) Constructor() string { return kinds[k].constructor }

// Most is the highest quota of a limit of the kind.
func (k Kind) Most() int { return kinds[k].most }

// Form says which part of a [State] the kind uses.
func (k Kind) Form() Form { return kinds[k].form }

// RecordsRefusals reports whether a refused action changes the state: see [Rule.Refuse].
func (k Kind) RecordsRefusals() bool { return kinds[k].records }
