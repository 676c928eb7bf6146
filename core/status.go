package core

import (
	"context"
	"time"
)

// Status is how a user stands with a limiter.
type Status struct {
	Limits []LimitStatus // in the limiter's order, rehearsed ones last
	Ban    BanStatus     // the zero one without a [BanPolicy]
}

// LimitStatus is what is left of one limit.
type LimitStatus struct {
	Limit      Limit
	Remaining  int           // 0 to the limit's quota
	RetryAfter time.Duration // until one action fits; 0 if it does
	ResetAfter time.Duration // until the limit is whole
}

// BanStatus is what a [BanPolicy] holds against a user.
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
	if err := check(ctx, user, action); err != nil {
		return Status{}, err
	}
	var s Status
	d, err := l.store.Take(ctx, Charge{User: user, Action: action, Limits: l.limits, Cost: 1, Peek: true, status: &s})
	switch {
	case err != nil:
		return Status{}, err
	case s.Limits == nil: // the decision is not from Answer: it has one limit's numbers
		retry := d.RetryAfter
		if d.Allowed {
			retry = 0
		}
		s.Limits = []LimitStatus{{l.limits[0], d.Remaining, retry, d.ResetAfter}}
	}
	return s, nil
}

// fill reads the status from the readings of a charge's limits, taken with a cost of 1.
func (s *Status) fill(limits []Limit, readings []Reading) {
	*s = Status{Limits: make([]LimitStatus, 0, len(limits))}
	for i := range limits {
		l, r := &limits[i], &readings[i]
		if l.kind == KindLadder {
			s.Ban = BanStatus{
				Banned: r.Wait > 0, RetryAfter: micros(r.Wait), ForgetAfter: micros(r.Rest),
				Refusals: int(r.Count), Level: int(r.Part),
			}
			continue
		}
		status := LimitStatus{Limit: *l, Remaining: l.remaining(r), ResetAfter: micros(span{r.Rest, r.Part}.ceil())}
		if !r.Fits {
			status.RetryAfter = l.retry(r, 1)
		}
		s.Limits = append(s.Limits, status)
	}
}
