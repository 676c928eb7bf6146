package storetest

import (
	"math"
	"math/big"
	"slices"
)

// This file is the reference for refunds.

// A payment is what an action has taken from one limit.
type payment struct {
	user, action string
	rule         rule
	at           int64
	units        int
	gone         *big.Rat // meters: when the debt after it is gone
	refund       int64    // meters: the last that it knows of
	end          int64    // kinds fixed and calendar: of the window
	opened       bool     // kind fixed: with nothing in it but this
	by           int      // kind inflight
}

func (m *model) payment(a question, r rule, h history) payment {
	p := payment{user: a.user, action: a.action, rule: r, at: m.now, units: a.cost, by: m.charges}
	switch {
	case r.meter():
		p.gone = new(big.Rat).Add(whole(m.now), h.debt(m.now))
		p.refund = h.lastRefund()
	case r.kind == calendar:
		p.end = h.over
	case r.kind == fixed:
		p.end, p.opened = h.anchor(r)+r.period, h.units() == a.cost
	}
	return p
}

// refund gives back units of what was paid.
func (m *model) refund(paid []payment, units int) {
	for _, p := range paid {
		r := p.rule
		h := m.states[stateKey(p.user, p.action, r)].clone()
		if len(h.events) == 0 || h.past || m.now < p.at || r.kind == inflight {
			continue
		}
		switch {
		case r.meter():
			if !m.refundMeter(&h, p, units) {
				continue
			}
		case r.trail():
			if r.kind == refused && m.count(h, r, m.now) >= r.max {
				continue
			}
			left := units
			h.events = slices.DeleteFunc(h.events, func(e event) bool {
				if e.at != p.at || left == 0 {
					return false
				}
				left--
				return true
			})
		case (r.kind == fixed || r.kind == calendar) && h.closes(r) != p.end, r.kind == elastic && m.now >= p.at+r.period:
			continue
		case r.kind == fixed && p.opened && units == p.units && h.units() > units:
			continue
		default:
			h.takeOut(units)
		}
		m.keep(p.user, p.action, r, h)
	}
}

// settle makes of what was charged what it has cost.
func (m *model) settle(paid []payment, actual int) {
	for len(paid) > 0 {
		a := question{user: paid[0].user, action: paid[0].action, cost: actual - paid[0].units, force: true, owe: true}
		others := slices.IndexFunc(paid, func(p payment) bool { return p.user != a.user || p.action != a.action })
		if others < 0 {
			others = len(paid)
		}
		its := paid[:others]
		paid = paid[others:]
		for _, p := range its {
			if p.rule.kind != inflight {
				a.rules = append(a.rules, p.rule)
			}
		}
		switch {
		case a.cost < 0:
			m.refund(its, -a.cost)
		case a.cost > 0 && len(a.rules) > 0:
			m.take(a)
		}
	}
}

// mistaken reports whether a charge has lost its slots, and another one made at the same instant has
// some. That takes a Reset while the clock stands still, or a clock that stepped back: a store may then
// take one for the other.
func (m *model) mistaken(paid []payment) bool {
	for _, p := range paid {
		h := m.states[stateKey(p.user, p.action, p.rule)]
		its := func(e event) bool { return e.by == p.by && m.now < e.at+p.rule.period }
		another := func(e event) bool { return e.by != p.by && max(e.made-p.at, p.at-e.made) < 100 }
		if p.rule.kind == inflight && !slices.ContainsFunc(h.events, its) && slices.ContainsFunc(h.events, another) {
			return true
		}
	}
	return false
}

// release frees the slots of what was paid, or renews them. It reports whether all that are enforced were
// still taken.
func (m *model) release(paid []payment, renew bool) (done bool) {
	done = true
	for _, p := range paid {
		r := p.rule
		if r.kind != inflight {
			continue
		}
		h, found := m.states[stateKey(p.user, p.action, r)].clone(), false
		if len(h.events) > 0 && !h.past {
			h, _ = m.see(h, r)
			h.events = slices.DeleteFunc(h.events, func(e event) bool {
				its := e.by == p.by && m.now < e.at+r.period
				found = found || its
				return its
			})
		}
		done = done && (found || r.shadow)
		if !found {
			continue
		}
		for range p.units {
			if renew {
				h.events = append(h.events, event{at: m.now, units: 1, by: p.by, made: p.at})
			}
		}
		m.keep(p.user, p.action, r, h)
	}
	return done
}

// refundMeter takes out at most what is left of the debt after the action, and of the
// debt after any refund since. It takes out nothing if there is no debt now, so that a
// step back of the clock finds the same debt, or if other callers wait behind the
// action.
func (m *model) refundMeter(h *history, p payment, units int) (given bool) {
	left := new(big.Rat).Set(p.gone)
	for _, low := range h.given {
		if low.refund > p.refund && low.gone.Cmp(left) < 0 {
			left.Set(low.gone)
		}
	}
	gone := h.gone()
	if gone.Cmp(left) < 0 { // the clock stepped back and cut the debt
		left.Set(gone)
	}
	left.Sub(left, whole(m.now))
	if left.Sign() <= 0 || h.debt(m.now).Sign() == 0 {
		return false
	}
	give := p.rule.time(units)
	if give.Cmp(left) > 0 {
		give = left
	}
	if debt := new(big.Rat).Sub(gone, whole(m.now)); h.turn != nil && !h.owed && debt.Cmp(p.rule.full()) > 0 && gone.Cmp(p.gone) != 0 {
		return false
	}
	if len(h.given) == 0 {
		h.until = 0
	}
	h.until = max(h.until, ceil(gone))
	gone = new(big.Rat).Sub(gone, give)
	h.remember(p.refund, give, gone, m.now, m.maxLows)
	h.until = max(h.until, h.lastRefund()+1) // or the number of a later one could be lower
	at := floor(gone)
	h.events = []event{{at: at, debt: new(big.Rat).Sub(gone, whole(at))}}
	return true
}

func (h *history) lastRefund() int64 {
	if len(h.given) == 0 {
		return 0
	}
	return h.given[len(h.given)-1].refund
}

// remember adds the low of a refund. The action knew of the refunds up to known. Without
// the units given back, the lows after known would have been lower, so they are lowered.
// A low that is not lower than all later ones is dropped, and of the lows that are past
// only the last one stays. If there are too many, the two nearest become one, the lower.
func (h *history) remember(known int64, gave, gone *big.Rat, now int64, maxLows int) {
	var lows []low
	for _, l := range append(h.given, low{refund: max(h.lastRefund()+1, now), gone: gone}) {
		if l.refund > known && l.gone != gone {
			l.gone = new(big.Rat).Sub(l.gone, gave)
		}
		lows = append(lows, l)
	}
	h.given = nil
	for i, l := range lows {
		useful := true
		for _, later := range lows[i+1:] {
			useful = useful && l.gone.Cmp(later.gone) < 0 && floor(later.gone) >= now
		}
		if useful {
			h.given = append(h.given, l)
		}
	}
	if len(h.given) > maxLows {
		nearest, gap := 0, int64(math.MaxInt64)
		for i := range h.given[1:] {
			if g := floor(h.given[i+1].gone) - floor(h.given[i].gone); g < gap {
				nearest, gap = i, g
			}
		}
		h.given[nearest].refund = h.given[nearest+1].refund
		h.given = slices.Delete(h.given, nearest+1, nearest+2)
	}
}

// takeOut takes units out of a window. If other events remain, it keeps the event that
// the window runs from.
func (h *history) takeOut(units int) {
	for i := range h.events {
		n := min(units, h.events[i].units)
		h.events[i].units -= n
		units -= n
	}
	if h.units() == 0 {
		h.events = nil
	}
}
