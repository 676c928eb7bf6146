package core

// The windows: limits of so many actions in a period.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// SlidingWindow admits at most max actions in any interval of length period. An action made at t
// counts until just before t+period. The limit stores the instant of each admitted action of the
// period. So it is exact, and the history can be read back. max is from 1 to 10,000. For more, use
// [MovingWindow].
//
// The algorithm is the sliding window log. On Redis it is the sorted-set recipe (ZADD,
// ZREMRANGEBYSCORE, ZCARD), with two differences: two actions at the same instant count as two, and
// refusals are recorded only with [Limit.CountRefused].
func SlidingWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindSlidingWindow, max: max, period: period, shape: window{}}.derived()
}

// MovingWindow makes the same decisions as [SlidingWindow], and takes less memory. It stores a
// compact queue of the last max admitted instants. A decision about one unit takes constant time.
// An action takes 8 to 9 bytes. In a memorystore it may take up to 17 bytes while the queue grows.
// max is from 1 to 50,000,000. The cost of one call is at most 1,000,000.
//
// The algorithm is the sliding window log as a queue, as in the list recipe for Redis (LINDEX,
// LPUSH, LTRIM).
func MovingWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindMovingWindow, max: max, period: period, shape: window{}}.derived()
}

// FixedWindow admits at most max actions in a window. The first admitted action opens the window,
// and the window ends period later. It is the cheapest window, because its state is a count and an
// end. In an interval of length period that contains the end of a window, up to twice max may pass.
// max is from 1 to 1,000,000,000.
//
// The algorithm is the fixed window counter: INCR and EXPIRE as one atomic step.
func FixedWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindFixedWindow, max: max, period: period, shape: window{}}.derived()
}

// ElasticWindow admits at most max actions in a window. Each admitted action moves the end of the
// window to period from now. An attempt that the window refuses moves the end too. There are three
// exceptions: the user is banned, the cost is above max, or a call of [Limiter.Wait] asks and goes
// on waiting. So the window ends only after a period without attempts. A refused attempt does not
// count as an action. max is from 1 to 1,000,000,000.
//
// The algorithm is a counter (INCR) whose expiry is set again at each attempt (EXPIRE).
func ElasticWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindElasticWindow, max: max, period: period, shape: window{}}.derived()
}

// CountRefused makes a SlidingWindow also record the attempts that it refuses, as the sorted-set
// recipe does. The three exceptions of [ElasticWindow] hold here too. So a user who keeps trying
// stays refused. The limit keeps the newest max entries. It is a separate kind of limit, and shares
// no state with a SlidingWindow without CountRefused.
func (l Limit) CountRefused() Limit {
	l.mods |= modRefused
	if l.kind == machine.KindSlidingWindow {
		l.kind = machine.KindSlidingRefused
	}
	return l.derived()
}

// window is the shape of the limits that have a max and a period.
type window struct{}

func (window) text(l *Limit) string {
	return fmt.Sprintf("%s(%d, %s)", l.kind.Constructor(), l.max, shortest(l.period))
}

func (window) validate(l *Limit, bad badValue) error {
	return cmp.Or(validateMax(l, bad), validatePeriod("period", l.period, bad))
}

func validateMax(l *Limit, bad badValue) error {
	most, moving := l.kind.Most(), machine.KindMovingWindow.Most()
	switch {
	case l.max >= 1 && l.max <= most:
		return nil
	case l.max > most && l.kind.Form() == machine.FormTrail && most < moving:
		return bad("max %d is not within 1 to %d; MovingWindow decides the same and takes up to %d", l.max, most, moving)
	}
	return bad("max %d is not within 1 to %d", l.max, most)
}

func (window) compile(l *Limit) {
	l.rule = machine.NewWindow(l.kind, int64(l.max), l.period.Microseconds())
}

func (window) identity(l *Limit) string { return ":" + shortest(l.period) }

// Nothing refuses every action that costs at least one unit, with [ReasonNothing] and a RetryAfter
// of [Never]. Use it for an action that a plan does not include, or that is switched off. Nothing
// keeps no state. A limiter with Nothing cannot have another enforced limit. The middleware answers
// 429 without Retry-After, or 403 with nethttp.Config.Forbid.
func Nothing() Limit {
	return Limit{kind: machine.KindFixedWindow, shape: nothing{}}.derived()
}

// nothing is the shape of Nothing: a window in which no action fits.
type nothing struct{}

func (nothing) text(*Limit) string { return "Nothing()" }

func (nothing) validate(l *Limit, bad badValue) error {
	if l.mods&modPrepay != 0 {
		return bad("Leased does not apply to Nothing, which has no units")
	}
	return nil
}

func (nothing) compile(l *Limit) { l.rule = machine.NewWindow(l.kind, 0, minPeriod.Microseconds()) }

func (nothing) identity(*Limit) string { return ":nothing" }
