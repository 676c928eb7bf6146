package storetest

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An entry is what an attempt has written to a limit.
type entry struct {
	at      int64
	units   int      // taken; those given back are taken away again
	refusal bool     // recorded, of so many units
	debt    *big.Rat // instead: what a surcharge of a meter found room for
}

// twin is the state of a limit in a world in which only the entries were made.
func twin(r rule, entries []entry, now int64) *model {
	m := newModel(0)
	for _, e := range entries {
		m.advance(e.at - m.now)
		h, _ := m.see(m.states[stateKey("u", "a", r)], r)
		switch {
		case e.debt != nil:
			m.add(&h, r, 0)
			h.events = append(h.events, event{at: m.now, debt: e.debt})
			m.note(&h, r)
		case e.units == 0 && r.kind != initial:
			continue // of a bucket with Initial it stays that it was started, and when it was used
		case e.refusal && r.kind == elastic:
			if len(h.events) == 0 {
				continue // it would not have been refused
			}
			m.add(&h, r, 0)
		case e.refusal && r.kind == initial:
			if len(h.events) == 0 {
				h = history{events: []event{{at: m.now, debt: r.start()}}, forgotten: m.now + r.memory()}
			}
		default:
			if r.trail() {
				h.drop(r, m.now)
				m.enter(&h, e.units)
			} else {
				m.add(&h, r, e.units)
			}
		}
		m.keep("u", "a", r, h)
	}
	m.advance(now - m.now)
	return m
}

// waits are how long it takes until 1, 2, ... units fit.
func (m *model) waits(r rule) (waits []int64) {
	h, _ := m.see(m.states[stateKey("u", "a", r)], r)
	for n := range r.max {
		waits = append(waits, m.wait(h, r, n+1))
	}
	return waits
}

// What is given back is never more than if the action had never happened: no cost
// passes sooner than in a world without it, in which the same others were admitted;
// or, if that is a FixedWindow which would then have opened later, no sooner than
// without the refund.
func TestRefundNeverGivesMore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := &trace{t: rt, f: Fixture{Advance: func(time.Duration) {}}}
		r := tr.drawRule(nil)
		r.forget = 0 // when a bucket is forgotten is not given back
		m := newModel(60_000_000)
		m.maxLows = rapid.IntRange(1, 8).Draw(rt, "lows")
		var entries []entry
		type action struct {
			entry, units int
			paid         []payment
		}
		var actions []action
		var log strings.Builder
		fmt.Fprintln(&log, r.limit())
		retry := int64(0)
		tie := false
		for range rapid.IntRange(0, 60).Draw(rt, "steps") {
			unit := int64(1000)
			if r.meter() {
				unit = floor(r.time(1))
			} else {
				unit = r.period / 4
			}
			d := rapid.SampledFrom([]int64{0, 0, 0, 1, unit / 2, unit / 2, unit / 3, unit, 2 * unit, retry, max(0, retry-1)}).Draw(rt, "wait")
			m.advance(d)
			a := question{user: "u", action: "a", rules: []rule{r}, cost: rapid.IntRange(1, 2).Draw(rt, "cost")}
			switch rapid.SampledFrom([]verb{allow, allow, ahead, surcharge, settle, refund, refund, refund}).Draw(rt, "verb") {
			case refund:
				if len(actions) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(actions)-1).Draw(rt, "which")
				x := actions[i]
				actions = append(actions[:i], actions[i+1:]...)
				units := x.units
				if rapid.IntRange(0, 3).Draw(rt, "part") == 3 {
					units = 1
				}
				before := m.waits(r)
				count := m.count(m.states[stateKey("u", "a", r)], r, m.now)
				m.refund(x.paid, units)
				if r.kind != fixed || m.count(m.states[stateKey("u", "a", r)], r, m.now) < count {
					entries[x.entry].units -= units // else it stays that it opened the window
				}
				fmt.Fprintf(&log, "at %d: give back %d of the action at %d\n", m.now, units, x.paid[0].at)
				world := entries
				tie = tie || r.kind == refused && slices.ContainsFunc(entries, func(e entry) bool { return e.refusal && e.at == x.paid[0].at })
				if tie {
					// Which of the entries of an instant were refusals is not kept.
					world = slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.refusal })
				}
				after, without := m.waits(r), twin(r, world, m.now).waits(r)
				for n := range after {
					if after[n] < without[n] && (r.kind != fixed || after[n] < before[n]) {
						rt.Fatalf("\n%sa cost of %d passes in %d us, and in %d without the action", log.String(), n+1, after[n], without[n])
					}
				}
				continue
			case ahead:
				a.ahead = 2 * unit
			case surcharge:
				a.force = true
			case settle: // of an action that has cost more; which one is all the same
				a.cost = rapid.IntRange(1, 2*r.max).Draw(rt, "more")
				a.force, a.owe = true, true
			}
			seen, _ := m.see(m.states[stateKey("u", "a", r)], r)
			got, paid := m.take(a)
			retry = 0
			switch {
			case a.force && r.meter():
				after, _ := m.see(m.states[stateKey("u", "a", r)], r)
				entries = append(entries, entry{at: m.now, debt: new(big.Rat).Sub(m.level(after, r), m.level(seen, r))})
			case a.force:
				after, _ := m.see(m.states[stateKey("u", "a", r)], r)
				entries = append(entries, entry{at: m.now, units: m.count(after, r, m.now) - m.count(seen, r, m.now)})
			case got.Allowed:
				entries = append(entries, entry{at: m.now, units: a.cost})
			case a.cost > r.max: // writes nothing
			case r.kind == initial:
				entries = append(entries, entry{at: m.now, refusal: true})
			case r.kind == refused || r.kind == elastic:
				entries = append(entries, entry{at: m.now, units: a.cost, refusal: true})
			}
			if !got.Allowed {
				retry = got.RetryAfter.Microseconds()
			}
			if paid != nil {
				actions = append(actions, action{len(entries) - 1, a.cost, paid})
			}
			fmt.Fprintf(&log, "at %d: %d units, ahead %d, force %v: %s\n", m.now, a.cost, a.ahead, a.force, show(got))
		}
	})
}

// However turns are reserved and given back, those that are kept come when the funnel
// has room for them.
func TestTurnsThatAreKeptFit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rule{kind: funnel, max: rapid.IntRange(1, 4).Draw(rt, "max"), n: 1, d: 1000}
		m := newModel(60_000_000)
		type action struct {
			turn, units int64
			paid        []payment
		}
		var actions []action
		var kept []event // at their turns
		var log strings.Builder
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			m.advance(rapid.SampledFrom([]int64{0, 0, 0, 1, 300, 500, 1000, 2000}).Draw(rt, "wait"))
			if i := rapid.IntRange(-3, len(actions)-1).Draw(rt, "give back"); i >= 0 {
				x := actions[i]
				before := m.states[stateKey("u", "a", r)].clone()
				m.refund(x.paid, int(x.units))
				if after := m.states[stateKey("u", "a", r)]; len(after.events) == 0 || after.gone().Cmp(before.gone()) != 0 {
					actions = slices.Delete(actions, i, i+1)
					fmt.Fprintf(&log, "at %d: the action at %d, whose turn is at %d, is given back\n", m.now, x.paid[0].at, x.turn)
				}
				continue
			}
			cost := rapid.IntRange(1, 2).Draw(rt, "cost")
			d, paid := m.take(question{user: "u", action: "a", rules: []rule{r}, cost: cost, ahead: 10_000})
			if d.Allowed {
				turn := max(m.now, ceil(new(big.Rat).Sub(paid[0].gone, r.full())))
				actions = append(actions, action{turn, int64(cost), paid})
				fmt.Fprintf(&log, "at %d: %d units, whose turn is at %d\n", m.now, cost, turn)
			}
		}
		for _, x := range actions {
			kept = append(kept, event{at: x.turn, debt: r.time(int(x.units))})
		}
		slices.SortStableFunc(kept, func(a, b event) int { return int(a.at - b.at) })
		for i := range kept {
			if h := (history{events: kept[:i+1]}); h.debt(kept[i].at).Cmp(r.full()) > 0 {
				rt.Fatalf("\n%s%s: at %d there is no room", log.String(), r.limit(), kept[i].at)
			}
		}
	})
}
