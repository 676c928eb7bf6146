package core

// Charge: what a limiter asks of its store.

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

// asks are the limits and the cost of the i-th subject. They are not more than registers can hold.
func (c *Charge) asks(i int) (limits []Limit, cost int64) {
	if i == 0 {
		return c.Limits, c.Cost
	}
	return c.More[i-1].Limits, c.More[i-1].Cost
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
