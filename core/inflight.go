package core

// InFlight: at most so many actions at the same time.

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

const defaultSlotLease = time.Minute

// InFlight admits at most n actions at the same time. n from 1 to 10,000. An action that is
// admitted takes a slot, one for each unit of its cost, and [Limiter.Release] frees it when the action has
// ended:
//
//	streams, err := core.New(store, core.InFlight(3), core.SlidingWindow(100, time.Minute))
//	d, err := streams.Allow(ctx, "alice", "stream")
//	if err == nil && d.Allowed {
//		defer streams.Release(context.WithoutCancel(ctx), d)
//	}
//
// If a process dies, its slots are free when their leases end, a minute after the action began: see
// [Limit.Lease]. A slot whose lease has ended is free though its action goes on, so an action that may
// take longer needs [Limiter.Renew], or a longer lease.
//
// A [Limiter.Surcharge] takes no slot. A refusal by InFlight alone counts towards no ban.
//
// The algorithm is a counting semaphore with leases.
func InFlight(n int) Limit {
	return Limit{kind: machine.KindInFlight, max: n, period: defaultSlotLease, shape: inFlight{}}.derived()
}

// Lease sets for how long a slot of [InFlight] is taken at most if it is neither released nor renewed. d
// from 1 ms to 365 days, in whole microseconds. [Limit.Leased] is for the other limits: it lets a
// process take units in advance.
func (l Limit) Lease(d time.Duration) Limit {
	l.mods |= modSlotLease
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

// takeSlots reports whether one of the limits is InFlight.
func takeSlots(limits []Limit) bool {
	return slices.ContainsFunc(limits, func(l Limit) bool { return l.rule.TakesSlots() })
}

func shortestLease(limits []Limit) time.Duration {
	lease := time.Duration(0)
	for i := range limits {
		if x := &limits[i]; x.rule.TakesSlots() && (lease == 0 || x.period < lease) {
			lease = x.period
		}
	}
	return lease
}
