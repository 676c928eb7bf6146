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

// A Limit is a rule: at most a number of actions in a time. Limits can be compared with ==. Two
// limits are equal if they were made by the same calls. The zero Limit is invalid.
//
// The constructors do not fail. If a number is out of bounds, or a modifier does not apply to the
// kind, [New] returns an error that names the value and the bound.
//
// A user and an action have one state for each identity of a limit: the kind, the name if there is
// one, and these numbers:
//
//	windows              the period, and the time zone of a CalendarWindow
//	funnels and buckets  capacity, rate and Initial
//	InFlight             the lease
//
// So a window with another max has the same history. A window with another period is another state,
// which is empty at first. A funnel or bucket with other numbers is another state, which begins
// with the full quota or with Initial.
type Limit struct {
	kind     machine.Kind
	shape    shape
	mods     modifier // those that were called
	throttle bool     // made by Throttle; max is its maxBurst+1
	max      int      // the maximum count or capacity, as declared
	period   time.Duration
	rate     Rate // of a bucket or funnel
	initial  int
	forget   time.Duration // of a bucket with Initial, as given or by default
	prepay   time.Duration
	name     string

	// These are derived from the above, but for the rule's Shadow, PerUser and Held.
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

// A shape is what the limits have in common that take the same arguments.
type shape interface {
	text(l *Limit) string                  // the constructor's call
	validate(l *Limit, bad badValue) error // the arguments
	compile(l *Limit)                      // the rule, of arguments within bounds
	identity(l *Limit) string              // what of the arguments identifies the state
}

// derived compiles the rule and the identity.
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
	if l.name != "" { // a name has no slash, so no name looks like numbers
		identity += ":" + l.name
	}
	l.identify(identity)
	return l
}

func (l *Limit) identify(identity string) {
	l.identity, l.rule.Hash = identity, maphash.String(identitySeed, identity)
}

// sharesState reports whether two limits have one state for a user and an action.
func (l *Limit) sharesState(other *Limit) bool {
	return l.identity == other.identity && l.rule.PerUser == other.rule.PerUser
}

// A Rate is a number of units per duration, such as 7 per second. Both numbers are kept as given,
// so the rate is exact. [Per] and [Every] make one.
type Rate struct {
	n int
	d time.Duration
}

// Per returns the rate of n units per d. n is from 1 to 1,000,000,000. d is from 1 ms to 365 days,
// in whole microseconds.
func Per(n int, d time.Duration) Rate { return Rate{n: n, d: d} }

// Every is one unit per d.
func Every(d time.Duration) Rate { return Per(1, d) }

func (r Rate) String() string { return fmt.Sprintf("Per(%d, %s)", r.n, shortest(r.d)) }

var identitySeed = maphash.MakeSeed()

// Named gives the limit a name of 1 to 64 letters, digits, dots, underscores or dashes.
// Headers and metrics show it. Two limits that differ only by name have separate states.
func (l Limit) Named(name string) Limit {
	l.mods |= modName
	l.name = name
	return l.derived()
}

// Shadow makes a shadow limit. It decides about the same actions as the limiter's other limits, in
// the same step, and never refuses.
//   - An action that passes the other limits is charged to the shadow limit if that has room for
//     it. If there are several shadow limits, it is charged to all or none of them.
//   - Decision.Reason says what the shadow limit would have done: [ReasonShadowed] or [ReasonNear].
//     Decision.Shadow is its index.
//   - The state is separate from that of the same limit without Shadow.
//
// At least one limit of a limiter must be enforced. For a dry run of a whole limiter use the store
// [Shadow].
func (l Limit) Shadow() Limit {
	l.rule.Shadow = true
	return l.derived()
}

// PerUser makes a limit count all of a user's actions together. Otherwise it counts each action
// separately. The limit is decided in the same step as the others of its limiter. All limiters on
// the store that have the same limit with PerUser share its state.
func (l Limit) PerUser() Limit {
	l.rule.PerUser = true
	return l.derived()
}

// IsShadow reports whether the limit was made by [Limit.Shadow], and so never refuses.
func (l *Limit) IsShadow() bool { return l.rule.Shadow }

// IsPerUser reports whether the limit counts all of a user's actions together; see
// [Limit.PerUser].
func (l *Limit) IsPerUser() bool { return l.rule.PerUser }

// TakesSlots reports whether the limit is an [InFlight], which counts the actions in progress.
func (l *Limit) TakesSlots() bool { return l.rule.TakesSlots() }

// ResetsAtOnce reports whether the full quota comes back at one instant, when a window ends: for a
// FixedWindow, an ElasticWindow or a CalendarWindow. For other limits it comes back bit by bit.
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

// Kind returns the word for the limit's kind: "sliding", "refused" (a SlidingWindow with CountRefused),
// "moving", "fixed", "elastic", "calendar", "bucket", "funnel" or "inflight". A store also gets the
// limit of a [BanPolicy], whose kind is "ban".
func (l *Limit) Kind() string { return l.kind.String() }

// Quota is the highest cost that the limit can admit at once: its maximum count or its capacity.
// [Limit.Leased] reduces the capacity of a funnel or bucket.
func (l *Limit) Quota() int { return int(l.rule.Max) }

// Period is a window's period, or the lease of InFlight. For a CalendarWindow it is the length of
// its longest period: a month is 31 days, a year 366, and a day 24 hours, although a day of summer
// time may have 25. For a bucket or funnel it is the time from empty to full or from full to empty,
// rounded up to the microsecond.
func (l *Limit) Period() time.Duration { return max(l.period, micros(l.rule.Burst.Ceil())) }

// Rate is a bucket's or funnel's rate as it was given: n units per d.
func (l *Limit) Rate() (n int, d time.Duration) { return l.rate.n, l.rate.d }

// Name is the name given by [Limit.Named], or "".
func (l *Limit) Name() string { return l.name }

// Identity names the limit's state among those of a user and an action: the kind; the period of a
// window, the lease of InFlight, or the numbers of a bucket or funnel; and the name if there is
// one. Examples:
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
// PerUser is not part of it: see [Limit.IsPerUser]. Identity consists of ASCII letters, digits and
// ":/._-+".
func (l *Limit) Identity() string { return l.identity }

// Rule is for authors of stores: the limit compiled to integers. It must not be changed.
func (l *Limit) Rule() *machine.Rule { return &l.rule }

const (
	minPeriod = time.Millisecond
	maxPeriod = 365 * 24 * time.Hour
)

// ErrConfig matches errors of the configuration: every error of [New], [Limiter.With] and
// [ParseLimit], the error of [All] for subjects that cannot be decided together, and the error of a
// zero Limiter.
var ErrConfig = errors.New("core: bad configuration")

type configError string

func (e configError) Error() string { return string(e) }

func (e configError) Is(target error) bool { return target == ErrConfig }

// badValue makes the error of a value that is out of bounds. The error begins with what has the value.
type badValue func(format string, args ...any) error

// badIn returns the badValue of a limit, or of the call of that name.
func badIn(what any) badValue {
	return func(format string, args ...any) error {
		return configError(fmt.Sprintf("core: %s: %s", what, fmt.Sprintf(format, args...)))
	}
}

// validate says what is wrong with the limit, in a sentence that names the value
// and the bound.
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

// shortest is d without the zero units that d.String prints: 1m and not 1m0s.
func shortest(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	return strings.Replace(s, "h0m", "h", 1)
}

// ascii is a duration's text as headers can have it.
func ascii(d string) string { return strings.Replace(d, "µ", "u", 1) }
