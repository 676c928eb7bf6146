package gate

// What an attempt asks the limiter, and what it makes of the answer.

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
)

// charge charges the cost to all subjects, and waits for their turn for at most that long. enters says
// that the request enters a Limit, maybe inside another one, and that no handler calls Allow.
func (a *attempt) charge(ctx context.Context, enters bool, wait time.Duration) {
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
	if enters && a.lease != 0 {
		a.reuseSlots(ctx, subjects)
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

// reuseSlots has the subjects take no slot that the request has already, since it would wait for itself. These
// slots stay taken until endReused.
func (a *attempt) reuseSlots(ctx context.Context, subjects []core.Subject) {
	for s := slotIn(ctx); s != nil; s = s.outer {
		if !s.use() {
			continue
		}
		before := slices.Clone(subjects)
		for i := range subjects {
			subjects[i] = subjects[i].Within(s.limiter, s.decision)
		}
		if slices.Equal(before, subjects) {
			s.end()
		} else {
			a.reused = append(a.reused, s)
		}
	}
}

func (a *attempt) endReused() {
	for _, s := range a.reused {
		s.end()
	}
}

// place has the decision count the subjects as the middleware does. [core.All] was not given an optional one
// without a user.
func (a *attempt) place() {
	if n := a.decision.Subject; n > 0 && n <= len(a.further) { // else a foreign store has set it
		a.decision.Subject = a.further[n-1].index
	} else if a.failure == nil {
		a.decision.Subject = a.index
	}
}
