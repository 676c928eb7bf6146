package core

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A Limit is a rule, such as at most five actions in a minute. Limits can be compared with ==. Two
// limits are equal if they were made by the same calls. The zero Limit is invalid.
//
// The constructors do not fail. If a number is out of bounds, or a modifier does not apply to the
// kind, [New] returns an error that says what is wrong.
//
// For each user and action a store keeps one state of a limit. (See [Limit.PerUser] and [Nothing]
// for other cases.) Limits share the state if they have the same kind, the same name or no name,
// and the same values of these:
//
//	windows              the period, and the time zone of a CalendarWindow
//	funnels and buckets  capacity, rate and Initial
//	InFlight             the lease
//
// A limit with [Limit.Leased], [Limit.Shadow] or [Limit.PerUser] does not share a state with the
// same limit without it.
//
// A window whose max is changed keeps its history. A window whose period is changed has another
// state, which is empty at first. A funnel or bucket whose capacity, rate or Initial is changed has
// another state too, which begins with the full quota or with Initial.
type Limit struct {
	kind     machine.Kind
	shape    shape
	mods     modifier // the modifiers that were called
	throttle bool     // made by Throttle; max is its maxBurst+1
	max      int      // the maximum count or capacity, as declared
	period   time.Duration
	rate     Rate // of a bucket or funnel
	initial  int
	forget   time.Duration // of a bucket with Initial, as given or by default
	prepay   time.Duration
	name     string

	// The method derived makes these from the fields above. It keeps the rule's Shadow, PerUser and Held.
	identity string
	rule     machine.Rule
}

type modifier uint8

const (
	modRefused modifier = 1 << iota
	modInitial
	modForget
	modName
	modLease
	modPrepay
	modFailures
)

// A shape has what the kinds of limits with the same arguments have in common.
type shape interface {
	text(l *Limit) string                  // the call of the constructor
	validate(l *Limit, bad badValue) error // checks the arguments
	compile(l *Limit)                      // makes the rule, if the arguments are within bounds
	identity(l *Limit) string              // the arguments that identify the state
}

// derived returns the limit with the rule and the identity that its other fields make.
func (l Limit) derived() Limit {
	if l.shape == nil {
		return l
	}
	shadow, perUser, held := l.rule.Shadow, l.rule.PerUser, l.rule.Held
	l.shape.compile(&l)
	l.rule.Shadow, l.rule.PerUser, l.rule.Held = shadow, perUser, held
	identity := l.kind.String() + l.shape.identity(&l)
	l.tighten()
	l.rule.Failures = l.mods&modFailures != 0
	if l.mods&modPrepay != 0 {
		identity += "/" + ascii(shortest(l.prepay))
	}
	if shadow {
		identity = "shadow:" + identity
	}
	if l.name != "" { // a name has no slash, so it cannot look like the time of Leased
		identity += ":" + l.name
	}
	l.identify(identity)
	return l
}

func (l *Limit) identify(identity string) {
	l.identity, l.rule.Hash = identity, maphash.String(identitySeed, identity)
}

// sharesState reports whether two limits have one state for the same user and action.
func (l *Limit) sharesState(other *Limit) bool {
	return l.identity == other.identity && l.rule.PerUser == other.rule.PerUser
}

// A Rate is a number of units per duration, such as 7 per second. Both numbers are kept as given,
// so the rate is exact. [Per] and [Every] make a Rate.
type Rate struct {
	n int
	d time.Duration
}

// Per returns the rate of n units per d. n is from 1 to 1,000,000,000. d is from 1 ms to 365 days,
// in whole microseconds.
func Per(n int, d time.Duration) Rate { return Rate{n: n, d: d} }

// Every returns the rate of one unit per d.
func Every(d time.Duration) Rate { return Per(1, d) }

func (r Rate) String() string { return fmt.Sprintf("Per(%d, %s)", r.n, shortest(r.d)) }

var identitySeed = maphash.MakeSeed()

// Named gives the limit a name of 1 to 64 ASCII letters, digits, dots, underscores or dashes. The
// IETF RateLimit headers, the detail of a problem document and metrics show the name. The
// X-RateLimit headers do not. Two limits that differ only by name have separate states.
func (l Limit) Named(name string) Limit {
	l.mods |= modName
	l.name = name
	return l.derived()
}

// Shadow makes a shadow limit. It is decided in the same step as the limiter's other limits, and
// never refuses.
//   - If an action passes the other limits, and the shadow limit has room, the action is charged to
//     the shadow limit too. If a limiter has several shadow limits, the action is charged to all of
//     them or to none.
//   - If an action is allowed, Decision.Reason may be [ReasonShadowed] or [ReasonNear].
//     Decision.Shadow is then the index of the shadow limit.
//   - The state is separate from that of the same limit without Shadow.
//
// A limiter needs at least one limit without Shadow. For a dry run of a whole limiter use the store
// [Shadow].
func (l Limit) Shadow() Limit {
	l.rule.Shadow = true
	return l.derived()
}

// PerUser makes a limit count all of a user's actions together. Without PerUser it counts each
// action separately. The limit is decided in the same step as the other limits of its limiter. All
// limiters on the store that have the same limit with PerUser share its state.
func (l Limit) PerUser() Limit {
	l.rule.PerUser = true
	return l.derived()
}

// IsShadow reports whether [Limit.Shadow] made the limit, so that it never refuses.
func (l *Limit) IsShadow() bool { return l.rule.Shadow }

// IsPerUser reports whether the limit counts all of a user's actions together: see [Limit.PerUser].
func (l *Limit) IsPerUser() bool { return l.rule.PerUser }

// TakesSlots reports whether the limit is an [InFlight], which counts the actions in progress.
func (l *Limit) TakesSlots() bool { return l.rule.TakesSlots() }

// ResetsAtOnce reports whether the full quota comes back at one instant, when a window ends. It
// returns true for FixedWindow, ElasticWindow, CalendarWindow and Nothing. The quota of other
// limits may come back bit by bit.
func (l *Limit) ResetsAtOnce() bool { return l.rule.AtOnce() }

// PeriodAt returns the start and the end of the period of a [CalendarWindow] that t is in. The end
// is the start of the next period. For other limits both are zero.
func (l *Limit) PeriodAt(t time.Time) (start, end time.Time) {
	if c := l.rule.Calendar; c != nil {
		from, to := c.Period(t.UnixMicro())
		start, end = time.UnixMicro(from).In(c.Location()), time.UnixMicro(to).In(c.Location())
	}
	return start, end
}

// Kind returns the word for the limit's kind: "sliding", "refused" (a SlidingWindow with
// CountRefused), "moving", "fixed", "elastic", "calendar", "bucket", "funnel" or "inflight". A
// Throttle is a "funnel", and Nothing is "fixed". A store also gets the limit of a [BanPolicy],
// whose kind is "ban".
func (l *Limit) Kind() string { return l.kind.String() }

// Quota returns the most units for which the limit can have room: its maximum count or its
// capacity. [Limit.Leased] reduces the capacity of a funnel or bucket.
func (l *Limit) Quota() int { return int(l.rule.Max) }

// Period returns the period of a window, or the lease of an InFlight. For a bucket or funnel it is
// the time from empty to full or from full to empty, rounded up to the microsecond.
//
// For a CalendarWindow it is the length of the longest period: 31 days for a month, 366 days for a
// year, and 24 hours for a day, although a day may have 25 hours when summer time ends.
func (l *Limit) Period() time.Duration { return max(l.period, micros(l.rule.Burst.Ceil())) }

// Rate returns the rate of a bucket or funnel as it was given: n units per d. For other limits both
// are 0.
func (l *Limit) Rate() (n int, d time.Duration) { return l.rate.n, l.rate.d }

// Name returns the name given by [Limit.Named], or "".
func (l *Limit) Name() string { return l.name }

// Identity returns the name of the limit's state among the states of a user and an action. It has
// the kind, the numbers that identify the state (see [Limit]), and the name given by Named, as in
// these examples:
//
//	sliding:1m
//	calendar:month:asia/shanghai
//	inflight:1m
//	funnel:15:1/2s:likes    named likes, with the rate in lowest terms
//	bucket:3/10:1/1s        with Initial(3)
//	moving:1m/50ms          with Leased(50ms)
//	shadow:sliding:1m       with Shadow
//	ban                     the limit of a BanPolicy, which only a store gets
//
// PerUser is not part of the identity: see [Limit.IsPerUser]. The identity consists of ASCII
// letters, digits and ":/._-+".
func (l *Limit) Identity() string { return l.identity }

// Rule is for authors of stores. It returns the limit compiled to integers, which must not be
// changed.
func (l *Limit) Rule() *machine.Rule { return &l.rule }

const (
	minPeriod = time.Millisecond
	maxPeriod = 365 * 24 * time.Hour
)

// ErrConfig matches errors of the configuration, such as every error of [New], [Limiter.With] and
// [ParseLimit], and the errors of calls with a zero Limiter, a nil context, or subjects that [All]
// cannot decide together.
var ErrConfig = errors.New("core: bad configuration")

func configError(text string) error { return textError{text, ErrConfig} }

// A textError matches another error, such as [ErrConfig], and says what is wrong in its text.
type textError struct {
	text    string
	matches error
}

func (e textError) Error() string { return e.text }

func (e textError) Unwrap() error { return e.matches }

// A badValue makes the error for a value that is out of bounds. The error begins with the limit or
// call that has the value.
type badValue func(format string, args ...any) error

// badIn returns the badValue for a limit, or for the name of a call.
func badIn(what any) badValue {
	return func(format string, args ...any) error {
		return configError(fmt.Sprintf("core: %s: %s", what, fmt.Sprintf(format, args...)))
	}
}

// validate returns an error if the limit is invalid. The error says what is wrong.
func (l *Limit) validate() error {
	bad := badIn(l)
	if l.shape == nil {
		return configError("core: a zero Limit: make limits with SlidingWindow, Funnel or another constructor")
	}
	if err := l.shape.validate(l, bad); err != nil {
		return err
	}
	switch {
	case l.mods&modRefused != 0 && l.kind != machine.KindSlidingRefused:
		return bad("CountRefused applies to SlidingWindow only")
	case l.mods&modLease != 0 && l.kind != machine.KindInFlight:
		return bad("Lease applies to InFlight only")
	case l.mods&modName != 0 && (l.name == "" || len(l.name) > 64 || strings.Trim(l.name, nameLetters) != ""):
		return bad("a name is 1 to 64 letters, digits, dots, underscores or dashes")
	}
	return cmp.Or(l.validateInitial(bad), l.validatePrepay(bad))
}

const nameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

func validatePeriod(what string, d time.Duration, bad badValue) error {
	switch {
	case d < minPeriod || d > maxPeriod:
		return bad("%s %s is not within %s to 365 days", what, d, minPeriod)
	case d%time.Microsecond != 0:
		return bad("%s %s is not in whole microseconds", what, d)
	}
	return nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// shortest returns the text of d without zero units: 1m for what d.String prints as 1m0s.
func shortest(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	return strings.Replace(s, "h0m", "h", 1)
}

// ascii returns the text of a duration in ASCII, for headers: us instead of µs.
func ascii(d string) string { return strings.Replace(d, "µ", "u", 1) }
