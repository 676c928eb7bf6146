package core

// All: one decision about several subjects, such as a user and their organization.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

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
// The limiters must have the same store, and no two subjects may share a state. Otherwise the error
// matches [ErrConfig]. The other errors are those of [Limiter.AllowN].
//
// In process, and on one Redis server, the decision is one atomic step. A store that cannot decide
// about the users together, such as a Cluster with their keys in different slots, is asked about one
// subject after the other, first about those that it refused last. If one refuses or fails, All gives
// back what it has charged, as [Limiter.Refund] and [Limiter.Release] do, and does not ask about the
// others. So no limit is exceeded. But until a charge has been given back, other callers may be refused
// for it. It stays if it cannot be given back, because the process ends for example. With
// redisstore.Options.Tag a user and their organization are in one slot. If a store can neither decide
// together nor refund, the error matches ErrConfig.
func All(ctx context.Context, subjects ...Subject) (Decision, error) {
	return decide(ctx, machine.Ask{}, subjects)
}

// PeekAll reports whether [All] would allow, and the present numbers. It charges and writes nothing. A
// cost of 0 is asked about as 1.
func PeekAll(ctx context.Context, subjects ...Subject) (Decision, error) {
	return decide(ctx, machine.Ask{Mode: machine.Peek}, subjects)
}

// WaitAll blocks until [All] allows, for up to the duration most, and at most a year. If that does not
// come in time, or before ctx's deadline, the error is [ErrRefused]. WaitAll waits for RetryAfter and
// asks again, and there is no order among callers. Waiting does not count as an attempt: see
// [Limiter.Wait]. With one subject it is [Limiter.WaitFor].
func WaitAll(ctx context.Context, most time.Duration, subjects ...Subject) (d Decision, err error) {
	if len(subjects) == 1 {
		s := &subjects[0]
		return s.limiter.WaitFor(ctx, most, s.user, s.action, s.cost)
	}
	if err := check(ctx, subjects); err != nil {
		return Decision{}, err
	}
	store := subjects[0].limiter.store
	if s, ok := find[WaitWatcher](store); ok {
		watched, end := s.Waiting(ctx, charge(subjects, machine.Ask{}))
		ctx = watched
		defer func() { end(d, err) }()
	}
	patient := slices.ContainsFunc(subjects, func(s Subject) bool { return s.limiter.recordsRefusals() })
	until := time.Now().Add(min(most, maxPeriod) + time.Microsecond) // a turn exactly at the end is in time
	if end, ok := ctx.Deadline(); ok && end.Before(until) {
		until = end
	}
	for first := time.Now(); ; {
		d, err := decide(ctx, machine.Ask{Patient: patient}, subjects)
		if err != nil || d.Allowed {
			return d, err
		}
		left, slot := time.Until(until), d.Reason == ReasonInFlight // which may be released in time
		if d.RetryAfter >= left && (!slot || left <= 0) {
			if patient { // to record the refusal
				d, err = decide(ctx, machine.Ask{}, subjects)
			}
			if err == nil && !d.Allowed {
				err = ErrRefused
			}
			return d, err
		}
		// Other callers compete for the turn: ask ever more rarely, but in time.
		pause := max(d.RetryAfter, min(time.Since(first)/16, left/2))
		if slot {
			pause = min(d.RetryAfter, slotEvery, left)
		}
		switch err := cmp.Or(sleep(ctx, pause, nil), ctx.Err()); {
		case err == nil:
		case !errors.Is(err, context.DeadlineExceeded):
			return Decision{}, err
		default:
			d, err := decide(context.WithoutCancel(ctx), machine.Ask{Mode: machine.Peek}, subjects)
			if err != nil {
				return Decision{}, err
			}
			if d.Allowed { // too late
				d.Allowed, d.Reason, d.RetryAfter = false, ReasonLimited, time.Microsecond
			}
			return d, ErrRefused
		}
	}
}

// decide decides about subjects. A cost of 0 is not charged, and only a ban refuses it.
func decide(ctx context.Context, ask machine.Ask, subjects []Subject) (d Decision, err error) {
	if err := check(ctx, subjects); err != nil {
		return Decision{}, err
	}
	if ask.Mode == machine.Charge && slices.ContainsFunc(subjects, func(s Subject) bool { return s.cost == 0 }) {
		return decideFree(ctx, ask, subjects)
	}
	l, c := subjects[0].limiter, charge(subjects, ask)
	for i := range c.And {
		if !joins(l.store, c.User, c.And[i].User) {
			return inTurn(ctx, c, l.store)
		}
	}
	d, err = l.take(ctx, c)
	if d.Subject < 0 || d.Subject >= len(subjects) { // by a foreign store
		d.Subject = 0
	}
	return d, err
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
	its, err := decide(ctx, ask, charged)
	if its.Subject = at[its.Subject]; err != nil || its.binds(&d) {
		return its, err
	}
	d.receipt = its.receipt
	return d, nil
}

// check is for the arguments of All.
func check(ctx context.Context, subjects []Subject) error {
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
			case s.limiter != o.limiter && !same(s.limiter.store, o.limiter.store):
				return configError("core: All: the limiters have different stores; make them with one")
			case s.user == o.user && s.shares(o):
				return configError(fmt.Sprintf("core: All: the subjects %d and %d would share one state; tell their limits apart with Named, and use one BanPolicy", j, i))
			}
		}
	}
	return nil
}

// same reports whether two stores are one.
func same(a, b Store) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// shares reports whether two subjects of one user share a state.
func (s *Subject) shares(o *Subject) bool {
	for i := range s.limiter.limits {
		l := &s.limiter.limits[i]
		for j := range o.limiter.limits {
			other := &o.limiter.limits[j]
			if l.identity == other.identity && l.perUser == other.perUser && (l.perUser || s.action == o.action) {
				return true
			}
		}
	}
	return false
}

// charge is the charge of subjects. A charge that can never pass writes nothing.
func charge(subjects []Subject, ask machine.Ask) Charge {
	receipt := false
	for i := range subjects {
		s := &subjects[i]
		receipt = receipt || s.limiter.refundable
		if int64(s.cost) > s.limiter.smallest {
			ask.Mode = machine.Peek
		}
	}
	of := func(s *Subject) Charge {
		c := Charge{User: s.user, Action: s.action, Limits: s.limiter.limits, Ask: ask, Receipt: receipt}
		c.Cost = int64(max(s.cost, 1)) // a Peek has no other
		return c
	}
	c := of(&subjects[0])
	for i := range subjects[1:] {
		c.And = append(c.And, of(&subjects[i+1]))
	}
	return c
}

// joins reports whether a store decides the states of two users in one atomic step.
func joins(store Store, a, b string) bool {
	s, ok := find[Joiner](store)
	return ok && s.Joins(a, b)
}

var errApart = configError("core: All: the store can neither decide about these users together nor refund; use a store that is a core.Joiner or a core.Amender")

// inTurn decides about the subjects of a charge one after the other, first those that refused last.
// Each is charged with a receipt. The first one that refuses ends it.
func inTurn(ctx context.Context, c Charge, store Store) (Decision, error) {
	if c.Mode == machine.Charge && !amends(store) {
		return Decision{}, errApart
	}
	n := 1 + len(c.And)
	first, rest := make([]int, 0, n), make([]int, 0, n)
	for i := range n {
		if c.subject(i).refused() {
			first = append(first, i)
		} else {
			rest = append(rest, i)
		}
	}
	decisions := make([]Decision, n)
	var receipts []*Receipt
	passed := false
	defer func() {
		for _, r := range receipts {
			if !passed { // also if the store panics
				r.giveBack(context.WithoutCancel(ctx))
			}
		}
	}()
	for _, i := range append(first, rest...) {
		own := *c.subject(i)
		own.And, own.Receipt = nil, true
		d, err := Decision{}, ctx.Err()
		if err == nil {
			d, err = store.Take(own.outlives(ctx), own)
		}
		r := d.receipt
		refused := err == nil && (!d.Allowed || d.Reason == ReasonShadowed && r == nil) // the latter by the store Shadow
		own.note(refused)
		switch {
		case err != nil:
			d = Decision{}
		case refused || c.Mode == machine.Peek || d.Source == SourceNone:
		case r == nil || r.by == nil:
			d, err = Decision{}, errApart
		default:
			receipts = append(receipts, r)
		}
		if d.Subject = i; err != nil || refused && c.Mode == machine.Charge {
			return d, err
		}
		decisions[i] = d
	}
	passed = true
	d := decisions[0]
	for i := range decisions[1:] {
		d.join(&decisions[i+1])
	}
	if !c.Receipt {
		d.receipt = nil
	}
	return d, nil
}

// giveBack refunds a charge and releases its slots.
func (r *Receipt) giveBack(ctx context.Context) {
	for _, a := range []machine.Amendment{{Verb: machine.VerbRefund, Units: r.Cost}, {Verb: machine.VerbRelease}} {
		if r.concerned(a) {
			_, _ = r.by.Amend(ctx, r, a)
		}
	}
}

// lastRefused has the hashes of subjects that were refused last time, so that they can be asked first. A
// subject that is missing only costs a refund more.
var lastRefused [1024]atomic.Uint64

var subjectSeed = maphash.MakeSeed()

// place is where lastRefused has the subject, and its hash, which is never 0.
func (c *Charge) place() (at *atomic.Uint64, hash uint64) {
	hash = maphash.Comparable(subjectSeed, [3]string{c.User, c.Action, c.Limits[0].identity}) | 1
	return &lastRefused[hash>>1%uint64(len(lastRefused))], hash
}

func (c *Charge) refused() bool {
	at, hash := c.place()
	return at.Load() == hash
}

// note notes whether the subject was refused.
func (c *Charge) note(refused bool) {
	switch at, hash := c.place(); {
	case refused:
		at.Store(hash)
	case at.Load() == hash:
		at.Store(0)
	}
}
