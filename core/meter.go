package core

// Buckets and funnels: limits of a burst, and then of a rate.

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// TokenBucket admits an action if the bucket holds a token for each unit of the action's cost. The
// bucket holds at most capacity tokens. It starts full, or as [Limit.Initial] says, and is refilled
// at rate. Fractions of a token are kept. capacity is from 1 to 1,000,000,000. The bucket must fill
// within 100 years.
//
// The state is exact. It is usually one number: the instant at which the bucket will be full. The
// algorithm is the virtual scheduling algorithm of [ITU-T I.371], also called GCRA.
//
// [ITU-T I.371]: https://www.itu.int/rec/T-REC-I.371
func TokenBucket(capacity int, rate Rate) Limit {
	return Limit{kind: machine.KindTokenBucket, max: capacity, rate: rate, shape: meter{}}.derived()
}

// Funnel admits an action if the funnel has room for the action's cost. The funnel has room for
// capacity units, and leaks at rate. For example, Funnel(15, Per(30, time.Minute)) admits 15
// actions at once, and then one every 2 s. capacity is from 1 to 1,000,000,000. A full funnel must
// drain within 100 years.
//
// The state is usually one number: the instant at which the funnel will be empty. The algorithm is
// the leaky bucket as a meter (GCRA), as in redis-cell.
func Funnel(capacity int, rate Rate) Limit {
	return Limit{kind: machine.KindFunnel, max: capacity, rate: rate, shape: meter{}}.derived()
}

// Throttle is a [Funnel] with the arguments of redis-cell's command CL.THROTTLE. For example,
// Throttle(15, Per(30, time.Minute)) is CL.THROTTLE key 15 30 60. The capacity is maxBurst+1, so
// this example admits 16 actions at once. maxBurst is from 0 to 999,999,999. [Decision.Cell]
// returns the command's reply.
func Throttle(maxBurst int, rate Rate) Limit {
	capacity := min(maxBurst, math.MaxInt-1) + 1 // does not overflow
	return Limit{kind: machine.KindFunnel, throttle: true, max: capacity, rate: rate, shape: meter{}}.derived()
}

// Initial makes a TokenBucket start with n tokens instead of full. n is from 1 to the capacity. The
// bucket starts to fill at the user's first admitted action, even if that action is refunded later.
// An action that the bucket refuses starts it too, unless its cost is above the capacity or the
// user is banned. Before the first action, ResetAfter is the time that the bucket will take to
// fill.
func (l Limit) Initial(n int) Limit {
	l.mods |= modInitial
	l.initial = n
	return l.derived()
}

// ForgetAfter sets when a TokenBucket with Initial has its initial tokens again: d after the last
// admitted action, or after the refusal that started the bucket. If the user owes more than the
// capacity, it takes longer. d is at least the time from empty to full, and at most 101 years. The
// default is the time from empty to full plus 24 h. A store keeps the state for d, or a microsecond
// longer if d is the time from empty to full.
//
// Limiters with different ForgetAfter may share a bucket. The limiter that admitted last sets the
// time at which the bucket is forgotten. A later decision of another limiter, even a refusal, can
// only bring that time forward: to at most the ForgetAfter of that limiter from then. It does not
// bring the time forward if Wait reserved the turn of the last action, or if that action left a
// debt above the capacity.
func (l Limit) ForgetAfter(d time.Duration) Limit {
	l.mods |= modForget
	l.forget = d
	return l.derived()
}

// validateInitial checks Initial and ForgetAfter. The rest of the limit must be valid.
func (l *Limit) validateInitial(bad badValue) error {
	initial, forget := l.mods&modInitial != 0, l.mods&modForget != 0
	empty := micros(l.rule.Burst.Ceil())
	switch {
	case initial && l.kind != machine.KindTokenBucket:
		return bad("Initial applies to TokenBucket only")
	case forget && l.kind != machine.KindTokenBucket:
		return bad("ForgetAfter applies to TokenBucket only")
	case forget && !initial:
		return bad("ForgetAfter needs Initial: a bucket that starts full is forgotten when it is full")
	case initial && (l.initial < 1 || l.initial > l.max):
		return bad("initial tokens %d are not within 1 to the capacity %d", l.initial, l.max)
	case forget && (l.forget < empty || l.forget > maxForget):
		return bad("ForgetAfter %s is not within %s, the time from empty to full, to 101 years", l.forget, empty)
	case forget && l.forget%time.Microsecond != 0:
		return bad("ForgetAfter %s is not in whole microseconds", l.forget)
	}
	return nil
}

const (
	maxRate     = 1_000_000_000
	maxDrain    = 100 * maxPeriod
	maxForget   = 101 * maxPeriod
	forgetGrace = 24 * time.Hour
)

// meter is the shape of the limits that have a capacity and a rate.
type meter struct{}

func (meter) text(l *Limit) string {
	if l.throttle {
		return fmt.Sprintf("Throttle(%d, %s)", l.max-1, l.rate)
	}
	return fmt.Sprintf("%s(%d, %s)", l.kind.Constructor(), l.max, l.rate)
}

func (meter) validate(l *Limit, bad badValue) error {
	most := l.kind.Most()
	switch {
	case l.throttle && (l.max < 1 || l.max > most):
		return bad("maxBurst %d is not within 0 to %d", l.max-1, most-1)
	case l.max < 1 || l.max > most:
		return bad("capacity %d is not within 1 to %d", l.max, most)
	case l.rate.n < 1 || l.rate.n > maxRate:
		return bad("the rate's count %d is not within 1 to %d", l.rate.n, maxRate)
	}
	err := validatePeriod("the rate's period", l.rate.d, bad)
	if err == nil && tooSlow(l) {
		err = bad("the whole capacity takes %d years to drain or fill, and 100 years is the most; raise the rate or lower the capacity", l.rule.Burst.Whole/int64(maxPeriod/time.Microsecond))
	}
	return err
}

// tooSlow reports whether a full meter takes longer to drain than maxDrain.
func tooSlow(l *Limit) bool { return l.rule.Burst.Ceil() > maxDrain.Microseconds() }

// compile makes an empty rule if a number is out of bounds, and leaves the error to validate.
// compile allows longer periods than validate does, because Divide lengthens the period of a rate.
func (meter) compile(l *Limit) {
	l.rule = machine.Rule{Kind: l.kind}
	if l.max < 1 || l.max > l.kind.Most() || l.rate.n < 1 || l.rate.n > maxRate || l.rate.d < minPeriod || l.rate.d > maxDrain {
		return
	}
	l.rule = machine.NewMeter(l.kind, int64(l.max), int64(l.rate.n), l.rate.d.Microseconds())
	if l.initial < 1 || l.initial > l.max {
		return
	}
	if l.mods&modForget == 0 && !tooSlow(l) {
		l.forget = micros(l.rule.Burst.Ceil()) + forgetGrace
	}
	l.rule = l.rule.WithInitial(int64(l.initial), l.forget.Microseconds())
}

func (meter) identity(l *Limit) string {
	initial := ""
	if l.initial > 0 {
		initial = strconv.Itoa(l.initial) + "/"
	}
	n, period := l.rule.Rate()
	return fmt.Sprintf(":%s%d:%d/%s", initial, l.max, n, ascii(shortest(micros(period))))
}
