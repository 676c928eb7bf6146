package gate

// What an attempt asks the limiter, and what it makes of the answer.

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
)

// charge charges the cost to all subjects, and waits for their turn for at most that long. Slots that the request has
// already, since it enters one Limit inside another, are not taken again: reused gets them, for endSlots. It is nil
// for Allow, which takes slots in any case.
func (a *attempt) charge(ctx context.Context, wait time.Duration, reused *[]*slot) {
	a.asking = "store"
	a.lease = a.limiter.Lease()
	var err error
	if wait == 0 && a.lease == 0 && a.further == nil {
		if a.decision, err = a.limiter.AllowN(ctx, a.user, a.action, a.cost); err != nil {
			a.failed(err)
		}
		return
	}
	subjects := []core.Subject{a.limiter.For(a.user, a.action).Cost(a.cost)}
	for _, s := range a.further {
		subjects = append(subjects, s.limiter.For(s.user, s.action).Cost(a.cost))
		if lease := s.limiter.Lease(); lease != 0 && (a.lease == 0 || lease < a.lease) {
			a.lease = lease
		}
	}
	if reused != nil && a.lease != 0 {
		*reused = reuseSlots(ctx, subjects)
	}
	if wait == 0 {
		a.decision, err = core.All(ctx, subjects...)
	} else {
		a.decision, err = core.WaitAll(ctx, wait, subjects...)
	}
	if err != nil {
		a.failed(err)
	}
}

// failed takes the error of a decision.
func (a *attempt) failed(err error) {
	switch {
	case errors.Is(err, core.ErrRefused):
	case errors.Is(err, core.ErrCost):
		a.asking = "cost"
		a.fail(http.StatusInternalServerError, err)
	case errors.Is(err, core.ErrConfig): // core.New has not made the limiter
		a.asking = "limiter"
		a.fail(http.StatusInternalServerError, err)
	default:
		a.fail(http.StatusServiceUnavailable, err)
	}
}
