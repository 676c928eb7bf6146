package core

// Allow, Peek and Surcharge, and All and PeekAll for several subjects.

import (
	"context"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// Allow reports whether user may do action now, and if so charges one unit.
//
// An error means that there is no decision. It is [ErrNoUser], [ErrNoAction], the
// context's own error if ctx was done, or the store's error. A decision about [InFlight] does not end
// with ctx, or a slot could be taken of which nobody knows. The store's own timeout ends it.
func (l *Limiter) Allow(ctx context.Context, user, action string) (d Decision, err error) {
	err = l.allow(ctx, user, action, 1, &d)
	return d, err
}

// AllowN is [Limiter.Allow] for an action that costs n units. It charges all of them or
// none. A cost above the quota of a limit is refused with [Never] and writes nothing. A
// cost of 0 is allowed unless the user is banned, and has the numbers of [Limiter.Peek]:
// where Peek refuses, it has no RetryAfter and no Reason. A negative cost is [ErrCost]. So is one above
// 1,000,000 that is within the quota of a [MovingWindow], because to write so many units would delay all users.
func (l *Limiter) AllowN(ctx context.Context, user, action string, n int) (d Decision, err error) {
	err = l.allow(ctx, user, action, n, &d)
	return d, err
}

// allow is AllowN. It fills in d, which a caller returns without a further copy.
func (l *Limiter) allow(ctx context.Context, user, action string, n int, d *Decision) (err error) {
	switch err = l.check(ctx, user, action, n); {
	case err != nil:
	case n == 0:
		*d, err = l.allowNothing(ctx, user, action)
	default:
		err = l.take(ctx, &Charge{user, action, int64(n), l.terms[machine.ModeCharge]}, d)
	}
	return err
}

// All reports whether all subjects may act now. If so each is charged, and if not none is:
//
//	d, err := core.All(ctx, perUser.For("alice", "post"), perOrg.For("7", "org-post"))
//
// With one action for both, user 7 and organization 7 would share counts and bans.
//
// The decision is that of the subject that binds, whose index is Decision.Subject. Each subject that
// refuses records that as in a call of its own, for a [BanPolicy] too. The others record nothing. If
// one of the costs can never pass, nothing is written. If one of the limiters is [Refundable], all
// charges of the decision can be given back, by [Limiter.Refund] of any of the limiters.
//
// The limiters must have the same store: see [Limiter.SharesStore]. No two subjects may share a state.
// Otherwise the error matches [ErrConfig]. The other errors are those of [Limiter.AllowN].
//
// In process, and on one Redis server, the decision is one atomic step. A store that cannot decide about the
// users together, such as a Cluster with their keys in different slots, is first asked to look at all subjects
// at once. If one refuses, it records that, and no other one is charged. If all have room, they are charged one
// after the other, the one with the least room first. If one refuses nonetheless, since others have raced for
// its room, or fails, All gives back what it has charged, as [Limiter.Refund] and [Limiter.Release] do, and the
// refusal is not recorded. So no limit is exceeded. But until a charge has been given back, other callers may
// be refused for it. It stays if it cannot be given back, because the process ends for example. With
// redisstore.Options.Tag a user and their organization are in one slot. If a store can neither decide together
// nor refund, the error matches ErrConfig.
func All(ctx context.Context, subjects ...Subject) (d Decision, err error) {
	if err = checkSubjects(ctx, subjects); err == nil {
		err = decide(ctx, machine.Ask{}, subjects, &d)
	}
	return d, err
}

// decide decides about subjects that checkSubjects has found valid. A cost of 0 is not charged, and only a ban
// refuses it.
func decide(ctx context.Context, ask machine.Ask, subjects []Subject, d *Decision) (err error) {
	for i := range subjects {
		if subjects[i].cost == 0 {
			*d, err = decideFree(ctx, ask, subjects)
			return err
		}
	}
	c := jointCharge(subjects, ask)
	l := subjects[0].limiter
	for i := range subjects[1:] {
		if !joins(l.store, c.User, subjects[i+1].user) {
			*d, err = inTurn(ctx, &c, subjects)
			return err
		}
	}
	return takeAll(ctx, &c, subjects, d)
}

// takeAll is [Limiter.take] for several subjects.
func takeAll(ctx context.Context, c *Charge, subjects []Subject, d *Decision) (err error) {
	if slices.ContainsFunc(subjects, func(s Subject) bool { return s.limiter.slotWaiters != nil }) {
		ctx = c.outlives(ctx)
	}
	var r *Record
	if *d, r, err = subjects[0].limiter.store.Take(ctx, *c); err != nil {
		*d = Decision{}
		return err
	}
	if d.Subject < 0 || d.Subject >= len(subjects) { // by a foreign store
		d.Subject = 0
	}
	if r != nil {
		d.keep(r, func(i int) *slotWaiters { return subjects[min(i, len(subjects)-1)].limiter.slotWaiters })
	}
	return nil
}

// decideFree decides about subjects of which some cost nothing. It asks those first.
func decideFree(ctx context.Context, ask machine.Ask, subjects []Subject) (d Decision, err error) {
	var charged []Subject
	var at []int
	for i, s := range subjects {
		if s.cost > 0 {
			charged, at = append(charged, s), append(at, i)
			continue
		}
		free, err := s.limiter.allowNothing(ctx, s.user, s.action)
		if err != nil {
			return Decision{}, err
		}
		if free.Subject = i; !free.Allowed {
			return free, nil
		}
		if i == len(charged) || free.claim().binds(d.claim()) {
			d = free
		}
	}
	if charged == nil {
		return d, nil
	}
	var rest Decision
	if err = decide(ctx, ask, charged, &rest); err != nil {
		return Decision{}, err
	}
	rest.Subject = at[rest.Subject]
	if rest.claim().binds(d.claim()) || rest.Subject < d.Subject && !d.claim().binds(rest.claim()) {
		return rest, nil
	}
	d.receipt = rest.receipt
	return d, nil
}

// allowNothing decides a cost of 0, which only a ban refuses.
func (l *Limiter) allowNothing(ctx context.Context, user, action string) (Decision, error) {
	d, r, err := l.look(ctx, user, action)
	switch {
	case err != nil || d.Allowed:
	case d.Reason == ReasonBanned:
		if ban := l.statusOf(&d, r).Ban; ban.Banned {
			d.RetryAfter = ban.RetryAfter
		}
	default:
		d.Allowed, d.RetryAfter, d.Reason = true, 0, ""
	}
	return d, err
}

// Peek reports whether one action would pass, and the present numbers. It charges nothing
// and writes nothing.
func (l *Limiter) Peek(ctx context.Context, user, action string) (Decision, error) {
	return PeekAll(ctx, l.For(user, action))
}

// PeekAll reports whether [All] would allow, and the present numbers. It charges and writes nothing. A
// cost of 0 is asked about as 1.
func PeekAll(ctx context.Context, subjects ...Subject) (d Decision, err error) {
	if err := checkSubjects(ctx, subjects); err != nil {
		return Decision{}, err
	}
	subjects = slices.Clone(subjects)
	for i := range subjects {
		subjects[i].cost = max(subjects[i].cost, 1)
	}
	err = decide(ctx, machine.Ask{Mode: machine.ModePeek}, subjects, &d)
	return d, err
}

// Surcharge charges up to n units for an action that has already happened, such as a wrong
// password. If there is less room, the limit is used up, to the last fraction of a unit. A
// full ElasticWindow keeps its end, and a full SlidingWindow with CountRefused records
// nothing. Surcharge is always allowed, ignores a [BanPolicy], and returns the numbers after
// the charge. If n is less than 1, the error matches [ErrCost].
func (l *Limiter) Surcharge(ctx context.Context, user, action string, n int) (d Decision, err error) {
	if n < 1 {
		return d, costError("core: Surcharge: the cost is less than 1")
	}
	if err = l.check(ctx, user, action, 1); err != nil {
		return d, err
	}
	for left := int64(n); err == nil && left > 0; {
		units := portion(left, int64(n)-left, l.portioned)
		err = l.take(ctx, &Charge{user, action, units, l.terms[machine.ModeForce]}, &d)
		left -= units
	}
	return d, err
}
