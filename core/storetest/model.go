package storetest

// The reference model that Trace compares stores with. It is written to
// be read, not to be fast, and shares with core only the types of questions and
// answers. Histories are lists that it recounts at every call, and fractions are those
// of package big. Times are microseconds.

import (
	"fmt"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A model answers as a store must.
type model struct {
	now     int64
	charges int
	epoch   int64 // when instant 0 was, since 1970
	states  map[string]history
	records map[string]record
	maxLows int // how many are kept apart

	periods map[string][2]int64 // the last of each calendar: to find one takes long
}

func newModel(now int64) *model {
	return &model{now: now, states: map[string]history{}, records: map[string]record{}, maxLows: 8, periods: map[string][2]int64{}}
}

func (m *model) clone() *model {
	c := newModel(m.now)
	c.maxLows, c.charges, c.epoch = m.maxLows, m.charges, m.epoch
	for k, h := range m.states {
		c.states[k] = h.clone()
	}
	for k, r := range m.records {
		r.refusals = slices.Clone(r.refusals)
		c.records[k] = r
	}
	return c
}

func (m *model) advance(d int64) {
	m.now += d
	for k, h := range m.states {
		if m.now >= h.end {
			h.past = true
			m.states[k] = h
		}
	}
	for k, r := range m.records {
		if m.now >= r.end {
			r.past = true
			m.records[k] = r
		}
	}
}

func stateKey(user, action string, r rule) string {
	if r.perUser {
		action = "all actions"
	}
	return fmt.Sprintf("%q %q %s", user, action, r.identity())
}

func (m *model) reset(a question) {
	for _, r := range a.rules {
		delete(m.states, stateKey(a.user, a.action, r))
	}
}

// A question is what the model is asked.
type question struct {
	user, action string
	rules        []rule // those that are shadows come last
	policy       *policy
	cost         int
	peek, force  bool
	owe          bool // force, up to a second quota
	ahead        int64
}

// take decides. paid is what the action has taken.
func (m *model) take(a question) (d core.Decision, paid []payment) {
	if a.cost == 0 {
		a.cost, a.peek = 1, true
		d, _ := m.take(a)
		switch {
		case d.Allowed:
		case d.Reason == core.ReasonBanned:
			r, _ := m.standing(a)
			d.RetryAfter = us(m.left(r))
		default:
			d.Allowed, d.RetryAfter, d.Reason = true, 0, ""
		}
		return d, nil
	}
	d, _, paid = m.takeAll([]question{a})
	return d, paid
}

// A judged question is what the model sees for it, before it decides.
type judged struct {
	question
	seen            []history
	repaired, fits  []bool
	shadows         bool // the shadow limits have room
	limited, banned bool // why it is refused
	strict          bool // not only by slots
	never           bool // it can never pass
}

func (m *model) judge(a question) judged {
	n := len(a.rules)
	j := judged{question: a, seen: make([]history, n), repaired: make([]bool, n), fits: make([]bool, n), shadows: true}
	for i, r := range a.rules {
		j.seen[i], j.repaired[i] = m.see(m.states[stateKey(a.user, a.action, r)], r)
		wait := int64(0)
		if a.cost <= r.max {
			wait = m.wait(j.seen[i], r, a.cost)
		}
		j.fits[i] = a.force || a.cost <= r.max && (wait == 0 || r.meter() && !r.shadow && wait <= a.ahead)
		if r.shadow {
			j.shadows = j.shadows && j.fits[i]
		} else {
			j.limited = j.limited || !j.fits[i]
			j.strict = j.strict || !j.fits[i] && r.kind != inflight
			j.never = j.never || a.cost > r.max && !a.force
		}
	}
	if a.policy != nil {
		r, _ := m.standing(a)
		j.banned = m.left(r) > 0
	}
	return j
}

// takeAll decides several questions, all or none. all has the decision of each. The decision about them
// is that of the one that is refused for longest, or if none is, that of which least remains.
func (m *model) takeAll(asks []question) (d core.Decision, all []core.Decision, paid []payment) {
	var js []judged
	pass, peek := true, false
	for _, a := range asks {
		j := m.judge(a)
		js = append(js, j)
		pass = pass && !j.limited && !j.banned
		peek = peek || a.peek || j.never
	}
	for i, j := range js {
		its, pays := m.write(j, pass, peek)
		its.Subject = i
		all, paid = append(all, its), append(paid, pays...)
		tighter := i == 0
		switch {
		case tighter:
		case its.Allowed != d.Allowed:
			tighter = !its.Allowed
		case (its.Reason == core.ReasonInFlight) != (d.Reason == core.ReasonInFlight): // a slot may be free before the other has room
			tighter = its.Reason != core.ReasonInFlight
		case its.Allowed && its.Remaining != d.Remaining:
			tighter = its.Remaining < d.Remaining
		case its.RetryAfter != d.RetryAfter:
			tighter = its.RetryAfter > d.RetryAfter
		default:
			tighter = its.ResetAfter > d.ResetAfter
		}
		if tighter {
			d = its
		}
	}
	return d, all, paid
}

// write writes what comes of a question if all of them pass, or not all. d is its own decision.
func (m *model) write(a judged, pass, peek bool) (d core.Decision, paid []payment) {
	seen, fits := a.seen, a.fits
	m.charges++
	for i, r := range a.rules {
		if peek {
			break
		}
		h := &seen[i]
		write := a.repaired[i]
		switch {
		case pass && a.force:
			quotas := 1
			if a.owe {
				quotas = 2
			}
			write = m.force(h, r, a.cost, quotas) || write
		case pass && (a.shadows || !r.shadow):
			m.add(h, r, a.cost)
			write = true
		case fits[i] || a.banned || a.cost > r.max:
		case r.kind == refused:
			m.add(h, r, a.cost)
			write = true
		case r.kind == elastic:
			m.add(h, r, 0)
			write = true
		case r.kind == initial && len(h.events) == 0:
			*h = history{events: []event{{at: m.now, debt: r.start()}}, forgotten: m.now + r.memory()}
			write = true
		}
		if write {
			m.keep(a.user, a.action, r, *h)
		}
	}
	if a.policy != nil && !peek {
		m.refuse(a.question, a.strict && !a.banned)
	}

	all := !a.limited && !a.banned
	d = core.Decision{Allowed: all, Source: core.SourceStore}
	if !all {
		d.Reason = core.ReasonLimited
	}
	first := true
	for i, r := range a.rules {
		remaining, retry, reset := m.remaining(seen[i], r), time.Duration(0), us(m.wholeIn(seen[i], r))
		if r.shadow {
			switch {
			case !all:
			case !fits[i] && d.Reason != core.ReasonShadowed:
				d.Reason, d.Shadow = core.ReasonShadowed, i
			case d.Reason == "" && 5*remaining <= r.max:
				d.Reason, d.Shadow = core.ReasonNear, i
			}
			continue
		}
		if i == 0 || remaining < d.Remaining {
			d.Remaining = remaining
		}
		if a.limited && fits[i] {
			continue
		}
		switch {
		case fits[i]:
		case a.cost > r.max:
			retry = core.Never
		default:
			retry = us(m.wait(seen[i], r, a.cost))
		}
		binds := first
		if !first {
			o := a.rules[d.Binding]
			// A slot may be free before the other limit has room.
			slot := r.kind == inflight && a.cost <= r.max
			switch least := m.remaining(seen[d.Binding], o); {
			case a.limited && slot != (o.kind == inflight && a.cost <= o.max):
				binds = !slot
			case !a.limited && remaining != least:
				binds = remaining < least
			case retry != d.RetryAfter:
				binds = retry > d.RetryAfter
			default:
				binds = reset > d.ResetAfter
			}
		}
		if binds {
			d.Binding, d.Limit, d.RetryAfter, d.ResetAfter = i, r.max, retry, reset
			first = false
		}
	}
	if a.limited && a.rules[d.Binding].kind == inflight && a.cost <= a.rules[d.Binding].max {
		d.Reason = core.ReasonInFlight
	}
	if a.policy != nil {
		r, _ := m.standing(a.question)
		d.BanLevel = r.level
		if rest := us(m.left(r)); !all && rest > 0 {
			d.Reason, d.Remaining = core.ReasonBanned, 0
			d.RetryAfter, d.ResetAfter = max(d.RetryAfter, rest), max(d.ResetAfter, rest)
		}
	}
	if pass && !peek && !a.force {
		for i, r := range a.rules {
			if a.shadows || !r.shadow {
				paid = append(paid, m.payment(a.question, r, seen[i]))
			}
		}
	}
	return d, paid
}

// keep writes a history back.
func (m *model) keep(user, action string, r rule, h history) {
	key := stateKey(user, action, r)
	switch {
	case len(h.events) == 0:
		delete(m.states, key)
		return
	case r.meter() && r.kind != initial:
		h.end = m.now + ceil(h.debt(m.now))
		if len(h.given) > 0 {
			h.end = max(h.end, h.until)
		}
	case r.meter():
		h.end = h.forgotten
	case r.trail():
		h.end = h.newest() + r.period
	default:
		h.end = h.closes(r)
		if r.kind == calendar {
			h.end += 1_000_000
		}
	}
	h.past = h.end <= m.now
	m.states[key] = h.clone()
}

// unsure reports whether the answer depends on a state that was past its end, and that
// counts again: after a step back of the clock, or for a rule that remembers longer. A
// store may have dropped such a state and its refunds, so the model expects nothing.
func (m *model) unsure(a question) bool {
	if a.policy != nil && m.records[recordKey(a)].past {
		r, _ := m.standing(a)
		if m.left(r) > 0 || r.level > 0 || len(r.refusals) > 0 {
			return true
		}
	}
	for _, r := range a.rules {
		h := m.states[stateKey(a.user, a.action, r)]
		if !h.past {
			continue
		}
		seen, _ := m.see(h, r)
		switch {
		case len(seen.events) == 0:
		case r.kind == initial:
			return true
		case m.wholeIn(seen, r) > 0 || len(seen.given) > 0:
			return true
		}
	}
	return false
}
