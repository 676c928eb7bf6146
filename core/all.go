package core

// All and PeekAll decide about several users and actions in one step. If the store cannot do that,
// they ask it about each one separately.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tailcut/tailcut/core/machine"
)

// All reports whether all subjects may act now. If all may, All charges each of them. Otherwise it
// charges none of them:
//
//	d, err := core.All(ctx, perUser.For("alice", "post"), perOrg.For("7", "org-post"))
//
// If both subjects had the same action, user 7 and organization 7 could share counts and bans.
//
//   - Decision.Subject is the index of the subject that the decision is about.
//   - A subject that refuses records its refusal as [Limiter.Allow] does, also for its [BanPolicy].
//     Subjects with room record nothing. If the cost of a subject can never pass, no subject
//     records a refusal.
//   - If one of the limiters is [Refundable], [Limiter.Refund] of any of the limiters gives back
//     the charges of all subjects.
//   - All limiters must have the same store: see [Limiter.SharesStore]. No two subjects may share a
//     state. Otherwise the error matches [ErrConfig]. The other errors are those of
//     [Limiter.AllowN].
//
// With a memorystore, and on one Redis server, the decision is one atomic step. All decides about
// subjects with a cost of 0 before that step. On a Cluster the subjects may be on different
// servers. With redisstore.Options.Tag a user and their organization are on one server. If the
// store cannot decide about all subjects in one step, All takes these steps:
//  1. All peeks at all subjects. If some refuse, All records the refusal of one of them, and
//     charges nothing.
//  2. If all have room, All charges one after the other. It begins with the subject that has the
//     least room.
//  3. If a subject then refuses, because another caller was faster, All gives back the charges made
//     so far. The refusal is not recorded. All also gives the charges back if the store fails.
//
// So no limit is exceeded. Until a charge has been given back, other callers may be refused because
// of it. A charge stays if it cannot be given back, for example because the process ends. If the
// store can neither decide in one step nor refund, the error matches ErrConfig.
func All(ctx context.Context, subjects ...Subject) (d Decision, err error) {
	if err = checkSubjects(ctx, subjects); err == nil {
		err = decide(ctx, machine.Ask{}, subjects, &d)
	}
	return d, err
}

// PeekAll reports whether [All] would allow, and the present numbers. It charges and writes
// nothing. If the cost of a subject is 0, PeekAll decides as if the cost were 1.
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

// checkSubjects returns the error of subjects about which All cannot decide.
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

// decide decides about subjects that checkSubjects has accepted. A subject with a cost of 0 is not
// charged, and only a ban refuses it.
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
	if slices.ContainsFunc(subjects, func(s Subject) bool { return s.limiter.slotWaiters != nil }) {
		ctx = c.outlives(ctx)
	}
	var r *Record
	if *d, r, err = l.store.Take(ctx, Charge{c.User, c.Action, c.Cost, c.Terms}); err != nil {
		*d = Decision{}
		return err
	}
	if d.Subject < 0 || d.Subject >= len(subjects) { // a foreign store may set any index
		d.Subject = 0
	}
	if r != nil {
		l.keep(r, subjects, d)
	}
	return nil
}

// decideFree decides about subjects if some have a cost of 0. It asks about those first.
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

var errApart = configError("core: All: the store can neither decide about these users together nor refund; use a store that is a core.Joiner or a core.Amender")

// inTurn decides about the subjects of a charge one after the other. It peeks at all of them, and
// then charges each one, with a receipt, until a subject refuses.
//
// A charge that is given back has filled a limit for a moment. If such a charge causes a refusal,
// the refusal must not count towards a ban. So inTurn charges the subjects in this order:
//   - First come the subjects that the peek has refused. The first refusal is recorded before any
//     subject is charged.
//   - Then come the subjects with room, the one with the least room first. If one of them refuses,
//     another caller was faster, and the refusal is not recorded.
func inTurn(ctx context.Context, c *Charge, subjects []Subject) (Decision, error) {
	if c.Writes() && !amends(subjects[0].limiter.store) {
		return Decision{}, errApart
	}
	looks, err := lookAt(ctx, c, subjects)
	if err != nil {
		return Decision{}, err
	}
	order := make([]int, len(looks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case looks[i].claim().binds(looks[j].claim()):
			return -1
		case looks[j].claim().binds(looks[i].claim()):
			return 1
		}
		return 0
	})
	if !c.Writes() {
		return looks[order[0]], nil
	}
	decisions := looks
	var charged []*Record
	defer func() { // also if the store panics
		for _, r := range charged {
			r.giveBack(ctx)
		}
	}()
	for _, i := range order {
		alone := apart(c, i)
		if alone.Receipt = true; looks[i].Allowed {
			alone.Mode = machine.ModePatient
		}
		d, err := Decision{}, ctx.Err()
		if err == nil {
			err = subjects[i].limiter.take(ctx, &alone, &d)
		}
		r := d.receipt
		refused := err == nil && (!d.Allowed || d.Reason == ReasonShadowed && r == nil) // the store Shadow allows what it has refused
		switch {
		case err != nil || refused || d.Source == SourceNone:
		case r == nil || r.By == nil:
			d, err = Decision{}, errApart
		default:
			charged = append(charged, r)
		}
		if err != nil {
			return Decision{}, err
		}
		if d.Subject = i; refused {
			return d, nil
		}
		decisions[i] = d
	}
	d := decisions[0]
	for i := range decisions[1:] {
		d.join(&decisions[i+1])
	}
	d.receipt = nil
	if c.Receipt {
		for _, r := range charged {
			r.next, d.receipt = d.receipt, r
		}
	}
	charged = nil // nothing is given back
	return d, nil
}

// apart returns the charge of the i-th subject alone. Its terms are a copy.
func apart(c *Charge, i int) Charge {
	p, t := c.Part(i), *c.Terms
	t.Limits, t.More = p.Limits, nil
	return Charge{p.User, p.Action, p.Cost, &t}
}

// lookAt peeks at all subjects concurrently.
func lookAt(ctx context.Context, c *Charge, subjects []Subject) ([]Decision, error) {
	n := len(subjects)
	charges, limiters := make([]Charge, n), make([]*Limiter, n) // copies for the goroutines, so that calls of All without them do not allocate
	for i := range n {
		charges[i] = apart(c, i)
		if charges[i].Receipt = false; charges[i].Writes() {
			charges[i].Ask = machine.Ask{Mode: machine.ModePeek}
		}
		limiters[i] = subjects[i].limiter
	}
	looks, errs, panics := make([]Decision, n), make([]error, n), make([]any, n)
	var asked sync.WaitGroup
	for i := range n {
		asked.Go(func() {
			defer func() { panics[i] = recover() }()
			errs[i] = limiters[i].take(ctx, &charges[i], &looks[i])
			looks[i].Subject = i
		})
	}
	asked.Wait()
	for _, v := range panics {
		if v != nil {
			panic(v) // in the caller's goroutine, as any panic of a store
		}
	}
	return looks, cmp.Or(errs...)
}
