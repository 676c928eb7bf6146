package core

// Status: every limit's numbers for a user, and the ban.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Status is what a user has left of a limiter's limits, and the user's ban.
type Status struct {
	Limits []LimitStatus // in the limiter's order, shadow ones last
	Ban    BanStatus     // zero without a [BanPolicy]
}

// LimitStatus is what is left of one limit.
type LimitStatus struct {
	Limit      Limit
	Remaining  int           // 0 to the limit's quota
	RetryAfter time.Duration // until one action passes; 0 if it would now
	ResetAfter time.Duration // until the full quota is available; see [Limit.Initial]
}

// BanStatus is what a [BanPolicy] has counted for a user.
type BanStatus struct {
	Banned      bool
	RetryAfter  time.Duration // until the ban ends
	ForgetAfter time.Duration // until all is forgotten
	Refusals    int           // refusals that count towards the next ban
	Level       int           // bans in a row, the present one included
}

// Status returns what is left of every limit for user and action, and the ban if there
// is one. It charges and writes nothing. The errors are those of [Limiter.Peek].
func (l *Limiter) Status(ctx context.Context, user, action string) (Status, error) {
	if err := l.check(ctx, user, action); err != nil {
		return Status{}, err
	}
	_, s, err := l.look(ctx, user, action)
	return s, err
}

// look asks the store whether one action would pass, and for the readings of all limits.
func (l *Limiter) look(ctx context.Context, user, action string) (d Decision, s Status, err error) {
	ask := machine.Ask{Mode: machine.ModePeek, Cost: 1}
	d, err = l.store.Take(ctx, Charge{User: user, Action: action, Limits: l.limits, Ask: ask, Receipt: true})
	if err != nil {
		return Decision{}, Status{}, err
	}
	if r := d.receipt; r != nil {
		s = statusOf(r.Limits, r.Readings)
	} else { // the store uses neither Charge.Commit nor Charge.Answer, and so takes one limit only
		s.Limits = []LimitStatus{{l.limits[0], d.Remaining, d.RetryAfter, d.ResetAfter}}
	}
	d.receipt = nil
	return d, s, nil
}

// statusOf reads the status from the readings of limits for a cost of 1.
func statusOf(limits []Limit, readings []machine.Reading) (s Status) {
	s.Limits = make([]LimitStatus, 0, len(limits))
	for i := range limits {
		l, v := &limits[i], &readings[i]
		if l.kind == machine.KindBan {
			s.Ban = BanStatus{
				Banned: v.Wait > 0, RetryAfter: micros(v.Wait), ForgetAfter: micros(v.Rest.Whole),
				Refusals: int(v.Count), Level: v.Level,
			}
			continue
		}
		s.Limits = append(s.Limits, LimitStatus{*l, int(l.rule.Remaining(v)), l.retryAfter(v, 1), micros(v.Rest.Ceil())})
	}
	return s
}
