package core

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// The bounds of a limit's numbers. A limit outside them is an error of [New].
const (
	maxSliding  = 10_000
	maxMoving   = 50_000_000
	maxCount    = 1_000_000_000
	minPeriod   = time.Millisecond
	maxPeriod   = 365 * 24 * time.Hour
	maxDrain    = 100 * maxPeriod
	maxForget   = 101 * maxPeriod
	forgetGrace = 24 * time.Hour
)

// A Kind says which rule a [Limit] follows. Limits of different kinds never
// share state.
type Kind uint8

// The kinds of limits. Throttle makes a KindFunnel: they are one kind.
const (
	KindSlidingWindow  Kind = iota + 1
	KindSlidingRefused      // SlidingWindow with CountRefused
	KindMovingWindow
	KindFixedWindow
	KindElasticWindow
	KindTokenBucket
	KindFunnel
	KindLadder // not a limit of its own: see BanPolicy
)

// String returns the word that stands for the kind in keys, headers and logs.
func (k Kind) String() string {
	switch k {
	case KindSlidingWindow:
		return "sliding"
	case KindSlidingRefused:
		return "refused"
	case KindMovingWindow:
		return "moving"
	case KindFixedWindow:
		return "fixed"
	case KindElasticWindow:
		return "elastic"
	case KindTokenBucket:
		return "bucket"
	case KindFunnel:
		return "funnel"
	case KindLadder:
		return "ban"
	}
	return "invalid"
}

// A Rate is so many units per so long, kept as the two numbers that it was
// given, so that 7 per second is 7 per second for ever. Make one with [Per] or
// [Every].
type Rate struct {
	n int
	d time.Duration
}

// Per is n units per d: n from 1 to 1,000,000,000; d from 1 ms to 365 days, in
// whole microseconds.
func Per(n int, d time.Duration) Rate { return Rate{n: n, d: d} }

// Every is one unit per d.
func Every(d time.Duration) Rate { return Per(1, d) }

func (r Rate) String() string { return fmt.Sprintf("Per(%d, %s)", r.n, shortest(r.d)) }

// A Limit is a rule: at most so many of an action in so long. It is an opaque
// value that can be compared with ==; two limits are equal if they were made by
// the same calls. The zero Limit is invalid.
//
// The constructors do not fail: a number that is out of bounds, or a modifier on
// a kind that it does not apply to, is an error of [New], which names the value
// and the bound.
//
// A limit's state is identified, within one user and action, by the limit's kind and
// its name, if it has one; for windows also by the period; for funnels and buckets
// also by capacity, rate and Initial. A window's changed max thus keeps the history,
// and a changed period starts anew. A funnel or bucket of other numbers is another
// one, which starts whole, or at Initial.
type Limit struct {
	kind     Kind
	mods     modifier
	burst    bool // made by Throttle; max is then maxBurst+1
	max      int  // the quota: max count or capacity
	period   time.Duration
	rate     Rate
	initial  int
	forget   time.Duration // as given or by default
	name     string
	identity string
	hash     uint64 // of identity
	shadow   bool   // never refuses
	ladder   *rungs // of a KindLadder

	// Derived for the decision, in microseconds.
	span   int64 // a window's period
	tick   span  // a meter's time per unit
	full   span  // a meter's time per quota: the debt that it can bear
	start  span  // the debt of an unseen bucket with Initial
	den    int64 // the denominator of the fractions above
	pace   int64 // tick is pace/den microseconds
	memory int64 // forget
}

type modifier uint8

const (
	modRefused modifier = 1 << iota
	modInitial
	modForget
	modName
	modShadow
)

// SlidingWindow admits at most max actions in any interval of length period
// (half-open: an action made at t counts until just before t+period). It
// remembers the instant of every admitted action of the period, so it is exact,
// and the history can be read back. max from 1 to 10,000; for more there is
// [MovingWindow].
//
// The algorithm is the sorted-set recipe (ZADD, ZREMRANGEBYSCORE, ZCARD), less
// its faults: two actions in one instant are two, and a refusal is not recorded
// unless [Limit.CountRefused] asks for it.
func SlidingWindow(max int, period time.Duration) Limit {
	return Limit{kind: KindSlidingWindow, max: max, period: period}.derived()
}

// MovingWindow decides exactly as [SlidingWindow] does, from a compact queue of
// the last max admitted instants, of 8 bytes each and at most half a byte of overhead
// in long queues (in short ones the allocator rounds up, by an eighth at most).
// The verdict takes constant time. max from 1 to 50,000,000.
//
// The algorithm is the list recipe (LINDEX, LPUSH, LTRIM).
func MovingWindow(max int, period time.Duration) Limit {
	return Limit{kind: KindMovingWindow, max: max, period: period}.derived()
}

// FixedWindow admits at most max actions in a window that opens at the first
// admitted action and ends period later. It is the cheapest window (a count and
// an end), and lets up to twice max through across a boundary. max from 1 to
// 1,000,000,000.
//
// The algorithm is INCR with EXPIRE as one atomic step.
func FixedWindow(max int, period time.Duration) Limit {
	return Limit{kind: KindFixedWindow, max: max, period: period}.derived()
}

// ElasticWindow is a window whose end every attempt, a refused one too, moves to
// period from now: only silence clears it. A refusal moves the end and not the
// count. max from 1 to 1,000,000,000.
//
// The algorithm is INCR with EXPIRE every time.
func ElasticWindow(max int, period time.Duration) Limit {
	return Limit{kind: KindElasticWindow, max: max, period: period}.derived()
}

// TokenBucket admits an action if the bucket holds a token for each unit of its
// cost. The bucket holds at most capacity tokens, starts full (or as
// [Limit.Initial] says) and is refilled at rate, fractions of a token kept.
// capacity from 1 to 1,000,000,000; it must fill within 100 years.
//
// A bucket is kept as the instant at which it will be full, which is one number
// and exact (the virtual scheduling algorithm of ITU-T I.371, also called GCRA).
func TokenBucket(capacity int, rate Rate) Limit {
	return Limit{kind: KindTokenBucket, max: capacity, rate: rate}.derived()
}

// Funnel admits an action if the funnel has room for its cost. It has room for
// capacity units and leaks at rate: Funnel(15, Per(30, time.Minute)) admits 15
// at once and then one every 2 s. capacity from 1 to 1,000,000,000; a full one
// must drain within 100 years.
//
// The algorithm is the leaky bucket as a meter, kept as the instant at which the
// funnel will be empty (GCRA, as redis-cell keeps it).
func Funnel(capacity int, rate Rate) Limit {
	return Limit{kind: KindFunnel, max: capacity, rate: rate}.derived()
}

// Throttle is a [Funnel] in the arguments of redis-cell's CL.THROTTLE:
// Throttle(15, Per(30, time.Minute)) is CL.THROTTLE key 15 30 60. Its capacity is
// maxBurst+1, so that one admits 16 at once. maxBurst from 0 to 999,999,999.
// [Decision.Cell] gives the command's reply.
func Throttle(maxBurst int, rate Rate) Limit {
	if maxBurst == math.MaxInt {
		maxBurst-- // out of bounds either way; do not wrap around
	}
	return Limit{kind: KindFunnel, burst: true, max: maxBurst + 1, rate: rate}.derived()
}

// CountRefused makes a SlidingWindow record the attempts that it refuses as well,
// as the original recipe does: whoever keeps hammering stays out. The newest max
// entries are kept. It is a kind of its own and shares no state with a plain
// SlidingWindow.
func (l Limit) CountRefused() Limit {
	l.mods |= modRefused
	if l.kind == KindSlidingWindow {
		l.kind = KindSlidingRefused
	}
	return l.derived()
}

// Initial makes a TokenBucket start with n tokens instead of full, n from 1 to
// its capacity. An action that costs more than n is refused on an unseen key,
// but starts the bucket.
func (l Limit) Initial(n int) Limit {
	l.mods |= modInitial
	l.initial = n
	return l.derived()
}

// ForgetAfter sets how long after the last admitted action a TokenBucket with
// Initial is back at its initial tokens: at least the time from empty to full (which
// counts as a microsecond more, so that a wait for a full bucket ends in one), at
// most 101 years. The default is that time plus 24 h. Whatever waits longer than
// that, for another limit say, finds the bucket at its initial tokens; so may a
// limiter that shares the bucket with one that forgets sooner or has no Initial.
func (l Limit) ForgetAfter(d time.Duration) Limit {
	l.mods |= modForget
	l.forget = d
	return l.derived()
}

// Named gives the limit a name of 1 to 64 letters, digits, dots, underscores or
// dashes, which stands in headers and metrics and is part of what identifies the
// limit's state: two limits that differ only by name count apart.
func (l Limit) Named(name string) Limit {
	l.mods |= modName
	l.name = name
	return l.derived()
}

// Shadow makes a limit that is rehearsed: it is decided on the same traffic as the
// limiter's other limits, in the same step, and never refuses. Its own state is
// charged with what passes, if it would have let it pass; several shadows of a
// limiter are all or none, like limits. [Decision].Reason then says what it would
// have done: [ReasonShadowed] or [ReasonNear]; of several it does not say which.
//
// Its state is apart from that of the limit without Shadow.
func (l Limit) Shadow() Limit {
	l.mods |= modShadow
	l.shadow = true
	return l.derived()
}

// Shadowed is whether the limit never refuses.
func (l Limit) Shadowed() bool { return l.shadow }

// Kind says which rule the limit follows.
func (l Limit) Kind() Kind { return l.kind }

// Quota is what the limit admits at once when it is whole: its max count or its
// capacity.
func (l Limit) Quota() int { return l.max }

// Period is a window's period, and for a bucket or funnel the time from empty to
// full or from full to empty, rounded up to the microsecond.
func (l Limit) Period() time.Duration {
	if l.windowed() {
		return l.period
	}
	return micros(l.full.ceil())
}

// Memory is how long a bucket with Initial keeps its state after the last admitted
// action, and 0 for any other limit.
func (l Limit) Memory() time.Duration { return micros(l.memory) }

// Rate is a bucket's or funnel's rate as it was given: n units per d.
func (l Limit) Rate() (n int, d time.Duration) { return l.rate.n, l.rate.d }

// Numbers are a bucket's or funnel's, for a store that decides elsewhere, in Lua
// say: times in whole microseconds and a part of one over Den, all below 2^53.
type Numbers struct {
	Cost, CostPart   int64 // the time that the cost takes
	Full, FullPart   int64 // the most debt that it bears: the time that its capacity takes
	Start, StartPart int64 // the debt of an unseen bucket with Initial
	Den              int64
}

// Numbers returns the numbers of a bucket or funnel for an action of that cost. A
// cost above the quota counts as one above it.
func (l Limit) Numbers(cost int64) Numbers {
	c := l.cost(min(cost, int64(l.max)+1))
	return Numbers{c.whole, c.part, l.full.whole, l.full.part, l.start.whole, l.start.part, l.den}
}

// Name is the name given by [Limit.Named], or "".
func (l Limit) Name() string { return l.name }

// Identity tells the limit's state from that of other limits, within one user and
// action. It is the kind, a window's period or a meter's numbers, and the name, such as
// "sliding:1m", "funnel:15:1/2s:likes" or, with Initial(3), "bucket:3/10:1/1s". The rate
// is in lowest terms. There are no characters but ASCII letters, digits and ":/._-".
func (l Limit) Identity() string { return l.identity }

// Hash is a hash of Identity, made once, which is the same within a process.
func (l *Limit) Hash() uint64 { return l.hash }

// String returns the calls that make the limit, less the package's name: SlidingWindow(5, 1m).
// [ParseLimit] reads it.
func (l Limit) String() string {
	var b strings.Builder
	switch {
	case l.kind == KindSlidingWindow || l.kind == KindSlidingRefused:
		fmt.Fprintf(&b, "SlidingWindow(%d, %s)", l.max, shortest(l.period))
	case l.kind == KindMovingWindow:
		fmt.Fprintf(&b, "MovingWindow(%d, %s)", l.max, shortest(l.period))
	case l.kind == KindFixedWindow:
		fmt.Fprintf(&b, "FixedWindow(%d, %s)", l.max, shortest(l.period))
	case l.kind == KindElasticWindow:
		fmt.Fprintf(&b, "ElasticWindow(%d, %s)", l.max, shortest(l.period))
	case l.kind == KindTokenBucket:
		fmt.Fprintf(&b, "TokenBucket(%d, %s)", l.max, l.rate)
	case l.burst:
		fmt.Fprintf(&b, "Throttle(%d, %s)", l.max-1, l.rate)
	case l.kind == KindFunnel:
		fmt.Fprintf(&b, "Funnel(%d, %s)", l.max, l.rate)
	case l.kind == KindLadder:
		fmt.Fprintf(&b, "BanPolicy{Refusals: %d}", l.max)
	default:
		b.WriteString("Limit{}")
	}
	if l.mods&modRefused != 0 {
		b.WriteString(".CountRefused()")
	}
	if l.mods&modInitial != 0 {
		fmt.Fprintf(&b, ".Initial(%d)", l.initial)
	}
	if l.mods&modForget != 0 {
		fmt.Fprintf(&b, ".ForgetAfter(%s)", shortest(l.forget))
	}
	if l.mods&modName != 0 {
		fmt.Fprintf(&b, ".Named(%q)", l.name)
	}
	if l.shadow {
		b.WriteString(".Shadow()")
	}
	return b.String()
}

func (l *Limit) windowed() bool {
	return l.kind >= KindSlidingWindow && l.kind <= KindElasticWindow
}

// validate says what is wrong with the limit, in a sentence that names the value
// and the bound.
func (l *Limit) validate() error {
	bad := func(format string, args ...any) error {
		return configError(fmt.Sprintf("core: %s: %s", l, fmt.Sprintf(format, args...)))
	}
	if l.kind == 0 {
		return configError("core: a zero Limit: make limits with SlidingWindow, Funnel or another constructor")
	}
	if err := l.validateQuota(bad); err != nil {
		return err
	}
	if l.windowed() {
		if err := validatePeriod("period", l.period, bad); err != nil {
			return err
		}
	} else {
		if l.rate.n < 1 || l.rate.n > maxCount {
			return bad("the rate's count %d is not within 1 to %d", l.rate.n, maxCount)
		}
		if err := validatePeriod("the rate's period", l.rate.d, bad); err != nil {
			return err
		}
		if l.tooSlow() {
			return bad("the whole capacity takes %d years to drain or fill, and 100 years is the most; raise the rate or lower the capacity", l.full.whole/int64(maxPeriod/time.Microsecond))
		}
	}
	return l.validateModifiers(bad)
}

func (l *Limit) validateQuota(bad func(string, ...any) error) error {
	switch {
	case l.burst && (l.max < 1 || l.max > maxCount):
		return bad("maxBurst %d is not within 0 to %d", l.max-1, maxCount-1)
	case l.kind == KindMovingWindow && (l.max < 1 || l.max > maxMoving):
		return bad("max %d is not within 1 to %d", l.max, maxMoving)
	case (l.kind == KindSlidingWindow || l.kind == KindSlidingRefused) && (l.max < 1 || l.max > maxSliding):
		return bad("max %d is not within 1 to %d; MovingWindow decides the same and takes up to %d", l.max, maxSliding, maxMoving)
	case l.windowed() && (l.max < 1 || l.max > maxCount):
		return bad("max %d is not within 1 to %d", l.max, maxCount)
	case l.max < 1 || l.max > maxCount:
		return bad("capacity %d is not within 1 to %d", l.max, maxCount)
	}
	return nil
}

func validatePeriod(what string, d time.Duration, bad func(string, ...any) error) error {
	switch {
	case d < minPeriod || d > maxPeriod:
		return bad("%s %s is not within %s to 365 days", what, d, minPeriod)
	case d%time.Microsecond != 0:
		return bad("%s %s is not in whole microseconds", what, d)
	}
	return nil
}

func (l *Limit) validateModifiers(bad func(string, ...any) error) error {
	empty := micros(l.full.ceil())
	switch {
	case l.mods&modRefused != 0 && l.kind != KindSlidingRefused:
		return bad("CountRefused applies to SlidingWindow only")
	case l.mods&modInitial != 0 && l.kind != KindTokenBucket:
		return bad("Initial applies to TokenBucket only")
	case l.mods&modForget != 0 && l.kind != KindTokenBucket:
		return bad("ForgetAfter applies to TokenBucket only")
	case l.mods&modForget != 0 && l.mods&modInitial == 0:
		return bad("ForgetAfter needs Initial: a bucket that starts full is forgotten when it is full")
	case l.mods&modInitial != 0 && (l.initial < 1 || l.initial > l.max):
		return bad("initial tokens %d are not within 1 to the capacity %d", l.initial, l.max)
	case l.mods&modForget != 0 && (l.forget < empty || l.forget > maxForget):
		return bad("ForgetAfter %s is not within %s, the time from empty to full, to 101 years", l.forget, empty)
	case l.mods&modForget != 0 && l.forget%time.Microsecond != 0:
		return bad("ForgetAfter %s is not in whole microseconds", l.forget)
	case l.mods&modName != 0 && !validName(l.name):
		return bad("a name is 1 to 64 letters, digits, dots, underscores or dashes")
	}
	return nil
}

func validName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// derived fills in what the decision needs. Numbers that are out of bounds leave
// it unfilled; validate names them.
func (l Limit) derived() Limit {
	if l.windowed() {
		l.span = int64(l.period / time.Microsecond)
	} else if l.kind != KindLadder && l.max >= 1 && l.max <= maxCount &&
		l.rate.n >= 1 && l.rate.n <= maxCount && l.rate.d >= minPeriod && l.rate.d <= maxPeriod {
		pace, den := int64(l.rate.d/time.Microsecond), int64(l.rate.n)
		if g := gcd(pace, den); g > 1 {
			pace, den = pace/g, den/g
		}
		l.pace, l.den = pace, den
		l.measure()
	}
	l.identify(l.words())
	return l
}

func (l *Limit) identify(identity string) {
	l.identity, l.hash = identity, maphash.String(identitySeed, identity)
}

// words are what Identity says. Names have no slash, so that none can pass for a number.
func (l *Limit) words() string {
	b := make([]byte, 0, 64)
	if l.shadow {
		b = append(b, "shadow:"...)
	}
	b = append(append(b, l.kind.String()...), ':')
	switch {
	case l.windowed():
		b = append(b, shortest(l.period)...)
	case l.kind == KindLadder:
		b = b[:len(b)-1]
	default:
		if l.initial > 0 {
			b = append(strconv.AppendInt(b, int64(l.initial), 10), '/')
		}
		b = append(strconv.AppendInt(b, int64(l.max), 10), ':')
		b = append(strconv.AppendInt(b, l.den, 10), '/')
		b = append(b, strings.Replace(shortest(micros(l.pace)), "µ", "u", 1)...) // headers are ASCII
	}
	if l.name != "" {
		b = append(append(b, ':'), l.name...)
	}
	return string(b)
}

// measure fills in a meter's times, from its pace.
func (l *Limit) measure() {
	l.tick, l.full = l.times(1), l.times(int64(l.max))
	if l.initial < 1 || l.initial > l.max {
		return
	}
	l.start = l.times(int64(l.max - l.initial))
	if l.mods&modForget == 0 && !l.tooSlow() {
		l.forget = micros(l.full.ceil()) + forgetGrace
	}
	l.memory = max(int64(l.forget/time.Microsecond), l.full.ceil()+1)
}

// tooSlow is whether the quota takes a meter longer than it may.
func (l *Limit) tooSlow() bool { return l.full.more(span{int64(maxDrain / time.Microsecond), 0}) }

var identitySeed = maphash.MakeSeed()

// times is the time that n units take. A time beyond any bound is saturated;
// validate refuses such a limit.
func (l *Limit) times(n int64) span {
	hi, lo := bits.Mul64(uint64(l.pace), uint64(n))
	if hi < uint64(l.den) {
		if whole, part := bits.Div64(hi, lo, uint64(l.den)); whole < math.MaxInt64/4 {
			return span{int64(whole), int64(part)}
		}
	}
	return span{math.MaxInt64 / 4, 0}
}

// units is how many whole units take no longer than s.
func (l *Limit) units(s span) int64 {
	hi, lo := bits.Mul64(uint64(s.whole), uint64(l.den))
	lo, carry := bits.Add64(lo, uint64(s.part), 0)
	if hi += carry; hi == 0 {
		return int64(lo / uint64(l.pace))
	}
	n, _ := bits.Div64(hi, lo, uint64(l.pace))
	return int64(n)
}

// A span is a time of whole microseconds and part/den of one, part from 0 to
// den-1, den being the limit's.
type span struct{ whole, part int64 }

func (a span) add(b span, den int64) span {
	a.whole += b.whole
	if a.part += b.part; a.part >= den {
		a.whole++
		a.part -= den
	}
	return a
}

func (a span) sub(b span, den int64) span {
	a.whole -= b.whole
	if a.part -= b.part; a.part < 0 {
		a.whole--
		a.part += den
	}
	return a
}

func (a span) more(b span) bool {
	return a.whole > b.whole || a.whole == b.whole && a.part > b.part
}

func (a span) ceil() int64 {
	if a.part > 0 {
		return a.whole + 1
	}
	return a.whole
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
