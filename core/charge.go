package core

// From a charge and the states of its limits to the decision.

import (
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A Charge is for authors of stores, as are its methods. It is what a limiter asks of its store: may User
// do Action, by all of its limits? It has what differs from call to call, and points to its terms, which
// charges of one limiter share and nobody changes.
type Charge struct {
	User, Action string // a limit with PerUser ignores the action
	Cost         int64  // units, at least 1

	terms *terms
}

// Terms are for authors of stores. They are what a charge has besides: [Charge.With] makes a charge with
// other terms. [Charge.Limits], [Charge.Ask], [Charge.Never], [Charge.Receipt] and [Charge.Next] read them without a copy.
type Terms struct {
	Limits []Limit // the enforced ones, the shadow ones, the ban policy's

	// Ask is the same for all limits. Ahead is set only with Receipt, and only if one limit is enforced. Ban
	// is set only if Limits is the ban policy's limit alone.
	machine.Ask

	// Never says that an action asks, and that a cost can never pass. The Mode is then machine.ModePeek, because
	// the refusal writes nothing.
	Never bool

	// Receipt asks for a decision that can be given back: see [Decision.Issue].
	Receipt bool

	// Readings, if not nil, is where Commit and Answer leave the readings, for a Status.
	Readings *[]machine.Reading

	// Next is the charge of the next subject of a call of [All], or nil. All subjects are decided together, in
	// one atomic step at one instant: only a store that is a [machine.Joiner] gets charges with Next. They have
	// one Mode, Never and Receipt. The states and readings of a charge are those of its own limits, and after them
	// those of Next.
	Next *Charge
}

// terms are made once, with the limiter, unless they are those of several subjects or of few calls.
type terms struct {
	Terms
	slotWaiters *slotWaiters // of a limiter with InFlight
	readingsOf  *[]Limit     // if not nil, where the limits of the Readings are left: Divide has others
}

// With returns a charge with other terms, of which it makes a copy.
func (c Charge) With(t Terms) Charge {
	made := terms{Terms: t}
	if old := c.terms; old == nil {
		made.Limits = slices.Clone(t.Limits)
	} else {
		made.slotWaiters, made.readingsOf = old.slotWaiters, old.readingsOf
		if made.Limits = old.Limits; !slices.Equal(t.Limits, old.Limits) {
			made.Limits = slices.Clone(t.Limits)
		}
	}
	c.terms = &made
	return c
}

// Terms returns a copy of the charge's terms.
func (c *Charge) Terms() Terms {
	t := c.terms.Terms
	t.Limits = slices.Clone(t.Limits)
	return t
}

// Limits are those of [Terms]. They must not be changed. Charges of one limiter have the same slice, so equal
// limits can be found by its address: see [Charge.SameLimits].
func (c *Charge) Limits() []Limit { return c.terms.Limits }

// SameLimits reports whether limits, those of another charge, are of the limiter that has made this one.
func (c *Charge) SameLimits(limits []Limit) bool {
	return len(limits) == len(c.Limits()) && (len(limits) == 0 || &limits[0] == &c.Limits()[0])
}

// Ask is that of [Terms].
func (c *Charge) Ask() machine.Ask { return c.terms.Ask }

// Never is that of [Terms].
func (c *Charge) Never() bool { return c.terms.Never }

// Receipt is that of [Terms].
func (c *Charge) Receipt() bool { return c.terms.Receipt }

// Next is that of [Terms].
func (c *Charge) Next() *Charge { return c.terms.Next }

// Subject is the charge of the i-th subject: 0 is the charge itself. If there is no such subject, it is the
// charge itself.
func (c *Charge) Subject(i int) *Charge {
	for o := c; o != nil; i, o = i-1, o.Next() {
		if i == 0 {
			return o
		}
	}
	return c
}

// takesSlots reports whether a charge of one or more subjects may take slots.
func (c *Charge) takesSlots() bool {
	for o := c; o != nil; o = o.Next() {
		if o.terms.slotWaiters != nil && o.terms.Mode.Asks() {
			return true
		}
	}
	return false
}

// Check brings the entries, one for each limit and in their order, to the instant now, in microseconds
// on the store's clock. It reports whether the charge passes: whether all enforced limits have room.
func (c *Charge) Check(entries []machine.Entry, now int64) (passes bool) {
	limits, ask := c.terms.Limits, &c.terms.Ask
	passes = true
	for i := range limits {
		r, e := &limits[i].rule, &entries[i]
		r.Check(e, now, c.Cost, ask)
		passes = passes && (e.Fits || r.Shadow)
	}
	if next := c.terms.Next; next != nil {
		passes = next.Check(entries[len(limits):], now) && passes
	}
	return passes
}

// Commit charges the entries as [Charge.Check] left them, and returns the decision. passes is what
// Check has returned. If the charge passes, all limits are charged. If not, a limit whose kind records
// refusals records its own, unless the mode is [machine.ModePatient]. After Commit, Dirty marks the states to
// write. A Peek marks none.
//
// A ban policy counts a refusal by the limits of its own subject only.
func (c *Charge) Commit(entries []machine.Entry, now int64, passes bool) (d Decision) {
	c.commit(&d, entries, now, passes)
	if c.keeps() {
		readings := make([]machine.Reading, len(entries))
		for i := range readings {
			readings[i] = entries[i].Reading
		}
		d.conclude(c, readings, now)
	}
	return d
}

// commit is Commit without a receipt.
func (c *Charge) commit(d *Decision, entries []machine.Entry, now int64, passes bool) {
	d.Allowed, d.Source = true, SourceStore
	limits, ask := c.terms.Limits, &c.terms.Ask
	for i := range limits {
		r, e := &limits[i].rule, &entries[i]
		switch {
		case ask.Mode == machine.ModePeek:
			e.Dirty = false
			r.Read(e, now, c.Cost)
		case passes && !(r.Shadow && c.short(entries)):
			r.Charge(e, now, c.Cost, ask)
		default: // what passes may still be refused by a shadow limit
			r.Refuse(e, now, c.Cost, c.records(r, entries), ask.Mode == machine.ModePatient && !passes)
		}
		d.add(r, i, c.Cost, &e.Reading)
	}
	if next := c.terms.Next; next != nil {
		var one Decision
		next.commit(&one, entries[len(limits):], now, passes)
		one.Subject++ // of those from c on
		d.join(&one)
	}
}

// short reports whether a shadow limit has no room.
func (c *Charge) short(entries []machine.Entry) bool {
	for i := range c.terms.Limits {
		if c.terms.Limits[i].rule.Shadow && !entries[i].Fits {
			return true
		}
	}
	return false
}

// records reports whether a rule may record that the charge is refused. None does while a ban lasts. A ban policy
// does not if only shadow limits and InFlight have no room.
func (c *Charge) records(r *machine.Rule, entries []machine.Entry) bool {
	record := r.Ban == nil
	for i := range c.terms.Limits {
		if o := &c.terms.Limits[i].rule; !entries[i].Fits {
			if o.Ban != nil {
				return false
			}
			record = record || !o.Shadow && !o.TakesSlots()
		}
	}
	return record
}

// Answer turns the readings of the charge's limits, in their order, into the decision. now
// is the instant of the decision. Only a charge with Receipt needs it.
func (c *Charge) Answer(readings []machine.Reading, now int64) (d Decision) {
	c.answer(&d, readings)
	if c.keeps() {
		d.conclude(c, slices.Clone(readings), now) // a store may change its own
	}
	return d
}

// answer is Answer without a receipt.
func (c *Charge) answer(d *Decision, readings []machine.Reading) {
	d.Allowed, d.Source = true, SourceStore
	limits := c.terms.Limits
	for i := range limits {
		d.add(&limits[i].rule, i, c.Cost, &readings[i])
	}
	if next := c.terms.Next; next != nil {
		var one Decision
		next.answer(&one, readings[len(limits):])
		one.Subject++
		d.join(&one)
	}
}

// join makes d the decision about one more subject, if that binds.
func (d *Decision) join(one *Decision) {
	if one.claim().binds(d.claim()) {
		*d = *one
	}
}

// keeps reports whether the readings are kept.
func (c *Charge) keeps() bool { return c.terms.Receipt || c.terms.Readings != nil }

// conclude makes the receipts of all subjects, which keep the readings.
func (d *Decision) conclude(c *Charge, readings []machine.Reading, now int64) {
	if c.terms.Readings != nil {
		*c.terms.Readings = readings
	}
	if c.terms.readingsOf != nil {
		*c.terms.readingsOf = c.terms.Limits
	}
	if !c.terms.Receipt || !d.Allowed || c.terms.Mode == machine.ModePeek {
		return
	}
	for o := c; o != nil; o = o.Next() {
		n := len(o.terms.Limits)
		d.receipt = &Receipt{
			User: o.User, Action: o.Action, Limits: o.terms.Limits, Cost: o.Cost,
			At: now, Readings: readings[:n:n], next: d.receipt,
		}
		if d.receipt.concerned(machine.Amendment{Verb: machine.VerbRelease}) {
			d.receipt.slots = newTakenSlots(o.terms.slotWaiters)
		}
		readings = readings[n:]
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

// add adds the reading of the i-th limit to the decision about a cost: the enforced ones come first, then the
// shadow ones, then the ban policy's.
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
