package core

// Decisions about several subjects on a store that decides about one at a time.

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

var errApart = configError("core: All: the store can neither decide about these users together nor refund; use a store that is a machine.Joiner or a core.Amender")

// inTurn decides about the subjects of a charge one after the other, first those whose limiters refused
// last. Each is charged with a receipt. The first one that refuses ends it.
func inTurn(ctx context.Context, c *Charge, subjects []Subject) (Decision, error) {
	store, n := subjects[0].limiter.store, len(subjects)
	if c.terms.Mode.Asks() && !amends(store) {
		return Decision{}, errApart
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Compare(subjects[j].limiter.lastRefused.Load(), subjects[i].limiter.lastRefused.Load())
	})
	decisions := make([]Decision, n)
	var charged []*Receipt
	defer func() { // also if the store panics
		for _, r := range charged {
			r.giveBack(ctx)
		}
	}()
	for _, i := range order {
		own := *c.Subject(i)
		t := *own.terms
		t.Next, t.Receipt = nil, true
		own.terms = &t
		d, err := Decision{}, ctx.Err()
		if err == nil {
			err = subjects[i].limiter.take(ctx, own, &d)
		}
		r := d.receipt
		refused := err == nil && (!d.Allowed || d.Reason == ReasonShadowed && r == nil) // the latter by the store Shadow
		if refused {
			subjects[i].limiter.lastRefused.Store(time.Now().UnixMicro())
		}
		switch {
		case err != nil || refused || c.terms.Mode == machine.ModePeek || d.Source == SourceNone:
		case r == nil || r.by == nil:
			d, err = Decision{}, errApart
		default:
			charged = append(charged, r)
		}
		if err != nil {
			return Decision{}, err
		}
		if d.Subject = i; refused && c.terms.Mode.Asks() {
			return d, nil
		}
		decisions[i] = d
	}
	d := decisions[0]
	for _, its := range decisions[1:] {
		if its.claim().binds(d.claim()) {
			d = its
		}
	}
	d.receipt = nil
	if c.terms.Receipt {
		for _, r := range charged {
			r.next, d.receipt = d.receipt, r
		}
	}
	charged = nil // they stay
	return d, nil
}
