package machine

// A Kind says which machine a [Rule] uses. A rule never reads a state of another kind.
type Kind uint8

// The kinds of rules.
const (
	KindSlidingWindow  Kind = iota + 1
	KindSlidingRefused      // a sliding window that counts refusals too
	KindMovingWindow
	KindFixedWindow
	KindElasticWindow
	KindTokenBucket
	KindFunnel
	KindBan
)

var kindNames = [...]string{
	KindSlidingWindow: "sliding", KindSlidingRefused: "refused", KindMovingWindow: "moving",
	KindFixedWindow: "fixed", KindElasticWindow: "elastic", KindTokenBucket: "bucket",
	KindFunnel: "funnel", KindBan: "ban",
}

// String returns the word for the kind in keys, headers and logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "invalid"
}

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

// Windowed reports whether the rule is a window's.
func (r *Rule) Windowed() bool { return r.Kind <= KindElasticWindow }

// Trailed reports whether the state of the rule is a [Trail].
func (r *Rule) Trailed() bool { return r.Kind <= KindMovingWindow }

// Counted reports whether the state of the rule is a [Counter], so that the full quota comes
// back at once, when the window ends.
func (r *Rule) Counted() bool { return r.Kind == KindFixedWindow || r.Kind == KindElasticWindow }

// RecordsRefusals reports whether a refused action changes the state: see [Rule.Refuse].
func (r *Rule) RecordsRefusals() bool {
	return r.Kind == KindElasticWindow || r.Kind == KindSlidingRefused || r.Kind == KindBan
}

// Metered reports whether the rule is a bucket's or a funnel's.
func (r *Rule) Metered() bool { return r.Kind == KindTokenBucket || r.Kind == KindFunnel }

// Plain reports whether the rule is that of a bucket or funnel without Initial, which
// [Rule.Pour] decides.
func (r *Rule) Plain() bool { return r.Metered() && r.ForgetAfter == 0 }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
