package core

// Status: every limit's numbers for a user, and the ban.

import (
	"time"
)

// Status is what a user has left of a limiter's limits, and the user's ban.
type Status struct {
	Limits []LimitStatus // in the limiter's order, shadow ones last
	Ban    BanStatus     // zero without a [BanPolicy]
}

// LimitStatus is what is left of one limit.
type LimitStatus struct {
	Limit      Limit         // with [Divide] the replica's share
	Remaining  int           // 0 to the limit's quota
	RetryAfter time.Duration // until one action passes; 0 if it would now
	ResetAfter time.Duration // until the full quota is available; see [Limit.Initial]

	// Used is the number of units that count at present, rounded up. After a change to a smaller
	// quota, or if the user owes more, it is above the quota: 35 of 20. The tokens that a bucket
	// with Initial has not gained yet count as used.
	Used int

	// EndsAfter is the time until the present period of a CalendarWindow ends, even if nothing was
	// used in the period. For other limits it is 0.
	EndsAfter time.Duration
}

// BanStatus is a user's ban, and what a [BanPolicy] has counted for the user.
type BanStatus struct {
	Banned      bool
	RetryAfter  time.Duration // until the ban ends
	ForgetAfter time.Duration // until all is forgotten
	Refusals    int           // refusals that count towards the next ban
	Level       int           // bans in a row, the present one included
}

// statusOf reads the status from the answer to look. A store that makes no record takes one limit only.
func (l *Limiter) statusOf(d *Decision, r *Record) (s Status) {
	if r == nil {
		return Status{Limits: []LimitStatus{{Limit: l.limits[0], Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Used: d.Limit - d.Remaining}}}
	}
	s.Limits = make([]LimitStatus, 0, len(r.Limits))
	for i := range r.Readings {
		x, v := &r.Limits[i], &r.Readings[i]
		if x.rule.Ban != nil {
			s.Ban = BanStatus{
				Banned: v.Wait > 0, RetryAfter: micros(v.Wait), ForgetAfter: micros(v.Rest.Whole),
				Refusals: int(v.Count), Level: int(v.Detail),
			}
			continue
		}
		one := LimitStatus{
			Limit: *x, Remaining: int(x.rule.Remaining(v)), Used: int(x.rule.Used(v)), RetryAfter: retryAfter(&x.rule, 1, v), ResetAfter: micros(v.Rest.Ceil()),
		}
		if x.rule.Calendar != nil {
			one.EndsAfter = micros(max(v.Rest.Whole, v.Detail))
		}
		s.Limits = append(s.Limits, one)
	}
	return s
}
