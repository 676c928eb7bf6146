package core

// The windows: at most so many actions in a period.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// SlidingWindow admits at most max actions in any interval of length period. An action made at t
// counts until just before t+period. The limit remembers the instant of every admitted action of
// the period, so it is exact, and the history can be read back. max is from 1 to 10,000; for more
// use [MovingWindow].
//
// The algorithm is the sliding window log, in Redis the sorted-set recipe (ZADD, ZREMRANGEBYSCORE,
// ZCARD). Two things differ from that recipe: two actions in one instant count as two, and refusals
// are recorded only with [Limit.CountRefused].
func SlidingWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindSlidingWindow, max: max, period: period, shape: window{}}.derived()
}

// MovingWindow decides exactly as [SlidingWindow] does, from a compact queue of the last max
// admitted instants. A decision takes constant time. An action takes 8 to 8.5 bytes, or up to 9 if
// the queue is short. max is from 1 to 50,000,000. One call costs at most 1,000,000.
//
// The algorithm is the sliding window log as a queue, after the list recipe (LINDEX, LPUSH, LTRIM).
func MovingWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindMovingWindow, max: max, period: period, shape: window{}}.derived()
}

// FixedWindow admits at most max actions in a window. The window opens at the first admitted action
// and ends period later. It is the cheapest window, because its state is a count and an end. Up to
// twice max may pass across a boundary. max is from 1 to 1,000,000,000.
//
// The algorithm is the fixed window counter: INCR with EXPIRE as one atomic step.
func FixedWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindFixedWindow, max: max, period: period, shape: window{}}.derived()
}

// ElasticWindow admits at most max actions in a window. Every attempt, even a refused one, moves
// the end of the window to period from now. So the window ends only after a period without
// attempts. A refused attempt does not count as an action. max is from 1 to 1,000,000,000.
//
// The algorithm is a counter with INCR, and EXPIRE every time.
func ElasticWindow(max int, period time.Duration) Limit {
	return Limit{kind: machine.KindElasticWindow, max: max, period: period, shape: window{}}.derived()
}

// CountRefused makes a SlidingWindow record refused attempts too, as the original recipe does, so a
// user who keeps trying stays refused. The newest max entries are kept. This is a separate kind of
// limit, and shares no state with a plain SlidingWindow.
func (l Limit) CountRefused() Limit {
	l.mods |= modRefused
	if l.kind == machine.KindSlidingWindow {
		l.kind = machine.KindSlidingRefused
	}
	return l.derived()
}

// window is the shape of the limits with a max and a period.
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

// Nothing refuses every action, with [ReasonNothing] and a RetryAfter of [Never]. It is for an
// action that a plan does not include, or that is switched off. It keeps no state. A limiter with
// Nothing has no other enforced limit. The middleware answers 429 without Retry-After, or 403 with
// nethttp.Config.Forbid.
func Nothing() Limit {
	return Limit{kind: machine.KindFixedWindow, shape: nothing{}}.derived()
}

// nothing is the shape of a window in which no action fits.
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
