package storetest

// The histories of the model: what a rule has counted, and what follows from it.

import (
	"math/big"
	"slices"
)

// An event is an entry of a history: units counted at an instant, or debt added to
// a meter.
type event struct {
	at    int64
	units int
	debt  *big.Rat
	by    int   // kind inflight: the charge that has the slot
	made  int64 // kind inflight: when it was made
}

// A history is the state of one rule, user and action.
type history struct {
	events []event // none: nothing is kept

	forgotten int64  // kind initial: when it is
	over      int64  // kind calendar: when the period ends that the events are in
	turn      *int64 // meters: when the last action was made, if it left more debt than the quota
	owed      bool   // meters: no turn is reserved; the debt was settled
	given     []low  // meters: what refunds have left, the oldest first
	until     int64  // meters: when all that was charged before the last of them is gone, or later

	end  int64 // from here on a store need not keep it
	past bool  // the clock has been at end, so that a store may have dropped it
}

// A low is the end of the debt just after a refund.
type low struct {
	refund int64 // a number that grows
	gone   *big.Rat
}

func instant(t int64) *int64 { return &t }

func (h history) clone() history {
	h.events, h.given = slices.Clone(h.events), slices.Clone(h.given)
	return h
}

// shift moves every event by d.
func (h *history) shift(d int64) {
	for i := range h.events {
		h.events[i].at += d
	}
}

func (h *history) units() int {
	n := 0
	for _, e := range h.events {
		n += e.units
	}
	return n
}

func (h *history) newest() int64 {
	t := h.events[0].at
	for _, e := range h.events {
		t = max(t, e.at)
	}
	return t
}

// gone is the instant at which a meter's debt ends.
func (h *history) gone() *big.Rat {
	gone := whole(h.events[0].at)
	for _, e := range h.events {
		if at := whole(e.at); gone.Cmp(at) < 0 {
			gone = at
		}
		gone = new(big.Rat).Add(gone, e.debt)
	}
	return gone
}

// debt is a meter's at an instant.
func (h *history) debt(now int64) *big.Rat {
	debt := h.gone()
	debt.Sub(debt, whole(now))
	if debt.Sign() < 0 {
		return new(big.Rat)
	}
	return debt
}

// see is the history as the rule reads it now. Times that a step back of the clock has
// put out of bounds are corrected, and a history that is past its end is empty.
// repaired says that the next action writes the correction back.
func (m *model) see(h history, r rule) (seen history, repaired bool) {
	h = h.clone()
	if len(h.events) == 0 {
		return history{}, false
	}
	switch {
	case r.meter():
		// For as long as a store keeps the state, whatever is left of it now.
		if r.kind == initial && m.now >= h.forgotten {
			return history{}, false
		}
		if h.turn != nil && *h.turn > m.now {
			ahead := *h.turn - m.now
			h.shift(-ahead)
			h.forgotten -= ahead
			h.turn, repaired = instant(m.now), true
		}
		if repaired || h.until <= m.now {
			h.given = nil
		}
		debt := h.debt(m.now)
		if debt.Cmp(r.full()) > 0 && h.turn == nil {
			debt, repaired, h.given = r.full(), true, nil
		}
		// The clock stepped back, or it was another limiter's action.
		if latest := m.now + r.memory(); r.kind == initial && h.forgotten > latest && h.turn == nil {
			h.forgotten, repaired = latest, true
		}
		h.events = []event{{at: m.now, debt: debt}}
	case r.trail():
		if ahead := h.newest() - m.now; ahead > 0 {
			h.shift(-ahead)
			repaired = true
		}
	case r.kind == calendar:
		start, end := m.calendarPeriod(r, m.now)
		switch {
		case h.over <= start:
			return history{}, false
		case h.over > end && end-m.now > 1_000_000: // the clock stepped back
			h.over, repaired = end, true
		}
	default:
		anchor := h.anchor(r)
		if anchor+r.period <= m.now {
			return history{}, false
		}
		if ahead := anchor - m.now; ahead > 0 {
			h.shift(-ahead)
			repaired = true
		}
	}
	return h, repaired
}

// anchor is the event from which a window's period runs: the first, or the last
// if the window is elastic.
func (h *history) anchor(r rule) int64 {
	if r.kind == elastic {
		return h.events[len(h.events)-1].at
	}
	return h.events[0].at
}

// closes is when a fixed, elastic or calendar window ends.
func (h *history) closes(r rule) int64 {
	if r.kind == calendar {
		return h.over
	}
	return h.anchor(r) + r.period
}

// drop removes what no longer counts.
func (h *history) drop(r rule, now int64) {
	h.events = slices.DeleteFunc(h.events, func(e event) bool { return now >= e.at+r.period })
}

// add writes an action of so many units.
func (m *model) add(h *history, r rule, units int) {
	switch {
	case r.meter():
		if len(h.events) == 0 {
			h.events = []event{{at: m.now, debt: r.start()}}
		}
		h.events = append(h.events, event{at: m.now, debt: r.time(units)})
		m.note(h, r)
	case r.trail():
		h.drop(r, m.now)
		keep := max(r.max, len(h.events))
		m.enter(h, units)
		h.events = h.events[max(0, len(h.events)-keep):]
	case r.kind == calendar && len(h.events) == 0:
		_, h.over = m.calendarPeriod(r, m.now)
		fallthrough
	default:
		h.events = append(h.events, event{at: m.now, units: units})
	}
}

// enter writes units into a trail.
func (m *model) enter(h *history, units int) {
	for range units {
		h.events = append(h.events, event{at: m.now, units: 1, by: m.charges, made: m.now})
	}
}

// note notes until when a meter's reserved turns go.
func (m *model) note(h *history, r rule) {
	h.forgotten, h.turn, h.owed = m.now, nil, false
	if over := new(big.Rat).Sub(h.debt(m.now), r.full()); over.Sign() > 0 {
		h.forgotten += ceil(over)
		h.turn = instant(m.now)
	}
	h.forgotten += r.memory()
}

// force writes as much of an action as there is room for in so many quotas.
func (m *model) force(h *history, r rule, units, quotas int) (wrote bool) {
	if r.kind == inflight {
		return false
	}
	if !r.meter() {
		units = min(units, quotas*r.max-m.count(*h, r, m.now))
		switch {
		case units <= 0:
		case r.trail():
			h.drop(r, m.now)
			m.enter(h, units)
		default:
			m.add(h, r, units)
		}
		return units > 0
	}
	level := m.level(*h, r)
	reserved := h.turn != nil && !h.owed && level.Cmp(r.full()) > 0
	room := new(big.Rat).Sub(r.time(quotas*r.max), level)
	m.add(h, r, 0)
	switch debt := r.time(units); {
	case room.Sign() < 0:
	case debt.Cmp(room) > 0:
		h.events = append(h.events, event{at: m.now, debt: room})
	default:
		h.events = append(h.events, event{at: m.now, debt: debt})
	}
	m.note(h, r)
	h.owed = h.turn != nil && !reserved
	return true
}

// count is what a window counts.
func (m *model) count(h history, r rule, at int64) int {
	if !r.trail() {
		return h.units()
	}
	h = h.clone()
	h.drop(r, at)
	return h.units()
}

func (m *model) level(h history, r rule) *big.Rat {
	if len(h.events) == 0 {
		return r.start()
	}
	return h.debt(m.now)
}

// wait is how long until units fit; 0 if they do now.
func (m *model) wait(h history, r rule, units int) int64 {
	if r.meter() {
		over := new(big.Rat).Add(m.level(h, r), r.time(units))
		return max(0, ceil(over.Sub(over, r.full())))
	}
	if m.count(h, r, m.now)+units <= r.max {
		return 0
	}
	if !r.trail() {
		return h.closes(r) - m.now
	}
	for _, e := range h.events { // oldest first
		if free := e.at + r.period; free > m.now && m.count(h, r, free)+units <= r.max {
			return free - m.now
		}
	}
	panic("unreachable: an empty window has room")
}

// wholeIn is how long until the full quota is available.
func (m *model) wholeIn(h history, r rule) int64 {
	switch {
	case r.meter():
		return ceil(m.level(h, r))
	case len(h.events) == 0:
		return 0
	case r.trail():
		return max(0, h.newest()+r.period-m.now)
	}
	return h.closes(r) - m.now
}

func (m *model) remaining(h history, r rule) int {
	if r.meter() {
		room := new(big.Rat).Sub(r.full(), m.level(h, r))
		return max(0, int(floor(room.Quo(room, r.time(1)))))
	}
	return max(0, r.max-m.count(h, r, m.now))
}
