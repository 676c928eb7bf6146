package core

import (
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Answer turns the readings of the charge's limits, in their order, into the decision. now
// is the instant of the decision. Only a charge with Receipt needs it.
func (c *Charge) Answer(readings []machine.Reading, now int64) Decision {
	d := Decision{Allowed: true, Source: SourceStore}
	for i := range readings {
		c.add(&d, i, &readings[i])
	}
	c.finish(&d, readings, now)
	return d
}

// add adds the reading of the i-th limit to the decision: the enforced ones come first, then the
// shadow ones, then the ban policy's.
func (c *Charge) add(d *Decision, i int, v *machine.Reading) {
	switch l := &c.Limits[i]; {
	case l.kind == machine.KindBan:
		d.addBan(v)
	case !l.shadow:
		c.bind(d, i, v)
	case d.Allowed && !v.Fits && d.Reason != ReasonShadowed:
		d.Reason, d.Shadow = ReasonShadowed, i
	case d.Allowed && d.Reason == "" && int(l.rule.Remaining(v)) <= l.max/5:
		d.Reason, d.Shadow = ReasonNear, i
	}
}

// finish fills in what needs the readings of all limits.
func (c *Charge) finish(d *Decision, readings []machine.Reading, now int64) {
	if c.status != nil {
		c.status.fill(c.Limits, readings)
	}
	if c.Receipt && d.Allowed && c.Mode != machine.Peek {
		d.receipt = newReceipt(c, readings, now)
	}
}

func (d *Decision) addBan(v *machine.Reading) {
	d.BanLevel = v.Level
	d.Allowed = d.Allowed && v.Fits
	if v.Wait > 0 && !d.Allowed {
		d.Reason, d.Remaining, d.Shadow = ReasonBanned, 0, 0
		d.RetryAfter = max(d.RetryAfter, micros(v.Wait))
		d.ResetAfter = max(d.ResetAfter, micros(v.Wait))
	}
}

// bind adds an enforced limit's reading, and decides whether this limit binds rather than those
// before it.
func (c *Charge) bind(d *Decision, i int, v *machine.Reading) {
	l := &c.Limits[i]
	remaining, reset, retry := int(l.rule.Remaining(v)), micros(v.Rest.Ceil()), time.Duration(0)
	if !v.Fits {
		retry = l.retryAfter(v, c.Cost)
	}
	binds := true
	switch {
	case i == 0:
	case v.Fits != d.Allowed:
		binds = d.Allowed
	case v.Fits && remaining != d.Remaining:
		binds = remaining < d.Remaining
	case retry != d.RetryAfter:
		binds = retry > d.RetryAfter
	default:
		binds = reset > d.ResetAfter
	}
	if binds {
		d.Binding, d.Limit, d.RetryAfter, d.ResetAfter = i, l.max, retry, reset
	}
	if i == 0 || remaining < d.Remaining {
		d.Remaining = remaining
	}
	if !v.Fits {
		d.Allowed, d.Reason = false, ReasonLimited
	}
}

// retryAfter is the wait until a cost fits that does not fit now.
func (l *Limit) retryAfter(v *machine.Reading, cost int64) time.Duration {
	if cost > int64(l.max) {
		return Never
	}
	return micros(l.rule.RetryAfter(v, cost))
}

// untouched is the decision if no store has an answer: allowed, with the first limit's full
// quota. A cost above a quota is refused all the same.
func (c *Charge) untouched() Decision {
	if c.status != nil {
		whole := make([]machine.Reading, len(c.Limits))
		for i := range whole {
			whole[i].Fits = true
		}
		c.status.fill(c.Limits, whole)
	}
	d := Decision{Allowed: true, Limit: c.Limits[0].max, Remaining: c.Limits[0].max}
	if c.Mode == machine.Force {
		return d
	}
	enforced := enforced(c.Limits)
	for i := range enforced {
		quota := enforced[i].max
		if d.Allowed && c.Cost > int64(quota) {
			d.Allowed, d.Limit, d.Binding, d.RetryAfter, d.Reason = false, quota, i, Never, ReasonLimited
		}
	}
	if !d.Allowed {
		for i := range enforced {
			d.Remaining = min(d.Remaining, enforced[i].max)
		}
	}
	return d
}
