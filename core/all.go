package core

// All: one decision about one or more subjects, such as a user and their organization.

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// A Subject is a user and an action of a limiter, for [All]. [Limiter.For] makes it.
type Subject struct {
	limiter      *Limiter
	user, action string
	cost         int
}

// For returns the subject of user and action, for [All]. The action costs one unit.
func (l *Limiter) For(user, action string) Subject { return Subject{l, user, action, 1} }

// Cost returns the subject for an action that costs n units: see [Limiter.AllowN].
func (s Subject) Cost(n int) Subject {
	s.cost = n
	return s
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
// In process, and on one Redis server, the decision is one atomic step. A store that cannot decide
// about the users together, such as a Cluster with their keys in different slots, is asked about one
// subject after the other, first about those whose limiters refused last. If one refuses or fails, All gives
// back what it has charged, as [Limiter.Refund] and [Limiter.Release] do, and does not ask about the
// others. So no limit is exceeded. But until a charge has been given back, other callers may be refused
// for it. It stays if it cannot be given back, because the process ends for example. With
// redisstore.Options.Tag a user and their organization are in one slot. If a store can neither decide
// together nor refund, the error matches ErrConfig.
func All(ctx context.Context, subjects ...Subject) (d Decision, err error) {
	if err = checkSubjects(ctx, subjects); err == nil {
		err = decide(ctx, machine.Ask{}, subjects, &d)
	}
	return d, err
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

// decide decides about subjects that checkSubjects has found valid. A cost of 0 is not charged, and only a ban
// refuses it.
func decide(ctx context.Context, ask machine.Ask, subjects []Subject, d *Decision) (err error) {
	for i := range subjects {
		if subjects[i].cost == 0 {
			*d, err = decideFree(ctx, ask, subjects)
			return err
		}
	}
	var c Charge
	c.of(subjects, ask)
	l := subjects[0].limiter
	for i := range c.And {
		if !joins(l.store, c.User, c.And[i].User) {
			*d, err = inTurn(ctx, &c, subjects)
			return err
		}
	}
	err = l.take(ctx, &c, d)
	if d.Subject < 0 || d.Subject >= len(subjects) { // by a foreign store
		d.Subject = 0
	}
	return err
}

// of makes a zero Charge that of subjects. A charge that can never pass writes nothing.
func (c *Charge) of(subjects []Subject, ask machine.Ask) {
	c.Ask, c.Receipt = ask, ask.Ahead > 0 // a reserved turn may be given back
	for i := range subjects {
		s := &subjects[i]
		c.Receipt = c.Receipt || s.limiter.refundable
		if int64(s.cost) > s.limiter.smallest {
			c.Mode = machine.ModePeek
		}
	}
	if further := len(subjects) - 1; further > 0 {
		c.And = make([]Charge, further)
	}
	for i := range subjects {
		s, own := &subjects[i], c.Subject(i)
		own.User, own.Action, own.Limits, own.slotWaiters = s.user, s.action, s.limiter.limits, s.limiter.slotWaiters
		if i > 0 {
			own.Ask, own.Receipt = c.Ask, c.Receipt
		}
		own.Cost = int64(s.cost)
	}
}

// take asks the store and fills in d. If the store returns an error, its decision is ignored.
//
// A charge that takes slots does not end with its caller: nobody would know of the slots, and they would
// stay taken until their leases end.
func (l *Limiter) take(ctx context.Context, c *Charge, d *Decision) (err error) {
	if c.takesSlots() {
		ctx = context.WithoutCancel(ctx)
	}
	if *d, err = l.store.Take(ctx, *c); err != nil {
		*d = Decision{}
	}
	return err
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
		its, err := s.limiter.allowNothing(ctx, s.user, s.action)
		if its.Subject = i; err != nil || !its.Allowed {
			return its, err
		}
		if i == len(charged) || its.binds(&d) {
			d = its
		}
	}
	if charged == nil {
		return d, nil
	}
	var its Decision
	err = decide(ctx, ask, charged, &its)
	if its.Subject = at[its.Subject]; err != nil || its.binds(&d) {
		return its, err
	}
	d.receipt = its.receipt
	return d, nil
}

// checkSubjects is for the arguments of All.
func checkSubjects(ctx context.Context, subjects []Subject) error {
	if len(subjects) == 0 {
		return configError("core: All: no subjects; give at least one, such as limiter.For(user, action)")
	}
	for i := range subjects {
		s := &subjects[i]
		if err := s.limiter.check(ctx, s.user, s.action); err != nil {
			return err
		}
		if s.cost < 0 {
			return ErrCost
		}
		for j := range i {
			o := &subjects[j]
			switch {
			case !s.limiter.SharesStore(o.limiter):
				return configError("core: All: the limiters have different stores; make them with one")
			case s.user == o.user && s.shares(o):
				return configError(fmt.Sprintf("core: All: the subjects %d and %d would share one state; tell their limits apart with Named, and use one BanPolicy", j, i))
			}
		}
	}
	return nil
}

// SharesStore reports whether both limiters have one store, so that [All] can decide about subjects of both.
func (l *Limiter) SharesStore(other *Limiter) bool {
	if l == nil || other == nil {
		return false
	}
	return l == other || reflect.ValueOf(l.store).Comparable() && l.store == other.store
}

// shares reports whether two subjects of one user share a state.
func (s *Subject) shares(o *Subject) bool {
	for i := range s.limiter.limits {
		l := &s.limiter.limits[i]
		for j := range o.limiter.limits {
			other := &o.limiter.limits[j]
			if l.sharesState(other) && (l.perUser || s.action == o.action) {
				return true
			}
		}
	}
	return false
}
