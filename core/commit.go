package core

// From a charge and the states of its limits to the decision.

import (
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// Check brings the entries to the instant now, in microseconds on the store's clock. There is one
// entry for each limit, in the order of the limits. passes says whether all enforced limits have
// room.
func (c *Charge) Check(entries []machine.Entry, now int64) (passes bool) {
	passes = true
	limits, cost := c.Limits, c.Cost
	for more := c.More; ; more = more[1:] {
		for i := range limits {
			r, e := &limits[i].rule, &entries[i]
			r.Check(e, now, cost, &c.Ask)
			passes = passes && (e.Fits || r.Shadow)
		}
		if len(more) == 0 {
			return passes
		}
		entries, limits, cost = entries[len(limits):], more[0].Limits, more[0].Cost
	}
}

// Commit charges the entries as [Charge.Check] left them, and fills in d, which is zero before: to return it would
// copy it twice more, 4 of 105 ns. If the charge asks for a receipt, it returns a [Record]. passes is the result of
// Check.
//   - If the charge passes, all limits are charged.
//   - If it does not, each limit that records refusals and has no room records this one, unless the
//     mode is [machine.ModePatient]. A ban policy counts only refusals by the limits of its own
//     subject.
//
// After Commit, the states of the entries marked Dirty must be written. If the charge does not
// write, no entry is marked: see [Charge.Writes].
func (c *Charge) Commit(d *Decision, entries []machine.Entry, now int64, passes bool) (r *Record) {
	writes := c.Mode != machine.ModePeek && (passes || c.Writes())
	c.commit(d, c.Limits, c.Cost, entries, now, passes, writes)
	if len(c.More) > 0 {
		c.commitMore(d, entries[len(c.Limits):], now, passes, writes)
	}
	if c.Receipt {
		r = c.record(d, len(entries), now)
		for i := range r.Readings {
			r.Readings[i] = entries[i].Reading
		}
	}
	return r
}

// commitMore is Commit for the further subjects, whose entries these are.
func (c *Charge) commitMore(d *Decision, entries []machine.Entry, now int64, passes, writes bool) {
	for i := range c.More {
		p, one := &c.More[i], Decision{Subject: i + 1}
		c.commit(&one, p.Limits, p.Cost, entries, now, passes, writes)
		d.join(&one)
		entries = entries[len(p.Limits):]
	}
}

// commit is Commit for one subject, whose entries are the first ones.
func (c *Charge) commit(d *Decision, limits []Limit, cost int64, entries []machine.Entry, now int64, passes, writes bool) {
	d.Allowed, d.Source = true, SourceStore
	for i := range limits {
		r, e := &limits[i].rule, &entries[i]
		switch {
		case !writes:
			e.Dirty = false
			r.Read(e, now, cost)
		case passes && !(r.Shadow && short(limits, entries)):
			r.Charge(e, now, cost, &c.Ask)
		default: // what passes may still be refused by a shadow limit
			r.Refuse(e, now, cost, records(r, limits, entries), c.Mode == machine.ModePatient && !passes)
		}
		d.add(r, i, cost, &e.Reading)
	}
}

// short reports whether a shadow limit has no room.
func short(limits []Limit, entries []machine.Entry) bool {
	for i := range limits {
		if limits[i].rule.Shadow && !entries[i].Fits {
			return true
		}
	}
	return false
}

// records reports whether a rule may record that the charge is refused. During a ban no rule may. A
// ban policy may not if only shadow limits and InFlight have no room.
func records(r *machine.Rule, limits []Limit, entries []machine.Entry) bool {
	record := r.Ban == nil
	for i := range limits {
		if o := &limits[i].rule; !entries[i].Fits {
			if o.Ban != nil {
				return false
			}
			record = record || !o.Shadow && !o.TakesSlots()
		}
	}
	return record
}

// Answer makes the decision from the readings of the charge's limits, in the order of the limits.
// If the charge asks for a receipt, it also makes a [Record], with now as the instant of the
// decision.
func (c *Charge) Answer(readings []machine.Reading, now int64) (d Decision, r *Record) {
	c.answer(&d, 0, readings)
	from := len(c.Limits)
	for i := range c.More {
		one := Decision{Subject: i + 1}
		c.answer(&one, i+1, readings[from:])
		d.join(&one)
		from += len(c.More[i].Limits)
	}
	if c.Receipt {
		r = c.record(&d, len(readings), now)
		copy(r.Readings, readings) // a store may change its own
	}
	return d, r
}

// answer is Answer for the i-th subject, whose readings are the first ones.
func (c *Charge) answer(d *Decision, i int, readings []machine.Reading) {
	d.Allowed, d.Source = true, SourceStore
	limits, cost := c.asks(i)
	for j := range limits {
		d.add(&limits[j].rule, j, cost, &readings[j])
	}
}

// join makes d the decision about one more subject, if that binds.
func (d *Decision) join(one *Decision) {
	if one.claim().binds(d.claim()) {
		*d = *one
	}
}

// A claim is what says which limit or subject binds.
type claim struct {
	refusal                refusal
	remaining              int
	retryAfter, resetAfter time.Duration
}

// A refusal says how much a refusal binds. A slot may be free at any moment.
type refusal uint8

const (
	notRefused refusal = iota
	refusedInFlight
	refused
)

func (d *Decision) claim() claim {
	o := claim{refused, d.Remaining, d.RetryAfter, d.ResetAfter}
	if d.Allowed {
		o.refusal = notRefused
	} else if d.Reason == ReasonInFlight {
		o.refusal = refusedInFlight
	}
	return o
}

// binds reports whether a limit or a subject binds rather than those before it.
func (o claim) binds(d claim) bool {
	switch {
	case o.refusal != d.refusal:
		return o.refusal > d.refusal
	case o.refusal == notRefused && o.remaining != d.remaining:
		return o.remaining < d.remaining
	case o.retryAfter != d.retryAfter:
		return o.retryAfter > d.retryAfter
	}
	return o.resetAfter > d.resetAfter
}

// add adds the reading of the i-th limit to the decision about a cost. Enforced limits come first,
// then shadow limits, then the limit of the ban policy.
func (d *Decision) add(r *machine.Rule, i int, cost int64, v *machine.Reading) {
	if r.Ban != nil || r.Shadow {
		d.addOther(r, i, v)
		return
	}
	limit := claim{remaining: int(r.Remaining(v)), resetAfter: micros(v.Rest.Ceil())}
	if !v.Fits {
		limit.retryAfter = retryAfter(r, cost, v)
		if limit.refusal = refused; r.TakesSlots() && cost <= r.Max {
			limit.refusal = refusedInFlight
		}
	}
	if i == 0 || limit.binds(d.claim()) {
		d.Binding, d.Limit, d.RetryAfter, d.ResetAfter = i, int(r.Max), limit.retryAfter, limit.resetAfter
		if d.Allowed, d.Reason = v.Fits, reasons[limit.refusal]; limit.refusal == refused {
			d.Reason = limited(r.Max)
		}
	}
	if i == 0 || limit.remaining < d.Remaining {
		d.Remaining = limit.remaining
	}
}

var reasons = [...]Reason{notRefused: "", refusedInFlight: ReasonInFlight, refused: ReasonLimited}

// limited is the reason of a refusal by a limit of that quota.
func limited(quota int64) Reason {
	if quota == 0 {
		return ReasonNothing
	}
	return ReasonLimited
}

// addOther adds the reading of a limit that is not enforced.
func (d *Decision) addOther(r *machine.Rule, i int, v *machine.Reading) {
	switch {
	case r.Ban != nil:
		d.BanLevel = int(v.Detail)
		d.Allowed = d.Allowed && v.Fits
		if v.Wait > 0 && !d.Allowed {
			d.Reason, d.Remaining, d.Shadow = ReasonBanned, 0, 0
			d.RetryAfter = max(d.RetryAfter, micros(v.Wait))
			d.ResetAfter = max(d.ResetAfter, micros(v.Wait))
		}
	case d.Allowed && !v.Fits && d.Reason != ReasonShadowed:
		d.Reason, d.Shadow = ReasonShadowed, i
	case d.Allowed && d.Reason == "" && r.Remaining(v) <= r.Max/5:
		d.Reason, d.Shadow = ReasonNear, i
	}
}

// retryAfter is the wait until a cost fits.
func retryAfter(r *machine.Rule, cost int64, v *machine.Reading) time.Duration {
	switch {
	case v.Fits:
		return 0
	case cost > r.Max:
		return Never
	}
	return micros(v.Wait)
}
