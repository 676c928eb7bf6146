package core

// Allow, Peek and Surcharge, and All and PeekAll for several subjects.

import (
	"context"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// Allow reports whether user may do action now. If the action is allowed, Allow charges one unit.
//
// An error means that there is no decision. The error is [ErrNoUser], [ErrNoAction], the error of
// ctx if ctx was done, or the store's error. If a limit is an [InFlight], the call does not end
// with ctx, because it could take a slot that no caller knows of. The store's own timeout ends it.
func (l *Limiter) Allow(ctx context.Context, user, action string) (d Decision, err error) {
	err = l.allow(ctx, user, action, 1, &d)
	return d, err
}

// AllowN is [Limiter.Allow] for an action that costs n units. It charges all of the units or none.
// These costs are special:
//   - Above the quota of a limit: the action is refused with [Never], and nothing is written.
//   - 0: the action is allowed unless the user is banned. The numbers are those of [Limiter.Peek].
//     If Peek would refuse, they come without its RetryAfter and Reason.
//   - Negative: the error is [ErrCost].
//   - Above 1,000,000 and within the quota of a [MovingWindow]: the error is [ErrCost], because
//     writing so many units would delay all users.
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

// All reports whether all subjects may act now. If all may, each is charged. Otherwise none is
// charged:
//
//	d, err := core.All(ctx, perUser.For("alice", "post"), perOrg.For("7", "org-post"))
//
// If both had the same action, user 7 and organization 7 would share counts and bans.
//
//   - The decision is that of the subject that binds: Decision.Subject is its index.
//   - A subject that refuses records its refusal as [Limiter.Allow] does, for its [BanPolicy] too.
//     The other subjects record nothing. If the cost of any subject can never pass, no subject
//     records.
//   - If one of the limiters is [Refundable], [Limiter.Refund] of any of the limiters gives back
//     the charges of all subjects.
//   - All limiters have one store: see [Limiter.SharesStore]. No two subjects share a state.
//     Otherwise the error matches [ErrConfig]. The other errors are those of [Limiter.AllowN].
//
// In process, and on one Redis server, the decision is one atomic step. On a Cluster the subjects
// may be on different servers, unless redisstore.Options.Tag keeps a user and their organization
// together. A store that cannot decide about all subjects in one step does this:
//   - It looks at all subjects. If one refuses, that refusal is recorded, and nothing is charged.
//   - If all have room, it charges one after the other, and begins with the one that has the least
//     room.
//   - If one then refuses, because another caller was faster, or fails, All gives back the charges
//     made so far, and the refusal is not recorded.
//
// So no limit is exceeded. Until a charge has been given back, other callers may be refused for it.
// If it cannot be given back, for example because the process ends, it stays. A store that can
// neither decide in one step nor refund returns an error that matches ErrConfig.
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
		d.keep(r, func(i int) (*Terms, *slotWaiters) { return subjects[min(i, len(subjects)-1)].limiter.kept() })
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

// PeekAll reports whether [All] would allow, and the present numbers. It charges and writes
// nothing. A subject with a cost of 0 is decided as if its cost were 1.
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
// password. It is always allowed, ignores a [BanPolicy], and returns the numbers after the charge.
// If a limit has room for less than n units, Surcharge charges what there is room for, down to the
// last fraction of a unit. It does not extend a full ElasticWindow, and records nothing in a full
// SlidingWindow with CountRefused. If n is less than 1, the error matches [ErrCost].
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
