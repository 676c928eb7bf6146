package storetest

import (
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
)

// This file is the reference model that Trace compares stores with. It is written to
// be read, not to be fast, and shares with core only the types of questions and
// answers. Histories are lists that it recounts at every call, and fractions are those
// of package big. Times are microseconds.

// A rule is the parameters of a limit, apart from core.Limit.
type rule struct {
	kind    kind
	max     int
	period  int64 // windows; of a calendar the longest
	unit    core.CalendarUnit
	zone    *time.Location
	n       int // meters: n per d
	d       int64
	initial int   // kind initial
	forget  int64 // kind initial; 0 is the default
	lease   int64 // 0: it is not leased. The other numbers are those by which it is then checked
	name    string
	shadow  bool
	perUser bool
}

type kind int

const (
	fixed kind = iota
	funnel
	sliding
	moving
	elastic
	refused // SlidingWindow with CountRefused
	bucket
	initial // TokenBucket with Initial
	throttle
	inflight // InFlight, whose period is the lease
	calendar
	kinds
)

const day = int64(24 * time.Hour / time.Microsecond)

func us(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// limit makes the core.Limit that the rule describes.
func (r rule) limit() core.Limit {
	var l core.Limit
	period, capacity := r.period, r.max
	switch {
	case r.kind == moving:
		period -= r.lease
	case r.meter():
		capacity += int(ceil(new(big.Rat).Quo(whole(r.lease), r.time(1))))
	}
	switch rate := core.Per(r.n, us(r.d)); r.kind {
	case fixed:
		l = core.FixedWindow(r.max, us(r.period))
	case sliding:
		l = core.SlidingWindow(r.max, us(r.period))
	case moving:
		l = core.MovingWindow(r.max, us(period))
	case elastic:
		l = core.ElasticWindow(r.max, us(r.period))
	case refused:
		l = core.SlidingWindow(r.max, us(r.period)).CountRefused()
	case calendar:
		l = core.CalendarWindow(r.max, r.unit, r.zone)
	case bucket:
		l = core.TokenBucket(capacity, rate)
	case initial:
		l = core.TokenBucket(r.max, rate).Initial(r.initial)
		if r.forget != 0 {
			l = l.ForgetAfter(us(r.forget))
		}
	case funnel:
		l = core.Funnel(capacity, rate)
	case throttle:
		l = core.Throttle(capacity-1, rate)
	case inflight:
		l = core.InFlight(r.max).Lease(us(r.period))
	}
	if r.lease != 0 {
		l = l.Leased(us(r.lease))
	}
	if r.name != "" {
		l = l.Named(r.name)
	}
	if r.shadow {
		l = l.Shadow()
	}
	if r.perUser {
		l = l.PerUser()
	}
	return l
}

// identity is equal for rules that share state. It does not include a window's max.
func (r rule) identity() string {
	k := r.kind
	switch k {
	case throttle:
		k = funnel
	}
	if r.meter() {
		return fmt.Sprint(k, r.max, r.time(1), r.initial, r.lease, r.name, r.shadow, r.perUser)
	}
	return fmt.Sprint(k, r.period, r.lease, r.unit, r.zone, r.name, r.shadow, r.perUser)
}

func (r rule) meter() bool {
	return r.kind == bucket || r.kind == initial || r.kind == funnel || r.kind == throttle
}

func (r rule) trail() bool {
	return r.kind == sliding || r.kind == moving || r.kind == refused || r.kind == inflight
}

// time is how long a meter needs for so many units.
func (r rule) time(units int) *big.Rat {
	return new(big.Rat).Mul(big.NewRat(r.d, int64(r.n)), whole(int64(units)))
}

func (r rule) full() *big.Rat { return r.time(r.max) }

// start is the debt of a meter without a history.
func (r rule) start() *big.Rat {
	if r.kind != initial {
		return new(big.Rat)
	}
	return r.time(r.max - r.initial)
}

func (r rule) memory() int64 {
	if r.forget != 0 {
		return max(r.forget, ceil(r.full())+1)
	}
	return ceil(r.full()) + day
}

func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64() // Euclidean, and Denom is positive
}

func ceil(r *big.Rat) int64 { return -floor(new(big.Rat).Neg(r)) }

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
