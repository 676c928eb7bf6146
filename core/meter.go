package core

import "math"

// Meter is the state of a funnel or bucket: the instant, on the store's clock, at
// which its debt is gone, that is, at which a funnel is empty or a bucket full.
// Charging it moves that instant; time alone does the rest. This is the virtual
// scheduling form of the generic cell rate algorithm (ITU-T I.371), which
// throttled and redis-cell use too; here in whole microseconds and an exact
// fraction, so that nothing drifts.
type Meter struct {
	At        int64  // microseconds, rounded down
	Part, Den uint32 // and Part/Den of one
	Last      int64  // the last admitted action, or UnknownLast; only for a bucket with Initial

	// Turns, if not 0, says that there is debt above one full quota on purpose: turns
	// that [Limiter.Wait] has reserved. It is the instant at which the last was.
	Turns int64

	Given *Given // if something was given back not long ago
}

// Given is what a meter remembers of refunds, so that none gives what others have given
// back already. It is not changed, but replaced.
type Given struct {
	Until int64 // the instant at which all is drained that was charged before the last
	Lows  []Low // the oldest first, each later than the one before
}

// A Low is the instant at which the debt was to be gone that a refund has left.
type Low struct {
	Refund    int64 // its number, which grows
	At        int64
	Part, Den uint32 // as those of a Meter
}

// UnknownLast is the Last of a meter that a limit without Initial has written. For
// one with Initial the last action is then the first one that it sees itself.
const UnknownLast = math.MinInt64

// Expires is the instant from which the meter of a Plain limit need not be kept.
func (m *Meter) Expires() int64 {
	if m.Given != nil {
		return max(m.gone(), m.Given.Until)
	}
	return m.gone()
}

func (m *Meter) gone() int64 {
	if m.Part > 0 {
		return m.At + 1
	}
	return m.At
}

// RefusedUntil is as [State.RefusedUntil], for an action of that cost.
func (m *Meter) RefusedUntil(l *Limit, cost int64) int64 {
	return span{m.At, int64(m.Part)}.add(l.cost(cost), l.den).sub(l.full, l.den).ceil()
}

// fitsMeter brings the meter to now: At is now plus the debt afterwards.
func (l *Limit) fitsMeter(s *State, now int64, c *Charge) bool {
	m := &s.Meter
	if s.Kept && l.initial > 0 {
		if m.Last == UnknownLast {
			s.Kept = m.gone() > now
		} else {
			s.Kept = now-m.Last < l.memory
		}
	}
	debt := l.start
	if s.Kept {
		debt, s.Changed = l.debt(m, now)
		if m.Given != nil && (s.Changed || m.Given.Until <= now) {
			m.Given = nil
		}
		if l.initial > 0 && (m.Last > now && m.Turns == 0 || m.Last == UnknownLast) {
			m.Last = now
			s.Changed = true
		}
	} else {
		m.Turns, m.Given = 0, nil
	}
	if l.initial == 0 {
		m.Last = UnknownLast
	}
	m.At, m.Part, m.Den = now+debt.whole, uint32(debt.part), uint32(l.den)
	bound := l.full
	bound.whole += c.Ahead
	return c.Force || c.Cost <= int64(l.max) && !debt.add(l.cost(c.Cost), l.den).more(bound)
}

// debt is what the meter owes now. It is clamped if the clock stepped back or the
// quota shrank; where turns are reserved, they stay as far off as they were made.
func (l *Limit) debt(m *Meter, now int64) (debt span, clamped bool) {
	if back := m.Turns - now; back > 0 {
		m.At, m.Turns, clamped = m.At-back, now, true
		if m.Last != UnknownLast {
			m.Last -= back
		}
	}
	if debt = l.owed(m, now); debt.more(l.full) && m.Turns == 0 {
		return l.full, true
	}
	return debt, clamped
}

// owed is the debt as the meter has it.
func (l *Limit) owed(m *Meter, now int64) span {
	switch {
	case m.At < now:
		return span{}
	case m.Part > 0 && int64(m.Den) != l.den:
		return span{m.At - now + 1, 0}
	}
	return span{m.At - now, int64(m.Part)}
}

// Plain is whether the limit is a bucket or funnel without Initial.
func (l *Limit) Plain() bool {
	return l.kind == KindFunnel || l.kind == KindTokenBucket && l.initial == 0
}

// A Level is what a meter holds after a charge, as in a [Reading]. It is as large as
// a function can return in registers: structs that are copied cost more than the
// decision.
type Level struct {
	Known      bool // if not, nothing was decided
	Fits       bool
	Rest, Part int64
}

// Pour decides a charge that is [Charge.Short], by a meter without turns: what Check and
// Commit would, in one go. kept is whether the meter is one that was kept. If the charge
// fits, m is to be written back; one that would be clamped is not decided. until is the
// instant until which the next of cost 1 is refused, or this one; or 0.
func (l *Limit) Pour(m *Meter, kept bool, now, cost int64) (v Level, until int64) {
	var debt span
	if kept {
		if debt = l.owed(m, now); debt.more(l.full) {
			return v, 0
		}
	}
	v.Known = true
	next := debt.add(l.cost(cost), l.den)
	if v.Fits = !next.more(l.full); v.Fits {
		debt = next
		next = debt.add(l.tick, l.den)
		m.At, m.Part, m.Den = now+debt.whole, uint32(debt.part), uint32(l.den)
	}
	if next.more(l.full) {
		until = now + next.sub(l.full, l.den).ceil()
	}
	v.Rest, v.Part = debt.whole, debt.part
	return v, until
}

// Poured fills in the zero Decision of a charge that Pour has decided.
func (l *Limit) Poured(d *Decision, v Level, cost int64) {
	d.Allowed, d.Source, d.Limit = v.Fits, SourceStore, l.max
	debt := span{v.Rest, v.Part}
	d.Remaining = int(l.units(l.full.sub(debt, l.den)))
	d.ResetAfter = micros(debt.ceil())
	if !v.Fits {
		d.Reason = ReasonLimited
		d.RetryAfter = micros(debt.add(l.cost(cost), l.den).sub(l.full, l.den).ceil())
	}
}

func (l *Limit) chargeMeter(s *State, now int64, c *Charge) {
	m := &s.Meter
	debt := span{m.At - now, int64(m.Part)}
	after := debt.add(l.cost(min(c.Cost, int64(l.max))), l.den)
	if c.Force && after.more(l.full) { // as much as there is room for
		after = l.full
		if debt.more(l.full) {
			after = debt
		}
	}
	m.At, m.Part = now+after.whole, uint32(after.part)
	turn := now
	if m.Turns = 0; after.more(l.full) {
		m.Turns = now
		turn += after.sub(l.full, l.den).ceil()
	}
	if l.initial > 0 {
		m.Last = turn
	}
}

// cost is the time that n units take.
func (l *Limit) cost(n int64) span {
	if n == 1 {
		return l.tick
	}
	return l.times(n)
}
