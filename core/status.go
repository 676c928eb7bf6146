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
	var s Status
	d, err := l.look(ctx, user, action, &s)
	switch {
	case err != nil:
		return Status{}, err
	case s.Limits == nil: // a store that uses neither Charge.Commit nor Charge.Answer, and so takes one limit only
		s.Limits = []LimitStatus{{l.limits[0], d.Remaining, d.RetryAfter, d.ResetAfter}}
	}
	return s, nil
}

// look asks the store whether one action would pass, and fills in s.
func (l *Limiter) look(ctx context.Context, user, action string, s *Status) (d Decision, err error) {
	ask := machine.Ask{Mode: machine.ModePeek, Cost: 1}
	err = l.take(ctx, &Charge{User: user, Action: action, Limits: l.limits, Ask: ask, status: s}, &d)
	return d, err
}

// fill reads the status from the readings of a charge's limits. The charge's cost is 1.
func (s *Status) fill(limits []Limit, readings []machine.Reading) {
	*s = Status{Limits: make([]LimitStatus, 0, len(limits))}
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
}
