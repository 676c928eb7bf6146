package core

import (
	"fmt"
	"math"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A Rate is a number of units per duration. It keeps both numbers as given, so that it
// never drifts. Make one with [Per] or [Every].
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
// value that can be compared with ==. Two limits are equal if they were made by
// the same calls. The zero Limit is invalid.
//
// The constructors do not fail. If a number is out of bounds, or a modifier does not apply
// to the kind, [New] returns an error that names the value and the bound.
//
// Within one user and action, a limit's state is identified by the limit's kind and
// its name, if it has one; for windows also by the period; for funnels and buckets
// also by capacity, rate and Initial. So a window with another max keeps the history,
// and one with another period starts empty. A funnel or bucket with other numbers is
// another one, which starts with its full quota, or at Initial.
type Limit struct {
	kind     machine.Kind
	mods     modifier
	burst    bool // made by Throttle; max is then maxBurst+1
	shadow   bool // never refuses
	perUser  bool // counts all of the user's actions together
	max      int  // the quota: maximum count or capacity
	period   time.Duration
	rate     Rate
	initial  int
	forget   time.Duration // as given or by default
	name     string
	identity string
	rule     machine.Rule // compiled from the above
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
// and the history can be read back. max from 1 to 10,000; for more use [MovingWindow].
//
// The algorithm is the sorted-set recipe (ZADD, ZREMRANGEBYSCORE, ZCARD). Unlike there, two
// actions in one instant count as two, and a refusal is recorded only with
// [Limit.CountRefused].
func SlidingWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindSlidingWindow, max: max, period: period}.derived()
}

// MovingWindow decides exactly as [SlidingWindow] does, from a compact queue of
// the last max admitted instants. In a full queue an action takes 8 to 8.5 bytes, and up to 9
// in a short one. A decision takes constant time. max from 1 to 50,000,000.
//
// The algorithm is the list recipe (LINDEX, LPUSH, LTRIM).
func MovingWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindMovingWindow, max: max, period: period}.derived()
}

// FixedWindow admits at most max actions in a window that opens at the first
// admitted action and ends period later. It is the cheapest window (a count and
// an end), and lets up to twice max through across a boundary. max from 1 to
// 1,000,000,000.
//
// The algorithm is INCR with EXPIRE as one atomic step.
func FixedWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindFixedWindow, max: max, period: period}.derived()
}

// ElasticWindow admits at most max actions in a window that every attempt, a refused one
// too, extends to period from now. It ends only after a period without attempts. A refusal
// moves the end and not the count. max from 1 to 1,000,000,000.
//
// The algorithm is INCR with EXPIRE every time.
func ElasticWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindElasticWindow, max: max, period: period}.derived()
}

// TokenBucket admits an action if the bucket holds a token for each unit of its
// cost. The bucket holds at most capacity tokens, starts full (or as
// [Limit.Initial] says) and is refilled at rate, fractions of a token kept.
// capacity from 1 to 1,000,000,000; it must fill within 100 years.
//
// A bucket is kept as the instant at which it will be full, which is one number
// and exact (the virtual scheduling algorithm of [ITU-T I.371], also called GCRA).
//
// [ITU-T I.371]: https://www.itu.int/rec/T-REC-I.371
func TokenBucket(capacity int, rate Rate) Limit {
	return Limit{kind: machine.KindTokenBucket, max: capacity, rate: rate}.derived()
}

// Funnel admits an action if the funnel has room for its cost. It has room for
// capacity units and leaks at rate: Funnel(15, Per(30, time.Minute)) admits 15
// at once and then one every 2 s. capacity from 1 to 1,000,000,000; a full one
// must drain within 100 years.
//
// The algorithm is the leaky bucket as a meter, kept as the instant at which the
// funnel will be empty (GCRA, as redis-cell keeps it).
func Funnel(capacity int, rate Rate) Limit {
	return Limit{kind: machine.KindFunnel, max: capacity, rate: rate}.derived()
}

// Throttle is a [Funnel] in the arguments of redis-cell's CL.THROTTLE:
// Throttle(15, Per(30, time.Minute)) is CL.THROTTLE key 15 30 60. Its capacity is
// maxBurst+1, so that one admits 16 at once. maxBurst from 0 to 999,999,999.
// [Decision.Cell] gives the command's reply.
func Throttle(maxBurst int, rate Rate) Limit {
	if maxBurst == math.MaxInt {
		maxBurst-- // out of bounds either way; do not wrap around
	}
	return Limit{kind: machine.KindFunnel, burst: true, max: maxBurst + 1, rate: rate}.derived()
}

// CountRefused makes a SlidingWindow record the attempts that it refuses too, as the
// original recipe does: a user who keeps trying stays refused. The newest max entries are
// kept. It is a kind of its own and shares no state with a plain SlidingWindow.
func (l Limit) CountRefused() Limit {
	l.mods |= modRefused
	if l.kind == machine.KindSlidingWindow {
		l.kind = machine.KindSlidingRefused
	}
	return l.derived()
}

// Initial makes a TokenBucket start with n tokens instead of full, n from 1 to
// its capacity. The user's first action starts the bucket, even if it is refused because it
// costs more than n, or refunded later. Before its first action a bucket does not fill up:
// ResetAfter is then how long filling takes from that action on.
func (l Limit) Initial(n int) Limit {
	l.mods |= modInitial
	l.initial = n
	return l.derived()
}

// ForgetAfter sets how long after the last admitted action a TokenBucket with Initial is
// back at its initial tokens: at least the time from empty to full, at most 101 years. The
// default is the time from empty to full plus 24 h. The state lives that long, and a
// microsecond more if d is the time from empty to full.
//
// If limiters share a bucket under different ForgetAfter, the one that admitted last sets
// when the bucket is forgotten. If a limiter with a shorter ForgetAfter decides later, even a
// refusal, the bucket is forgotten at most that ForgetAfter from then, unless [Limiter.Wait]
// reserved the turn of the last action.
func (l Limit) ForgetAfter(d time.Duration) Limit {
	l.mods |= modForget
	l.forget = d
	return l.derived()
}

// Named gives the limit a name of 1 to 64 letters, digits, dots, underscores or dashes.
// Headers and metrics show it. Two limits that differ only by name count apart.
func (l Limit) Named(name string) Limit {
	l.mods |= modName
	l.name = name
	return l.derived()
}

// Shadow makes a rehearsed limit: it is decided on the same traffic as the limiter's other
// limits, in the same step, and never refuses. An action that passes is charged to it if
// the limit would have let it pass. Several rehearsed limits are charged all or none.
// Decision.Reason says what it would have done: [ReasonShadowed] or [ReasonNear]. It does
// not say which of several limits. A limit with Shadow and the same limit without it have
// separate states. At least one limit of a limiter is enforced. For a dry run of a whole limiter
// there is the store [Shadow].
func (l Limit) Shadow() Limit {
	l.mods |= modShadow
	l.shadow = true
	return l.derived()
}

// PerUser makes a limit count all of a user's actions together. It is decided in the same
// step as the limits per action, and its state is shared by all limiters on the store that
// have the same limit, whatever their actions are.
func (l Limit) PerUser() Limit {
	l.perUser = true
	return l.derived()
}

// Shadowed reports whether the limit is rehearsed and never refuses.
func (l Limit) Shadowed() bool { return l.shadow }

// AllActions reports whether the limit counts all of a user's actions together; see
// [Limit.PerUser].
func (l *Limit) AllActions() bool { return l.perUser }

// Kind returns the word for the limit's kind: "sliding", "refused" (a SlidingWindow with
// CountRefused), "moving", "fixed", "elastic", "bucket" or "funnel". A store also gets the
// limit of a [BanPolicy], whose kind is "ban".
func (l Limit) Kind() string { return l.kind.String() }

// Quota is what the limit admits at most at once: its maximum count or its capacity.
func (l Limit) Quota() int { return l.max }

// Period is a window's period. For a bucket or funnel it is the time from empty to
// full or from full to empty, rounded up to the microsecond.
func (l Limit) Period() time.Duration {
	if l.windowed() {
		return l.period
	}
	return micros(l.rule.Burst.Ceil())
}

// Rate is a bucket's or funnel's rate as it was given: n units per d.
func (l Limit) Rate() (n int, d time.Duration) { return l.rate.n, l.rate.d }

// Name is the name given by [Limit.Named], or "".
func (l Limit) Name() string { return l.name }

// Identity identifies the limit's state within one user and action: the kind, a window's
// period, a bucket's or funnel's numbers, and the name if there is one. Examples are
// "sliding:1m", "funnel:15:1/2s:likes" and, with Initial(3), "bucket:3/10:1/1s". The rate
// is in lowest terms. With Shadow it begins with "shadow:". A store also gets the limit of a
// [BanPolicy], whose identity is "ban". PerUser is not part of it: see [Limit.AllActions]. It
// consists of ASCII letters, digits and ":/._-".
func (l Limit) Identity() string { return l.identity }

// Rule is for authors of stores: the limit compiled to integers. It must not be changed.
func (l *Limit) Rule() *machine.Rule { return &l.rule }
