package core

// Decisions about several subjects on a store that decides about one at a time.

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tailcut/tailcut/core/machine"
)

var errApart = configError("core: All: the store can neither decide about these users together nor refund; use a store that is a core.Joiner or a core.Amender")

// inTurn looks at all subjects of a charge, and then charges one after the other, each with a
// receipt. It ends at the first that refuses.
//
// A charge that is given back fills a limit for an instant. A ban must not count a refusal that
// such a charge has caused. So the subjects are charged in the order of what was seen. One that
// refuses comes first: its refusal is recorded before any other subject is charged. Then come those
// that had room, the one with the least room first. If one of these refuses, another caller was
// faster, and the refusal is not recorded.
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
		refused := err == nil && (!d.Allowed || d.Reason == ReasonShadowed && r == nil) // the latter by the store Shadow
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
	charged = nil // they stay
	return d, nil
}

// apart is the charge of the i-th subject alone, with terms of its own.
func apart(c *Charge, i int) Charge {
	p, t := c.Part(i), *c.Terms
	t.Limits, t.More = p.Limits, nil
	return Charge{p.User, p.Action, p.Cost, &t}
}

// lookAt peeks at all subjects at the same time.
func lookAt(ctx context.Context, c *Charge, subjects []Subject) ([]Decision, error) {
	n := len(subjects)
	charges, limiters := make([]Charge, n), make([]*Limiter, n) // or each call of All would allocate, for the goroutines
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
			panic(v) // in the caller's goroutine
		}
	}
	return looks, cmp.Or(errs...)
}
