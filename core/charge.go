package core

// From a charge and the states of its limits to the decision.

import (
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A Charge is for authors of stores, as are its methods. It is what a limiter asks of its store: may User
// do Action, by all of Limits? A store neither keeps nor changes what it points to.
type Charge struct {
	User, Action string  // a limit with PerUser ignores the action
	Limits       []Limit // the enforced ones, the shadow ones, the ban policy's

	// Ask is the same for all limits. Ahead is set only with Receipt, and only if one
	// limit is enforced; the shadow ones ignore it. Ban is set only if Limits is the ban
	// policy's limit alone.
	machine.Ask

	// Receipt asks for a decision that can be given back: see [Decision.Issue].
	Receipt bool

	// And are the further subjects of a call of [All]: each has its User, Action, Limits and Ask, the
	// Mode and Receipt of this charge, and no And. All are decided together, in one atomic step
	// at one instant. Only a store that is a [machine.Joiner] gets them. The states and readings of such a charge
	// are those of its own limits, and after them those of each of And.
	And []Charge

	// A decorator that makes a new charge loses these: then a Status has one limit only, and a slot that is
	// released wakes nobody at once.
	status      *Status      // to be filled in by Commit or Answer
	slotWaiters *slotWaiters // of a limiter with InFlight
}

// takesSlots reports whether a charge of one or more subjects may take slots.
func (c *Charge) takesSlots() bool {
	return c.Mode != machine.ModePeek &&
		(c.slotWaiters != nil || slices.ContainsFunc(c.And, func(o Charge) bool { return o.slotWaiters != nil }))
}

// Subject is the charge of the i-th subject: 0 is the charge itself, and after it come those of And. If
// there is no such subject, it is the charge itself.
func (c *Charge) Subject(i int) *Charge {
	if i < 1 || i > len(c.And) {
		return c
	}
	return &c.And[i-1]
}

// Check brings the states, one for each limit and in their order, to the instant now, in microseconds
// on the store's clock. It reports whether the charge passes: whether all enforced limits have room.
func (c *Charge) Check(states []machine.State, now int64) (passes bool) {
	passes = true
	for i := range 1 + len(c.And) {
		own := c.Subject(i)
		ask := own.Ask
		for j := range own.Limits {
			l, s := &own.Limits[j], &states[j]
			if l.shadow {
				ask.Ahead = 0 // nobody waits for a shadow limit; the enforced ones came before
			}
			l.rule.Check(s, now, &ask)
			passes = passes && (s.Fits || l.shadow)
		}
		states = states[len(own.Limits):]
	}
	return passes
}

// Commit charges the states as [Charge.Check] left them, and returns the decision. passes is what
// Check has returned. If the charge passes, all limits are charged. If not, a limit whose kind records
// refusals records its own, unless the caller is Patient. After Commit, Dirty marks the states to write.
// A Peek marks none.
//
// A ban policy counts a refusal by the limits of its own subject only.
func (c *Charge) Commit(states []machine.State, now int64, passes bool) Decision {
	at := 0
	for i := range 1 + len(c.And) {
		own := c.Subject(i)
		own.commit(states[at:], now, passes)
		at += len(own.Limits)
	}
	return c.answer(at, func(i int) *machine.Reading { return &states[i].Reading }, now)
}

// commit is Commit for the states of one subject.
func (c *Charge) commit(states []machine.State, now int64, passes bool) {
	var short, limited, banned bool // short: a shadow limit has no room
	for i := range c.Limits {
		switch l := &c.Limits[i]; {
		case states[i].Fits:
		case l.shadow:
			short = true
		case l.kind == machine.KindBan:
			banned = true
		default: // a refusal by InFlight alone counts towards no ban
			limited = limited || !l.rule.TakesSlots()
		}
	}
	for i := range c.Limits {
		l, s := &c.Limits[i], &states[i]
		switch {
		case c.Mode == machine.ModePeek:
			s.Dirty = false
		case passes && !(short && l.shadow):
			l.rule.Charge(s, now, &c.Ask)
		default:
			refusal := c.Ask
			refusal.Patient = c.Patient && !passes // what passes may still be refused by a shadow limit
			l.rule.Refuse(s, now, &refusal, !banned && (limited || l.kind != machine.KindBan))
		}
		l.rule.Read(s, now, &c.Ask)
	}
}

// Answer turns the readings of the charge's limits, in their order, into the decision. now
// is the instant of the decision. Only a charge with Receipt needs it.
func (c *Charge) Answer(readings []machine.Reading, now int64) Decision {
	return c.answer(len(readings), func(i int) *machine.Reading { return &readings[i] }, now)
}

// answer makes the decision of n readings. With several subjects it is that of the subject that binds.
func (c *Charge) answer(n int, reading func(i int) *machine.Reading, now int64) (d Decision) {
	at := 0
	for i := range 1 + len(c.And) {
		own, its := c.Subject(i), Decision{Allowed: true, Source: SourceStore, Subject: i}
		for j := range own.Limits {
			own.add(&its, j, reading(at+j))
		}
		if at += len(own.Limits); i == 0 || its.binds(&d) {
			d = its
		}
	}
	if c.Receipt || c.status != nil {
		kept := make([]machine.Reading, n) // a store may change its own
		for i := range kept {
			kept[i] = *reading(i)
		}
		c.conclude(&d, kept, now)
	}
	return d
}

// conclude fills in the status that the charge asks for, and makes the receipts of all subjects, which
// keep the readings.
func (c *Charge) conclude(d *Decision, readings []machine.Reading, now int64) {
	if c.status != nil {
		c.status.fill(c.Limits, readings)
	}
	if !c.Receipt || !d.Allowed || c.Mode == machine.ModePeek {
		return
	}
	for i := range 1 + len(c.And) {
		own := c.Subject(i)
		n := len(own.Limits)
		d.receipt = &Receipt{
			User: own.User, Action: own.Action, Limits: own.Limits, Cost: own.Cost,
			At: now, Readings: readings[:n:n], and: d.receipt,
		}
		if takeSlots(own.Limits) {
			d.receipt.slots = newTakenSlots(own.slotWaiters, own.Limits)
		}
		readings = readings[n:]
	}
}

// binds reports whether the decision of a limit or a subject binds rather than that of those before it.
func (o *Decision) binds(d *Decision) bool {
	switch {
	case o.Allowed != d.Allowed:
		return d.Allowed
	case (o.Reason == ReasonInFlight) != (d.Reason == ReasonInFlight): // a slot may be free at any moment
		return d.Reason == ReasonInFlight
	case o.Allowed && o.Remaining != d.Remaining:
		return o.Remaining < d.Remaining
	case o.RetryAfter != d.RetryAfter:
		return o.RetryAfter > d.RetryAfter
	}
	return o.ResetAfter > d.ResetAfter
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
	case d.Allowed && d.Reason == "" && int(l.rule.Remaining(v)) <= l.quota()/5:
		d.Reason, d.Shadow = ReasonNear, i
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

// bind adds an enforced limit's reading.
func (c *Charge) bind(d *Decision, i int, v *machine.Reading) {
	l := &c.Limits[i]
	its := Decision{
		Allowed: v.Fits, Remaining: int(l.rule.Remaining(v)),
		RetryAfter: l.retryAfter(v, c.Cost), ResetAfter: micros(v.Rest.Ceil()),
	}
	if !v.Fits {
		its.Reason = ReasonLimited
		if l.rule.TakesSlots() && c.Cost <= l.rule.Max {
			its.Reason = ReasonInFlight
		}
	}
	if i == 0 || its.binds(d) {
		d.Binding, d.Limit, d.RetryAfter, d.ResetAfter = i, l.quota(), its.RetryAfter, its.ResetAfter
		d.Allowed, d.Reason = its.Allowed, its.Reason
	}
	if i == 0 || its.Remaining < d.Remaining {
		d.Remaining = its.Remaining
	}
}

// retryAfter is the wait until a cost fits.
func (l *Limit) retryAfter(v *machine.Reading, cost int64) time.Duration {
	switch {
	case v.Fits:
		return 0
	case cost > l.rule.Max:
		return Never
	}
	return micros(v.Wait)
}
