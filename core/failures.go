package core

// OnlyFailures: limits of attempts that may turn out right, such as logins.

import (
	"cmp"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// OnlyFailures makes a limiter of attempts that may turn out right, such as logins. Its limits
// count only the attempts that have failed.
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
// With n for the smallest of the quotas:
//   - [Limiter.Allow] lets an attempt pass if all limits have room for it. It charges nothing. The
//     attempt takes a slot until [Limiter.Release].
//   - [Limiter.Surcharge] counts a failure. Call it before Release. Count every attempt that was
//     not found right, also if the check returns an error or panics, as above: a client can cause
//     that, for example by disconnecting while its password is checked.
//   - After n failures all attempts are refused. These refusals count towards a [BanPolicy].
//   - At most n attempts are in progress. So of wrong guesses at the same time fewer than 2n are
//     checked, if the check has ended when Release is called. A refusal that is due only to
//     attempts in progress has [ReasonInFlight] and counts towards no BanPolicy: the caller may try
//     again soon.
//
// The slots are those of an InFlight(n), at most 10,000, which comes last among the enforced
// limits. Its name is "+checking", which no other limit can have. If the limiter has an [InFlight]
// already, that one bounds the attempts instead. Refund and Settle change nothing, because an
// attempt charges nothing.
type OnlyFailures struct{}

func (OnlyFailures) extend(l *Limiter) error {
	if admitsNothing(enforced(l.limits)) {
		return errNothing("With", "OnlyFailures")
	}
	l.limits = slices.Clone(l.limits)
	n := len(enforced(l.limits))
	if shortestLease(l.limits[:n]) == 0 {
		slots := InFlight(int(min(l.smallest, int64(machine.KindInFlight.Most())))).Named("+checking") // [New] refuses the name
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
