package core

// InFlight: a limit of actions at the same time.

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

const defaultSlotLease = time.Minute

// InFlight admits at most n actions at the same time. n is from 1 to 10,000. An admitted action
// takes a slot for each unit of its cost. When the action has ended, [Limiter.Release] frees the
// slots:
//
//	streams, err := core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute))
//	d, err := streams.Allow(ctx, "alice", "stream")
//	if err == nil && d.Allowed {
//		defer streams.Release(context.WithoutCancel(ctx), d)
//	}
//
// If a slot is not released, for example because the process has died, it becomes free when its
// lease ends. The lease is a minute from the beginning of the action, or from the last
// [Limiter.Renew]. [Limit.Lease] sets another length. If an action may take longer than the lease,
// set a longer lease or call [Limiter.Renew]. Otherwise another action may take its slot.
//
// A [Limiter.Surcharge] takes no slot. A refusal by InFlight alone does not count towards a ban.
//
// The algorithm is a counting semaphore with leases.
func InFlight(n int) Limit {
	return Limit{kind: machine.KindInFlight, max: n, period: defaultSlotLease, shape: inFlight{}}.derived()
}

// Lease sets the time after which a slot of [InFlight] becomes free if it is neither released nor
// renewed. d is from 1 ms to 365 days, in whole microseconds. Do not confuse it with
// [Limit.Leased], by which a process takes units of another limit in advance.
func (l Limit) Lease(d time.Duration) Limit {
	l.mods |= modLease
	if l.kind == machine.KindInFlight {
		l.period = d
	}
	return l.derived()
}

// inFlight is the shape of InFlight: a window whose period is the lease.
type inFlight struct{ window }

func (inFlight) text(l *Limit) string { return fmt.Sprintf("%s(%d)", l.kind.Constructor(), l.max) }

func (inFlight) validate(l *Limit, bad badValue) error {
	return cmp.Or(validateMax(l, bad), validatePeriod("lease", l.period, bad))
}

// shortestLease returns the shortest lease of the InFlight limits, or 0 if there are none.
func shortestLease(limits []Limit) (lease time.Duration) {
	for i := range limits {
		if x := &limits[i]; x.rule.TakesSlots() && (lease == 0 || x.period < lease) {
			lease = x.period
		}
	}
	return lease
}
