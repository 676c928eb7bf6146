package core

// Leased: units of a shared limit that a process takes in advance, and decides from.

import (
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Leased lets a process take units of the limit in advance, for at most d, and decide from them without asking
// the store. It is for a key that many processes share and that one Redis cannot serve any more, such as the
// limit of a large tenant. d is from 1 ms to a tenth of the period; for a funnel or bucket, of the time to
// drain or fill.
//
//	core.Funnel(10_000, core.Per(10_000, time.Second)).Leased(50*time.Millisecond)
//
// All processes together never exceed the limit as it is declared, in any interval. Leases of 20 to 100 ms suit
// most limits: a longer one costs more of the limit and hardly saves commands. The program examples/tenant has
// such a limit.
//
// What a funnel or bucket drains or gains in d, rounded up, is missing in [Limit.Quota]: it is 9,500 in the
// example.
//
// The price: a MovingWindow admits its max in each p+d instead of its period p, so with 50 ms a limit for one
// second loses 5% of its rate. A FixedWindow and a CalendarWindow lose nothing. Near the limit an action may be
// refused up to d too early, because other processes hold the last units, or because this one has asked so
// often that it waits before it asks again. Units that a process holds when it ends are lost until the limit
// has forgotten their charge. Other processes, Peek and Status count what a process holds as used. A Reset, a
// Ban or an Unban by another process, or one that BanPolicy makes, may take d to have effect on what a process
// holds.
//
// Only redisstore takes units in advance, and only for a limiter whose limits are all leased. Other stores
// decide by the stricter limit. The lease is part of the limit's identity. It does not apply to SlidingWindow,
// ElasticWindow, InFlight and buckets with Initial. The lease of a slot of InFlight is [Limit.Lease].
func (l Limit) Leased(d time.Duration) Limit {
	l.mods |= modPrepay
	l.prepay = d
	return l.derived()
}

// Why the processes never exceed the limit. A unit is charged before its action: if Redis charges at the
// instant s, the action is at an instant a with s <= a <= s+d, since a process begins to count d before it
// sends the charge, and counts a thousandth less for the drift of its clock. What is not used by then is given
// back, or lost.
//
//   - A window of the length p: the actions from t to t+p were charged from t-d to t+p, whose length is p+d.
//     Redis checks charges by a window of the length p+d, so these are at most max.
//   - A funnel or bucket of the capacity c and the rate r: the actions of a time x were charged within x+d. Redis
//     checks charges by the capacity c-r*d, so these are at most c-r*d + r*(x+d), which is c + r*x.
//   - A FixedWindow or CalendarWindow: a lease ends with its window, so the action is in the window of its charge.

const minPrepay = time.Millisecond

// mostPrepay is the longest time in advance, of a limit that tighten has not changed.
func (l *Limit) mostPrepay() time.Duration { return l.Period() / 10 }

// tighten makes the rule hold for units that are prepaid. A time in advance that is out of bounds is left out;
// validate names it.
func (l *Limit) tighten() {
	if l.mods&modPrepay == 0 || !l.kind.Prepaid() || l.mods&modInitial != 0 || l.rule.Max == 0 ||
		l.prepay < minPrepay || l.prepay > l.mostPrepay() {
		return
	}
	l.rule = l.rule.WithPrepay(l.prepay.Microseconds())
}

// cannotPrepay says of each kind that is not Prepaid why.
var cannotPrepay = map[machine.Kind]string{
	machine.KindSlidingWindow:  "its readable history would show charges and not actions; MovingWindow decides the same",
	machine.KindSlidingRefused: "CountRefused records every attempt, so every attempt must reach the store; use MovingWindow",
	machine.KindInFlight:       "a slot is taken when its action begins, and released when it ends",
	machine.KindElasticWindow:  "every attempt moves its end, so every attempt must reach the store; use FixedWindow",
}

// validatePrepay is called for a limit that is valid but for its Leased.
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
	case l.rule.Prepay > 0: // tighten has compared it
		return nil
	case l.mostPrepay() < minPrepay:
		return bad("Leased does not apply to so short a period: a lease is at least %s, and at most a tenth of the period, here %s", minPrepay, l.mostPrepay())
	}
	return bad("the lease %s is not within %s to %s, a tenth of the period", l.prepay, minPrepay, l.mostPrepay())
}
