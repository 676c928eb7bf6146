package core

// OnlyFailures: limits of attempts that may turn out right, such as logins.

import (
	"cmp"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// OnlyFailures makes a limiter of attempts that may turn out right, such as logins: its limits count
// failures only.
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
// Allow lets an attempt pass if all limits have room for it, and charges nothing. Instead the attempt takes
// a slot, until [Limiter.Release]. [Limiter.Surcharge] counts a failure; call it before Release. An attempt
// that is right counts nothing. Count every other one, also if the check has an error or panics, as above: a client
// can cause that, for example by hanging up while its password is checked.
//
// At most as many attempts are in progress as the smallest of the quotas, n. So of wrong guesses at the same
// time fewer than twice n are checked, if the check has ended when Release is called. A refusal that is due to attempts in progress alone has
// [ReasonInFlight], and counts towards no [BanPolicy]: the caller may try again soon. After n failures all
// attempts are refused, and these refusals count.
//
// The slots are those of an InFlight(n), at most 10,000, which comes last among the enforced limits. Its name is
// "+checking", which no other limit can have. If the limiter has an [InFlight] of its own, that bounds the attempts instead. Refund and
// Settle change nothing, because an attempt charges nothing.
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
