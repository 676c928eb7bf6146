package core

// Charge: what a limiter asks of its store.

import (
	"iter"

	"github.com/tailcut/tailcut/core/machine"
)

// A Charge is for authors of stores, as are its methods. It is what a limiter asks of its store: may User
// do Action, by all of its limits? It has what differs from call to call, and points to its terms, which
// charges of one limiter share.
type Charge struct {
	User, Action string // a limit with PerUser ignores the action
	Cost         int64  // units, at least 1

	*Terms // nobody writes to them
}

// Terms are for authors of stores. They are what a charge has besides, and are shared by many charges. A
// decorator that changes some makes a copy:
//
//	terms := *c.Terms
//	terms.Ahead = 0
//	c.Terms = &terms
type Terms struct {
	// Limits are the enforced ones, the shadow ones, the ban policy's. Charges of one limiter have the same
	// slice: see [SameLimits]. Stores keep it and recognise it by its address, so never change its elements
	// after a charge had it. A decorator that changes a limit makes a new slice, and keeps it for the next charge.
	Limits []Limit

	// Ask is the same for all limits. Ahead is set only with Receipt, and only if one limit is enforced. Ban
	// is set only if Limits is the ban policy's limit alone.
	machine.Ask

	// Receipt asks for a [Record].
	Receipt bool

	// More are the further subjects of a call of [All]. All subjects are decided together, in one atomic step at
	// one instant: only a store that is a [Joiner] gets charges with More. The states and readings of a
	// charge are those of its own limits, and after them those of More.
	More []Part
}

// A Part is for authors of stores: what a charge asks about one subject.
type Part struct {
	User, Action string
	Cost         int64
	Limits       []Limit
}

// SameLimits reports whether two charges have the limits of one limiter. It compares where the limits are, and
// not what they are.
func SameLimits(a, b []Limit) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// Part is what the charge asks about the i-th subject: 0 is its own, and then come those of More. If there is
// no such subject, it is about its own.
func (c *Charge) Part(i int) Part {
	if i > 0 && i <= len(c.More) {
		return c.More[i-1]
	}
	return Part{c.User, c.Action, c.Cost, c.Limits}
}

// Parts are what the charge asks about all of its subjects, in their order.
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

// Writes reports whether the charge may change a state. A Peek does not, and neither does a charge with a cost that
// can never pass, since it is above the quota of an enforced limit: that is refused with [Never].
func (c *Charge) Writes() bool {
	if !c.Mode.Asks() {
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
