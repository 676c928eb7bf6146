package core

// Limiter: limits over a store.

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/internal/stores"
	"github.com/tailcut/tailcut/core/machine"
)

// A Limiter is a set of limits over a store. An action passes if all limits have room for it and
// the user is not banned. A refused action is charged to no limit, but some limits record the
// refusal: see [Limit.CountRefused], [ElasticWindow] and [BanPolicy]. A Limiter is immutable and
// safe for use by many goroutines.
//
// Make it once, at start-up. If a program makes a limiter and its memorystore for every request, no
// user is limited. A limiter for each tenant may be made on the tenant's first request, if it is
// kept: see [PerKey].
type Limiter struct {
	store      Store
	limits     []Limit // enforced limits, shadow limits, and the limit of the ban policy
	smallest   int64   // the least enforced quota, 0 for Nothing: a higher cost can never pass
	portioned  int64   // see portionedUntil
	refundable bool
	terms      [machine.ModeForce + 1]*Terms // the terms of its charges, by mode
	status     *Terms                        // the terms of a Status

	// Limiters that With has derived share these.
	waitQueues  *waitQueues
	slotWaiters *slotWaiters // nil without InFlight
}

// New makes a limiter of one or more limits. It returns an error, for example, if the store is nil
// or refuses the limits, if no limit is enforced, if a number is out of bounds, or if two limits
// would share one state. The error matches [ErrConfig] and says what to change.
func New(store Store, limits ...Limit) (*Limiter, error) {
	if stores.IsNil(store) {
		return nil, configError("core: New: the store is nil; use memorystore.New(nil)")
	}
	if len(limits) == 0 {
		return nil, configError("core: New: no limits; give at least one, such as SlidingWindow(5, time.Minute)")
	}
	l := &Limiter{store: store, limits: slices.Clone(limits), waitQueues: newWaitQueues()}
	slices.SortStableFunc(l.limits, func(a, b Limit) int { return rank(&a) - rank(&b) })
	if l.limits[0].rule.Shadow {
		return nil, configError("core: New: all limits are shadow limits; for a dry run of a whole limiter, give it the store core.Shadow(store)")
	}
	for i := range l.limits {
		if err := l.limits[i].validate(); err != nil {
			return nil, err
		}
		for j := range i {
			if l.limits[j].sharesState(&l.limits[i]) {
				return nil, configError(fmt.Sprintf("core: New: %s and %s would share one state; tell them apart with Named", &l.limits[j], &l.limits[i]))
			}
		}
	}
	l.smallest, l.portioned = least(enforced(l.limits)), portionedUntil(l.limits)
	if l.smallest == 0 && len(enforced(l.limits)) > 1 {
		return nil, errNothing("New", "another limit")
	}
	if shortestLease(l.limits) > 0 {
		l.slotWaiters = newSlotWaiters()
		l.refundable = true // Release needs a receipt
	}
	if err := l.ready(); err != nil {
		return nil, err
	}
	return l, nil
}

// ready asks the store whether it can serve the limiter, and makes the terms of its charges.
func (l *Limiter) ready() error {
	if err := accept(l.store, l.limits); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	l.makeTerms()
	return nil
}

func (l *Limiter) makeTerms() {
	for mode := range l.terms {
		t := Terms{Limits: l.limits, Ask: machine.Ask{Mode: machine.Mode(mode)}}
		if t.Receipt = l.refundable && t.Mode.NeedsRoom(); t.Mode == machine.ModeForce {
			t.Limits = l.unbanned()
		}
		l.terms[mode] = &t
	}
	status := *l.terms[machine.ModePeek]
	status.Receipt = true
	l.status = &status
}

// rank orders a limiter's limits: enforced limits first, then shadow limits, then that of the ban
// policy.
func rank(l *Limit) int {
	switch {
	case l.rule.Ban != nil:
		return 2
	case l.rule.Shadow:
		return 1
	}
	return 0
}

// enforced returns the limits that can refuse, without that of the ban policy. They come first.
func enforced(limits []Limit) []Limit {
	for i := range limits {
		if rank(&limits[i]) > 0 {
			return limits[:i]
		}
	}
	return limits
}

// least returns the least quota of the limits. Without limits it returns the highest number.
func least(limits []Limit) int64 {
	quota := int64(math.MaxInt64)
	for i := range limits {
		quota = min(quota, limits[i].rule.Max)
	}
	return quota
}

// errNothing returns the error for what cannot be combined with Nothing.
func errNothing(call, what string) error {
	return configError(fmt.Sprintf("core: %s: Nothing() refuses every action, so %s would have no effect; remove one of the two", call, what))
}

// An Option is what [Limiter.With] adds: a [BanPolicy], [OnlyFailures] or [Refundable].
type Option interface {
	extend(*Limiter) error
}

// With returns a new limiter that also has the options. Both limiters share the states of the
// limits. All errors match [ErrConfig].
func (l *Limiter) With(options ...Option) (*Limiter, error) {
	if l == nil || l.store == nil {
		return nil, errZeroLimiter
	}
	derived := *l
	for _, x := range options {
		if x == nil {
			return nil, configError("core: With: an option is nil; leave it out")
		}
		if err := x.extend(&derived); err != nil {
			return nil, err
		}
	}
	if err := derived.ready(); err != nil {
		return nil, err
	}
	return &derived, nil
}

var errZeroLimiter = configError("core: a zero Limiter; make limiters with core.New")

// Must returns l. If err is not nil, it panics. It is for limiters whose numbers are constants in
// the code.
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

// Limits returns the limiter's enforced limits. Their indices are those of [Decision].Binding.
func (l *Limiter) Limits() []Limit {
	if l == nil {
		return nil
	}
	return slices.Clone(enforced(l.limits))
}

// unbanned returns the limiter's limits without that of the ban policy.
func (l *Limiter) unbanned() []Limit { return l.limits[:len(l.limits)-len(l.ban())] }

// ban returns the limit of the ban policy as a slice of one limit, or nil without a policy.
func (l *Limiter) ban() []Limit {
	if i := len(l.limits) - 1; i >= 0 && l.limits[i].rule.Ban != nil {
		return l.limits[i:]
	}
	return nil
}

// Lease returns the shortest lease of the limiter's InFlight limits, shadow limits included, or 0
// if it has none. A slot that is renewed more often than that stays taken.
func (l *Limiter) Lease() time.Duration {
	if l == nil {
		return 0
	}
	return shortestLease(l.limits)
}

// mostUnits is the highest cost that one call charges to a MovingWindow, which writes each unit
// separately. While a store writes the units, other users wait.
const mostUnits = 1_000_000

// portionedUntil returns how many units of a high charge are charged in portions. If a MovingWindow
// has a quota above mostUnits, the result is twice the quota, because a debt is at most one quota.
// Without such a limit it is 0.
func portionedUntil(limits []Limit) (units int64) {
	for i := range limits {
		if l := &limits[i]; l.rule.WritesUnits() && l.max > mostUnits {
			units = max(units, 2*int64(l.max))
		}
	}
	return units
}
