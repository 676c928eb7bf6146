package core

// OnlyFailures: limits that count only failed attempts, such as wrong passwords.

import (
	"cmp"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// OnlyFailures makes a limiter count only attempts that have failed, such as logins with a wrong
// password.
//
//	logins, err := logins.With(core.OnlyFailures{})
//	d, err := logins.Allow(ctx, "alice", "login")
//	if err == nil && d.Allowed {
//		always := context.WithoutCancel(ctx)
//		defer logins.Release(always, d)
//		failed := true
//		defer func() {
//			if failed {
//				_, err = logins.Surcharge(always, "alice", "login", 1)
//			}
//		}()
//		failed = !right(ctx, password) || ctx.Err() != nil
//	}
//
// Let n be the smallest quota of the limiter's limits:
//
//   - [Limiter.Allow] lets an attempt pass if all limits have room for it. It charges nothing to
//     them, but the attempt takes a slot until [Limiter.Release].
//   - [Limiter.Surcharge] counts a failure. Call it before Release. Call it for each attempt that
//     the check has not accepted, even if the check returned an error or panicked, as above. A
//     client can cause an error, for example by disconnecting while its password is checked.
//   - While n failures count in the limit with the smallest quota, all attempts are refused. These
//     refusals count towards a [BanPolicy].
//   - At most n attempts are in progress at the same time, not counting those that outlast their
//     lease. If an attempt is refused only because of other attempts in progress, Reason is
//     [ReasonInFlight], and the attempt may be tried again soon. Such a refusal does not count
//     towards a BanPolicy.
//   - If many wrong guesses come at the same time, fewer than 2n of them are checked. Each check
//     must have ended when Release is called.
//
// The slots are those of an InFlight(n), or of an InFlight(10,000) if n is higher.
// [Limiter.With] adds this limit after the limiter's other enforced limits. The limit is named "+checking". No other limit
// can have this name. If the limiter has an [InFlight] already, that limit bounds the attempts
// instead. Refund and Settle change nothing, because an attempt charges nothing.
type OnlyFailures struct{}

func (OnlyFailures) extend(l *Limiter) error {
	if l.smallest == 0 {
		return errNothing("With", "OnlyFailures")
	}
	l.limits = slices.Clone(l.limits)
	n := len(enforced(l.limits))
	if shortestLease(l.limits[:n]) == 0 {
		slots := InFlight(int(min(l.smallest, int64(machine.KindInFlight.Most())))).Named("+checking") // New refuses this name, so no other limit has it
		if slices.ContainsFunc(l.limits[:n], func(l Limit) bool { return l.rule.PerUser }) {
			slots = slots.PerUser()
		}
		l.limits = slices.Insert(l.limits, n, slots)
		l.smallest = least(enforced(l.limits))
		l.slotWaiters = cmp.Or(l.slotWaiters, newSlotWaiters())
		l.refundable = true
	}
	for i := range l.limits {
		if x := &l.limits[i]; x.rule.Ban == nil && !x.rule.TakesSlots() {
			x.mods |= modFailures
			*x = x.derived()
		}
	}
	return nil
}
