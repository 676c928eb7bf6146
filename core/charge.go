package core

import "github.com/tailcut/tailcut/core/machine"

// A Charge is what a limiter asks of its store: may User do Action, by all of Limits?
// It is for authors of stores, as are its methods. A store neither keeps nor changes what
// it points to.
type Charge struct {
	User, Action string  // a limit with PerUser ignores the action
	Limits       []Limit // the enforced ones, the shadow ones, the ban policy's

	// Ask is the same for all limits. Ahead is set only with Receipt, and only if one
	// limit is enforced; the shadow ones ignore it. Ban is set only if Limits is the ban
	// policy's limit alone.
	machine.Ask

	// Receipt asks for a decision that can be given back: see [Decision.Issue].
	Receipt bool

	status *Status // to be filled in by Answer
}

// Check reports whether the charge may pass at the instant now, in microseconds on the
// store's clock: whether all enforced limits have room. It brings the states, one for each
// limit and in their order, to that instant.
func (c *Charge) Check(states []machine.State, now int64) bool {
	all := true
	for i := range c.Limits {
		l, s, ask := &c.Limits[i], &states[i], c.Ask
		if l.shadow {
			ask.Ahead = 0 // nobody waits for a shadow limit
		}
		l.rule.Check(s, now, ask)
		all = all && (s.Fits || l.shadow)
	}
	return all
}

// Commit charges the states as [Charge.Check] left them, and fills in d, a zero Decision. If
// all limits have room, all are charged. If not, a limit whose kind records refusals records
// its own, unless the caller is Patient. After Commit, Dirty marks the states to write. A Peek
// marks none.
func (c *Charge) Commit(d *Decision, states []machine.State, now int64) {
	var readings []machine.Reading
	pass, shadows, banned := true, true, false
	for i := range c.Limits {
		switch l := &c.Limits[i]; {
		case states[i].Fits:
		case l.shadow:
			shadows = false
		default:
			pass, banned = false, banned || l.kind == machine.KindBan
		}
	}
	refusal := c.Ask
	refusal.Patient = c.Patient && !pass // what passes may still be refused by a shadow limit
	d.Allowed, d.Source = true, SourceStore
	for i := range c.Limits {
		l, s := &c.Limits[i], &states[i]
		switch {
		case c.Mode == machine.Peek:
			s.Dirty = false
		case pass && (shadows || !l.shadow):
			l.rule.Charge(s, now, c.Ask)
		default:
			l.rule.Refuse(s, now, refusal, !banned)
		}
		v := l.rule.Read(s, now, c.Ask)
		c.add(d, i, v)
		if c.Receipt || c.status != nil {
			readings = append(readings, *v)
		}
	}
	c.finish(d, readings, now)
}
