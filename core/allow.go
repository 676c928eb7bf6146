package core

// Allow, and All for several subjects: from the arguments to the store.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tailcut/tailcut/core/machine"
)

// The errors of a call with invalid arguments.
var (
	ErrNoUser   = errors.New("core: the user is empty")
	ErrNoAction = errors.New("core: the action is empty")
	ErrCost     = errors.New("core: the cost is negative")
)

// Allow reports whether user may do action now, and if so charges one unit.
//
// An error means that there is no decision. It is [ErrNoUser], [ErrNoAction], the
// context's own error if ctx was done, or the store's error. A decision about [InFlight] does not end
// with ctx, or a slot could be taken of which nobody knows. The store's own timeout ends it.
func (l *Limiter) Allow(ctx context.Context, user, action string) (Decision, error) {
	return l.AllowN(ctx, user, action, 1)
}

// AllowN is [Limiter.Allow] for an action that costs n units. It charges all of them or
// none. A cost above the quota of a limit is refused with [Never] and writes nothing. A
// cost of 0 is allowed unless the user is banned, and has the numbers of [Limiter.Peek]:
// where Peek refuses, it has no RetryAfter and no Reason. A negative cost is [ErrCost]. So is one above
// 1,000,000 that is within the quota of a [MovingWindow], because to write so many units would delay all users.
func (l *Limiter) AllowN(ctx context.Context, user, action string, n int) (d Decision, err error) {
	if err = l.check(ctx, user, action, n); err != nil {
		return d, err
	}
	if n == 0 {
		return l.allowNothing(ctx, user, action)
	}
	err = l.take(ctx, l.charge(user, action, n, machine.ModeCharge), &d)
	return d, err
}

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
// about the users together, such as a Cluster with their keys in different slots, is first asked to look at
// all subjects at once. If one refuses, it records that, and no other one is charged. If all have room, they are
// charged one after the other, the one with the least room first. If one refuses nonetheless, since others
// have raced for its room, or fails, All gives back what it has charged, as [Limiter.Refund] and
// [Limiter.Release] do, and the refusal is not recorded. So no limit is exceeded. But until a charge has been
// given back, other callers may be refused for it. It stays if it cannot be given back, because the process
// ends for example. With
// redisstore.Options.Tag a user and their organization are in one slot. If a store can neither decide
// together nor refund, the error matches ErrConfig.
func All(ctx context.Context, subjects ...Subject) (d Decision, err error) {
	if err = checkSubjects(ctx, subjects); err == nil {
		err = decide(ctx, machine.Ask{}, subjects, &d)
	}
	return d, err
}

// checkSubjects is for the arguments of All.
func checkSubjects(ctx context.Context, subjects []Subject) error {
	if len(subjects) == 0 {
		return configError("core: All: no subjects; give at least one, such as limiter.For(user, action)")
	}
	for i := range subjects {
		s := &subjects[i]
		if err := s.limiter.check(ctx, s.user, s.action, s.cost); err != nil {
			return err
		}
		for j := range i {
			o := &subjects[j]
			switch {
			case !s.limiter.SharesStore(o.limiter):
				return configError("core: All: the limiters have different stores; make them with one")
			case s.SharesState(*o):
				return configError(fmt.Sprintf("core: All: the subjects %d and %d would share one state; tell their limits apart with Named, and use one BanPolicy", j, i))
			}
		}
	}
	return nil
}

var (
	errZeroLimiter = configError("core: a zero Limiter; make limiters with core.New")
	errNoContext   = configError("core: the context is nil; pass the request's, or context.Background()")
)

// check is for the arguments of a call.
func (l *Limiter) check(ctx context.Context, user, action string, cost int) error {
	switch {
	case l == nil || l.store == nil:
		return errZeroLimiter
	case ctx == nil:
		return errNoContext
	case user == "":
		return ErrNoUser
	case action == "":
		return ErrNoAction
	case ctx.Err() != nil:
		return ctx.Err()
	case cost < 0:
		return ErrCost
	case cost > mostUnits && l.full > 0 && int64(cost) <= l.smallest:
		return errLargeCost
	}
	return nil
}

// mostUnits is the highest cost of a MovingWindow, which writes each unit. Redis takes some 20 ms for so many.
const mostUnits = 1_000_000

var errLargeCost error = costError("core: a cost above 1,000,000 of a MovingWindow would delay all users; split it, or use FixedWindow, TokenBucket or Funnel")

// A costError matches [ErrCost].
type costError string

func (e costError) Error() string { return string(e) }

func (costError) Is(target error) bool { return target == ErrCost }

// full is after how many units, charged in portions, each MovingWindow of more than mostUnits writes no more: its
// quota, and as much debt. It is 0 without such a limit.
func full(limits []Limit) int64 {
	var units int64
	for i := range limits {
		if l := &limits[i]; l.rule.WritesUnits() && l.max > mostUnits {
			units = max(units, 2*int64(l.max))
		}
	}
	return units
}

// portion is how many of n units one call charges, if calls before it have charged so many.
func portion(n, charged, full int64) int64 {
	if charged < full {
		return min(n, mostUnits)
	}
	return n
}

// SharesStore reports whether both limiters have one store, so that [All] can decide about subjects of both.
func (l *Limiter) SharesStore(other *Limiter) bool {
	if l == nil || other == nil {
		return false
	}
	return l == other || reflect.ValueOf(l.store).Comparable() && l.store == other.store
}

// SharesState reports whether two subjects have one user, and limits or a [BanPolicy] with one state: [All]
// does not decide about these together.
func (s Subject) SharesState(o Subject) bool {
	if s.user != o.user || s.limiter == nil || o.limiter == nil {
		return false
	}
	for i := range s.limiter.limits {
		l := &s.limiter.limits[i]
		for j := range o.limiter.limits {
			other := &o.limiter.limits[j]
			if l.sharesState(other) && (l.rule.PerUser || s.action == o.action) {
				return true
			}
		}
	}
	return false
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
	c := charge(subjects, ask)
	l := subjects[0].limiter
	for i := range subjects[1:] {
		if !joins(l.store, c.User, subjects[i+1].user) {
			*d, err = inTurn(ctx, &c, subjects)
			return err
		}
	}
	err = l.take(ctx, c, d)
	if d.Subject < 0 || d.Subject >= len(subjects) { // by a foreign store
		d.Subject = 0
	}
	return err
}

// charge is the charge of one subject. One that can never pass writes nothing.
func (l *Limiter) charge(user, action string, cost int, mode machine.Mode) Charge {
	if int64(cost) > l.smallest {
		mode = machine.ModePeek
	}
	return Charge{user, action, int64(cost), l.terms[mode]}
}

// charge is the charge of all subjects.
func charge(subjects []Subject, ask machine.Ask) Charge {
	receipt := ask.Ahead > 0 // a reserved turn may be given back
	for i := range subjects {
		s := &subjects[i]
		receipt = receipt || s.limiter.refundable
		if s.never() {
			ask.Mode = machine.ModePeek
		}
	}
	var c Charge
	for i := range slices.Backward(subjects) {
		s, next := &subjects[i], (*Charge)(nil)
		if i+1 < len(subjects) {
			further := c
			next = &further
		}
		c = s.limiter.charge(s.user, s.action, s.cost, ask.Mode)
		if ask.Ahead > 0 || len(subjects) > 1 { // not the limiter's own terms
			t := *c.terms
			t.Ask, t.Receipt, t.Next = ask, receipt && ask.Mode.Asks(), next
			c.terms = &t
		}
	}
	return c
}

// take asks the store and fills in d. If the store returns an error, its decision is ignored.
//
// A charge that takes slots does not end with its caller: nobody would know of the slots, and they would
// stay taken until their leases end.
func (l *Limiter) take(ctx context.Context, c Charge, d *Decision) (err error) {
	if c.takesSlots() {
		ctx = context.WithoutCancel(ctx)
	}
	if *d, err = l.store.Take(ctx, c); err != nil {
		*d = Decision{}
	}
	return err
}

// never reports whether the cost can never pass.
func (s *Subject) never() bool { return int64(s.cost) > s.limiter.smallest }

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
		if err != nil {
			return Decision{}, err
		}
		if its.Subject = i; !its.Allowed {
			return its, nil
		}
		if i == len(charged) || its.claim().binds(d.claim()) {
			d = its
		}
	}
	if charged == nil {
		return d, nil
	}
	var its Decision
	if err = decide(ctx, ask, charged, &its); err != nil {
		return Decision{}, err
	}
	its.Subject = at[its.Subject]
	if its.claim().binds(d.claim()) || its.Subject < d.Subject && !d.claim().binds(its.claim()) {
		return its, nil
	}
	d.receipt = its.receipt
	return d, nil
}

// allowNothing decides a cost of 0, which only a ban refuses.
func (l *Limiter) allowNothing(ctx context.Context, user, action string) (Decision, error) {
	d, readings, err := l.look(ctx, user, action)
	switch {
	case err != nil || d.Allowed:
	case d.Reason == ReasonBanned:
		if ban := l.status(&d, readings).Ban; ban.Banned {
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
// the charge. If n is less than 1, the error is [ErrCost].
func (l *Limiter) Surcharge(ctx context.Context, user, action string, n int) (d Decision, err error) {
	if n < 1 {
		return d, ErrCost
	}
	if err = l.check(ctx, user, action, 1); err != nil {
		return d, err
	}
	for left := int64(n); err == nil && left > 0; {
		units := portion(left, int64(n)-left, l.full)
		err = l.take(ctx, Charge{user, action, units, l.terms[machine.ModeForce]}, &d)
		left -= units
	}
	return d, err
}
