package core

// Charge: what a limiter asks of its store, and how the store decides it.

import (
	"iter"

	"github.com/tailcut/tailcut/core/machine"
)

// A Charge and its methods are for authors of stores. A Charge asks the store to charge Cost to all
// limits of a limiter, for User and Action, if the limits have room. [Terms].Ask may ask for
// something else, such as a Peek.
type Charge struct {
	User, Action string // a limit with PerUser ignores the action
	Cost         int64  // units, at least 1

	*Terms // shared, so they must not be changed
}

// Terms are for authors of stores. They are the part of a charge that many charges share, so they
// must not be changed. A decorator that needs other terms makes a copy:
//
//	terms := *c.Terms
//	terms.Ahead = 0
//	c.Terms = &terms
type Terms struct {
	// Limits are the enforced limits, then the shadow limits, then the limit of the ban policy. Most
	// charges of one limiter share the slice. A [Limiter.Surcharge] leaves out the ban policy's limit.
	// A [Limiter.Settle] has only the limits that it charges. A [Limiter.Ban] has only the limit of
	// the ban policy.
	//
	// A store may keep the slice and recognise it by its address: see [SameLimits]. So the elements
	// must not be changed. A decorator that changes a limit makes a new slice, and uses the same
	// new slice for the next charge.
	Limits []Limit

	// Ask says what the charge may change. It holds for all limits. If Ask.Ahead is set, Receipt is
	// set too, and exactly one limit is enforced. If Ask.Ban is set, Limits has only the limit of the
	// ban policy.
	machine.Ask

	// Receipt asks the store for a [Record].
	Receipt bool

	// More has the second and all further subjects of a call of [All]. The store decides about all
	// subjects in one atomic step, at one instant. Only a [Joiner] gets charges with More. The
	// entries and readings of a charge are in this order: first those of Limits, and then those of
	// each subject in More.
	More []Part
}

// A Part is for authors of stores. It is one subject of a charge: a user, an action, a cost and
// limits.
type Part struct {
	User, Action string
	Cost         int64
	Limits       []Limit
}

// SameLimits reports whether a and b are the same slice. If they are, their limits are the same.
// SameLimits compares the address and the length, and not the limits.
func SameLimits(a, b []Limit) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Part returns a subject of the charge. If i is 0, it is the charge's own subject, and otherwise
// More[i-1]. If More is too short, Part returns the charge's own subject.
func (c *Charge) Part(i int) Part {
	if i > 0 && i <= len(c.More) {
		return c.More[i-1]
	}
	return Part{c.User, c.Action, c.Cost, c.Limits}
}

// Parts iterates over the subjects of the charge with their indices, as [Charge.Part] counts them.
func (c *Charge) Parts() iter.Seq2[int, Part] {
	return func(yield func(int, Part) bool) {
		for i := 0; i <= len(c.More) && yield(i, c.Part(i)); i++ {
		}
	}
}

// Writes reports whether the charge may change a state. It returns false for a Peek. It also
// returns false if the charge is refused with [Never], because the cost of a subject is above the
// quota of an enforced limit. A Surcharge and a Settle are not refused, so Writes returns true for
// them.
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
// entry for each limit, in the order of the limits. The result passes is true if all enforced
// limits have room and no ban holds. Limits count as having room for a Surcharge or a Settle.
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

// Commit decides about the entries that [Charge.Check] has brought to now, and writes the decision
// to d. The argument passes is the result of Check. The Decision at d must be zero. If the charge
// asks for a receipt, Commit returns a [Record].
//
//   - If the charge passes, and is no Peek, Commit charges it to all enforced limits. If all shadow
//     limits of a subject have room, Commit also charges it to them. [machine.Rule.Charge] lists
//     exceptions.
//   - If the charge does not pass, Commit records the refusal in each limit that has no room and
//     records refusals. It records no refusal if the mode is [machine.ModePatient], the user is
//     banned, or the cost can never pass. A ban policy records only refusals by the limits of its
//     own subject, and not those by InFlight alone.
//
// After Commit, the store must write the states of the entries marked Dirty. If the charge does not
// write, no entry is marked: see [Charge.Writes].
//
// Commit does not return the Decision, because that would cost 4 of 105 ns.
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

// commitMore does the work of Commit for the subjects in More. Their entries begin with the first.
func (c *Charge) commitMore(d *Decision, entries []machine.Entry, now int64, passes, writes bool) {
	for i := range c.More {
		p, one := &c.More[i], Decision{Subject: i + 1}
		c.commit(&one, p.Limits, p.Cost, entries, now, passes, writes)
		d.join(&one)
		entries = entries[len(p.Limits):]
	}
}

// commit does the work of Commit for one subject. Its entries are the first ones.
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
		default: // also the shadow limits of a charge that passes
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

// records reports whether a rule may record that the charge is refused. During a ban no rule records. A
// ban policy does not record if the only limits without room are shadow limits and InFlight.
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
// It is for a store that does not use [Charge.Commit]. If the charge asks for a receipt, Answer
// also makes a [Record]. now is the instant of the decision on the store's clock.
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
		copy(r.Readings, readings) // the store may use its slice again
	}
	return d, r
}

// answer does the work of Answer for one subject. Its readings are the first ones.
func (d *Decision) answer(limits []Limit, cost int64, readings []machine.Reading) {
	d.Allowed, d.Source = true, SourceStore
	for i := range limits {
		d.add(&limits[i].rule, i, cost, &readings[i])
	}
}
