package core

// Charge: what a limiter asks of its store, and how the store decides it.

import (
	"iter"

	"github.com/tailcut/tailcut/core/machine"
)

// A Charge is for authors of stores, as are its methods. It is the question that a limiter asks its
// store: may User do Action, by all limits of the limiter? Its fields differ from call to call. It
// points to [Terms], which the charges of one limiter share.
type Charge struct {
	User, Action string // a limit with PerUser ignores the action
	Cost         int64  // units, at least 1

	*Terms // nobody writes to them
}

// Terms are for authors of stores. They are the part of a charge that many charges share, so they
// must not be changed. A decorator that needs other terms makes a copy:
//
//	terms := *c.Terms
//	terms.Ahead = 0
//	c.Terms = &terms
type Terms struct {
	// Limits are the enforced limits, then the shadow limits, then the limit of the ban policy. All
	// charges of one limiter have the same slice: see [SameLimits]. Stores keep the slice and
	// recognise it by its address. So never change its elements once a charge has had it. A
	// decorator that changes a limit makes a new slice, and keeps that for the next charge.
	Limits []Limit

	// Ask says what the charge may change. It is the same for all limits. Ahead is set only
	// together with Receipt, and only if one limit is enforced. Ban is set only if Limits is the
	// ban policy's limit alone.
	machine.Ask

	// Receipt asks for a [Record].
	Receipt bool

	// More are the subjects of a call of [All] but for the first. All subjects are decided in one
	// atomic step at one instant. Only a store that is a [Joiner] gets charges with More. In the
	// entries and readings of a charge, those of its own limits come first, and then those of More.
	More []Part
}

// A Part is for authors of stores. It is a subject of a charge: a user, an action, a cost and
// limits.
type Part struct {
	User, Action string
	Cost         int64
	Limits       []Limit
}

// SameLimits reports whether two charges have the limits of one limiter. It compares the addresses
// of the slices, and not the limits in them.
func SameLimits(a, b []Limit) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Part returns the i-th subject of the charge: 0 is the charge's own, and then come those of More.
// If there is no i-th subject, it returns the charge's own.
func (c *Charge) Part(i int) Part {
	if i > 0 && i <= len(c.More) {
		return c.More[i-1]
	}
	return Part{c.User, c.Action, c.Cost, c.Limits}
}

// Parts returns the subjects of the charge, with their indices: the charge's own, and then those of
// More.
func (c *Charge) Parts() iter.Seq2[int, Part] {
	return func(yield func(int, Part) bool) {
		for i := 0; i <= len(c.More) && yield(i, c.Part(i)); i++ {
		}
	}
}

// Writes reports whether the charge may change a state. A Peek may not. Neither may a charge whose
// cost is above the quota of an enforced limit, because it is refused with [Never].
func (c *Charge) Writes() bool {
	if !c.Mode.NeedsRoom() {
		return c.Mode != machine.ModePeek
	}
	for i := range c.More {
		if p := &c.More[i]; aboveQuota(p.Limits, p.Cost) {
			return false
		}
	}
	return !aboveQuota(c.Limits, c.Cost)
}

// aboveQuota reports whether a cost is above the quota of an enforced limit.
func aboveQuota(limits []Limit, cost int64) bool {
	for i := range limits {
		if r := &limits[i].rule; cost > r.Max && r.Ban == nil && !r.Shadow {
			return true
		}
	}
	return false
}

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
	d.answer(c.Limits, c.Cost, readings)
	from := len(c.Limits)
	for i := range c.More {
		p, one := &c.More[i], Decision{Subject: i + 1}
		one.answer(p.Limits, p.Cost, readings[from:])
		d.join(&one)
		from += len(p.Limits)
	}
	if c.Receipt {
		r = c.record(&d, len(readings), now)
		copy(r.Readings, readings) // a store may change its own
	}
	return d, r
}

// answer is Answer for one subject, whose readings are the first ones.
func (d *Decision) answer(limits []Limit, cost int64, readings []machine.Reading) {
	d.Allowed, d.Source = true, SourceStore
	for i := range limits {
		d.add(&limits[i].rule, i, cost, &readings[i])
	}
}
