package core

import (
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Answer turns the readings of the charge's limits, in their order, into the decision. now
// is the instant of the decision. Only a charge with Receipt needs it.
func (c *Charge) Answer(readings []machine.Reading, now int64) Decision {
	if c.status != nil {
		c.status.fill(c.Limits, readings)
	}
	d := Decision{Allowed: true, Source: SourceStore}
	limited := false
	for i := range c.Limits {
		if l := &c.Limits[i]; !readings[i].Fits && !l.shadow {
			d.Allowed, d.Reason = false, ReasonLimited
			limited = limited || l.kind != machine.KindBan
		}
	}
	for i := range c.Limits {
		switch l, v := &c.Limits[i], &readings[i]; {
		case l.kind == machine.KindBan:
			d.addBan(v)
		case !l.shadow:
			c.bind(&d, i, v, limited)
		case d.Allowed && !v.Fits && d.Reason != ReasonShadowed:
			d.Reason, d.Shadow = ReasonShadowed, i
		case d.Allowed && d.Reason == "" && int(l.rule.Remaining(v)) <= l.max/5:
			d.Reason, d.Shadow = ReasonNear, i
		}
	}
	if c.Receipt && d.Allowed && c.Mode != machine.Peek {
		d.receipt = newReceipt(c, readings, now)
	}
	return d
}

// addBan adds the ban policy's reading. It is called after bind for all limits.
func (d *Decision) addBan(v *machine.Reading) {
	d.BanLevel = v.Level
	if v.Wait > 0 && !d.Allowed {
		d.Reason, d.Remaining = ReasonBanned, 0
		d.RetryAfter = max(d.RetryAfter, micros(v.Wait))
		d.ResetAfter = max(d.ResetAfter, micros(v.Wait))
	}
}

// bind adds the i-th limit's reading to the decision, and decides which limit binds.
// limited says whether one of them refuses.
func (c *Charge) bind(d *Decision, i int, v *machine.Reading, limited bool) {
	l := &c.Limits[i]
	remaining := int(l.rule.Remaining(v))
	retry := time.Duration(0)
	if !v.Fits {
		retry = l.retryAfter(v, c.Cost)
	}
	reset := micros(v.Rest.Ceil())
	binds := true
	switch {
	case i == 0:
	case !limited && remaining != d.Remaining:
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
