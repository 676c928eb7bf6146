package core

import (
	"context"
	"time"
)

// Wait is [Limiter.Allow] for who would rather come later than be refused: it returns
// when the action may pass. If that is not before ctx's deadline it returns the
// refusal at once.
//
// Of funnels and buckets it reserves a turn, in the order of arrival, and sleeps until
// then; nobody asks again. If ctx ends before, the turn is given back, unless there is
// one behind it, which stays when it was; the error is ctx's. A limiter that has windows
// waits out RetryAfter and asks again, the longer it has waited the more rarely, which
// counts as another attempt where attempts count.
func (l *Limiter) Wait(ctx context.Context, user, action string) (Decision, error) {
	return l.WaitN(ctx, user, action, 1)
}

// WaitN is [Limiter.Wait] for an action that costs n units; see [Limiter.AllowN].
func (l *Limiter) WaitN(ctx context.Context, user, action string, n int) (Decision, error) {
	if n < 1 || int64(n) > l.smallest {
		return l.AllowN(ctx, user, action, n)
	}
	begun := time.Now()
	for {
		patience := maxPeriod
		if end, ok := ctx.Deadline(); ok {
			patience = min(patience, time.Until(end))
		}
		if err := check(ctx, user, action); err != nil {
			return Decision{}, err
		}
		c := Charge{User: user, Action: action, Limits: l.limits, Cost: int64(n), Receipt: true}
		if l.queues() {
			c.Ahead = max(0, patience.Microseconds())
		}
		d, err := l.store.Take(ctx, c)
		if err != nil {
			return d, err
		}
		pause := d.RetryAfter
		if d.Allowed {
			if d.receipt == nil {
				return d, nil
			}
			pause = d.receipt.turn()
		} else if pause >= patience {
			return d, nil
		} else { // in a crowd for little room, not for each bit of it
			pause = max(pause, min(time.Since(begun), patience)/16)
		}
		if err := sleep(ctx, pause); err != nil {
			if d.Allowed {
				_ = l.Refund(context.WithoutCancel(ctx), d)
			}
			return Decision{}, err
		}
		if d.Allowed {
			if !l.receipts {
				d.receipt = nil
			}
			d.ResetAfter -= pause
			return d, nil
		}
	}
}

// queues is whether all limits can reserve a turn.
func (l *Limiter) queues() bool {
	for i := range enforced(l.limits) {
		if l.limits[i].windowed() {
			return false
		}
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
