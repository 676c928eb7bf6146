package core

// Status: every limit's numbers for a user, and the ban.

import (
	"time"
)

// Status is what a user has left of a limiter's limits, and the user's ban.
type Status struct {
	// Limits has the limits of Limiter.Limits first, and then the shadow limits. If the store
	// returns no [Record], Limits has only the first limit.
	Limits []LimitStatus
	Ban    BanStatus // zero without a [BanPolicy]
}

// LimitStatus is what a user has left of one limit.
type LimitStatus struct {
	Limit      Limit         // with [Divide] the share of this replica
	Remaining  int           // 0 to the limit's quota
	RetryAfter time.Duration // until this limit has room for one unit; 0 if it has now; or Never
	ResetAfter time.Duration // until the full quota is available; see [Limit.Initial]

	// Used is the number of units that count at present, rounded up. It is above the quota if the
	// user owes more than that, or if a limiter with a higher quota has admitted units. If a bucket
	// with Initial has not filled yet, its missing tokens count as used.
	Used int

	// EndsAfter is the time until the present period of a CalendarWindow ends, also if nothing was
	// used in it. For other limits EndsAfter is 0.
	EndsAfter time.Duration
}

// BanStatus is a user's ban, and the refusals and bans that a [BanPolicy] has counted.
type BanStatus struct {
	Banned      bool
	RetryAfter  time.Duration // until the ban ends
	ForgetAfter time.Duration // until refusals and bans are forgotten
	Refusals    int           // refusals that count towards the next ban
	Level       int           // bans in a row by the policy, the present one included
}

// statusOf makes the status from the results of look. Without a record it has only the first limit.
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
