package core

// Leased: a process takes units of a shared limit in advance, and decides from these.

import (
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Leased lets a process take units of the limit in advance, for at most d. The process then decides
// from these units without asking the store. Use it for a key that many processes share and that
// one Redis server can no longer serve, such as the limit of a large tenant.
//
//	core.Funnel(10_000, core.Per(10_000, time.Second)).Leased(50*time.Millisecond)
//
// d is from 1 ms to a tenth of the period. The period of a funnel or bucket is the time in which it
// drains or fills. 20 to 100 ms suit most limits. A longer d costs more of the limit and hardly
// saves commands. The program examples/tenant has such a limit.
//
// In any interval, all processes together admit no more than the limit allows without Leased. This
// has a price:
//
//   - A funnel or bucket loses the units that drain or fill in d, rounded up. In the example,
//     [Limit.Quota] is 9,500. A MovingWindow counts over its period and d. With
//     50 ms, a limit for one second loses 5% of its rate. A FixedWindow and a CalendarWindow lose
//     nothing.
//   - Near the limit an action may be refused too early, because other processes hold the last
//     units, or because this process waits for a moment before it asks Redis again.
//   - If a process ends, the units that it holds count as used until the limit forgets their
//     charge.
//   - Other processes, Peek and Status count the units that a process holds as used.
//   - If another process calls Reset, Ban or Unban, or if a BanPolicy bans a user, this process may
//     notice it up to d later.
//
// Only redisstore takes units in advance, and only if all limits of the limiter are leased. A
// memorystore takes no units in advance, but it applies the longer window or the smaller capacity
// too. d is part of the limit's identity. SlidingWindow, ElasticWindow, InFlight, Nothing and
// buckets with Initial cannot be leased. Do not confuse Leased with [Limit.Lease], which is for
// slots of InFlight.
func (l Limit) Leased(d time.Duration) Limit {
	l.mods |= modPrepay
	l.prepay = d
	return l.derived()
}

// This is why the processes together never exceed the limit. A unit is charged before its action.
// If Redis charges the unit at the instant s, its action is at an instant a with s <= a <= s+d. The
// process makes sure of this: it measures d from before it sends the charge, and uses a thousandth
// less than d in case its clock is slow. It gives back or loses a unit that is not used in this
// time.
//
//   - A window of the length p: the actions from t to t+p were charged from t-d to t+p. Redis
//     checks charges by a window of the length p+d, so there are at most max of them.
//   - A funnel or bucket with the capacity c and the rate r: the actions of an interval of the
//     length x were charged within x+d. Redis checks charges by the capacity c-r*d, so there are at
//     most c-r*d + r*(x+d) of them, which is c + r*x.
//   - A FixedWindow or CalendarWindow: leased units end with their window, so an action is in the
//     window in which it was charged.

const minPrepay = time.Millisecond

// mostPrepay returns the longest time before their actions at which Leased may charge units: a tenth
// of the period. Call it before tighten, which changes the limit.
func (l *Limit) mostPrepay() time.Duration { return l.Period() / 10 }

// tighten makes the rule strict enough for units in advance. If the limit cannot be leased, or the
// time in advance is out of bounds, tighten changes nothing, and validatePrepay returns the error.
func (l *Limit) tighten() {
	if l.mods&modPrepay == 0 || !l.kind.Prepaid() || l.mods&modInitial != 0 || l.rule.Max == 0 ||
		l.prepay < minPrepay || l.prepay > l.mostPrepay() {
		return
	}
	l.rule = l.rule.WithPrepay(l.prepay.Microseconds())
}

// cannotPrepay says why a kind cannot be leased. It has all kinds that are not Prepaid, except for
// bans.
var cannotPrepay = map[machine.Kind]string{
	machine.KindSlidingWindow:  "its readable history would show charges and not actions; MovingWindow decides the same",
	machine.KindSlidingRefused: "CountRefused records every attempt, so every attempt must reach the store; use MovingWindow",
	machine.KindInFlight:       "a slot is taken when its action begins, and released when it ends",
	machine.KindElasticWindow:  "every attempt moves its end, so every attempt must reach the store; use FixedWindow",
}

// validatePrepay checks Leased. The rest of the limit must be valid.
func (l *Limit) validatePrepay(bad badValue) error {
	switch {
	case l.mods&modPrepay == 0:
		return nil
	case !l.kind.Prepaid():
		return bad("Leased does not apply to %s: %s", l.kind.Constructor(), cannotPrepay[l.kind])
	case l.mods&modInitial != 0:
		return bad("Leased does not apply to a bucket with Initial: a lease would start it before the user's first action")
	case l.rule.Prepay > 0 && l.rule.Max < 1:
		return bad("Leased(%s) leaves nothing of the capacity %d; give it a larger capacity", shortest(l.prepay), l.max)
	case l.prepay%time.Microsecond != 0:
		return bad("the lease %s is not in whole microseconds", l.prepay)
	case l.rule.Prepay > 0: // tighten has checked the bounds
		return nil
	case l.mostPrepay() < minPrepay:
		return bad("Leased does not apply to so short a period: a lease is at least %s, and at most a tenth of the period, here %s", minPrepay, l.mostPrepay())
	}
	return bad("the lease %s is not within %s to %s, a tenth of the period", l.prepay, minPrepay, l.mostPrepay())
}
