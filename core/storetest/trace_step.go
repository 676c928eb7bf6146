package storetest

// The steps of a trace.

import (
	"fmt"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"pgregory.net/rapid"
)

// A step moves the clock and then makes one call.
type step struct {
	move   move
	by     int64
	verb   verb
	who    int // limiter, user and action
	cost   int
	forget bool // the longest memory instead of the period
}

type move int

const (
	stand move = iota
	tick
	retry
	beforeRetry
	reset
	beforeReset
	period
	beforePeriod
	random
	back
	farBack
)

type verb int

const (
	allow verb = iota
	allowN
	peek
	above
	forgive
	surcharge
	ahead
	refund
	settle
	release
	renew
	ban
	unban
	status
	all
)

func drawStep(t *rapid.T) step {
	return step{
		move: rapid.SampledFrom([]move{
			stand, stand, stand, tick, retry, retry, beforeRetry, reset, beforeReset,
			period, beforePeriod, random, random, back, farBack,
		}).Draw(t, "move"),
		by: rapid.Int64Range(0, 3_000_000).Draw(t, "by"),
		verb: rapid.SampledFrom([]verb{
			allow, allow, allow, allow, allow, allow, allow, allowN, allowN, allowN, allowN, peek, peek, above, forgive,
			surcharge, ahead, ahead, refund, refund, refund, settle, settle, settle, release, release, renew, ban, unban, status, all, all, all, all,
		}).Draw(t, "verb"),
		who:    rapid.IntRange(0, 11).Draw(t, "who"),
		cost:   rapid.IntRange(0, 3).Draw(t, "cost"),
		forget: rapid.IntRange(0, 3).Draw(t, "forget") == 3,
	}
}

func (tr *trace) move(d int64) {
	tr.f.Advance(us(d))
	tr.model.advance(d)
}

func (tr *trace) step(s step) {
	n := len(tr.limiters)
	i := s.who % n
	// Of the twelve, most are one user and one action.
	user, action := "ann", "reply"
	if s.who >= 9 {
		user = "bob"
	}
	if s.who == 8 {
		action = "like"
	}
	a := tr.worlds[i]
	a.user, a.action = fmt.Sprintf("%s-%d", user, tr.run), action
	if tr.f.Advance != nil {
		if d := tr.distance(s, a.rules); d != 0 {
			tr.move(d)
			fmt.Fprintf(&tr.log, "%+d us\n", d)
		}
	}
	if tr.model.unsure(a) {
		tr.reset(i, a)
		tr.unban(i, a)
	}

	a.cost = 1
	switch s.verb {
	case allowN:
		a.cost = s.cost
	case above:
		a.cost = a.rules[s.cost%len(a.rules)].max + 1
	case peek:
		a.peek = true
	case forgive:
		tr.reset(i, a)
		return
	case surcharge:
		a.cost, a.force = s.cost+1, true
	case ahead:
		a.cost, a.ahead = s.cost%2+1, tr.patience(s, a.rules)
	case refund, settle, release, renew:
		if tr.refund(s) {
			return
		}
	case ban, unban, status:
		if a.policy != nil {
			tr.judge(s, i, a)
			return
		}
	case all:
		if tr.all(s, i, a) {
			return
		}
	}
	tr.call(i, a)
}

// patience is how long an action would wait for its turn.
func (tr *trace) patience(s step, rules []rule) int64 {
	r := rules[s.cost%len(rules)]
	if !r.meter() || tr.f.Advance == nil && s.by%2 == 0 {
		return hour
	}
	return floor(r.time(1)) + s.by%2
}

// distance is how far the step moves the clock.
func (tr *trace) distance(s step, rules []rule) int64 {
	if s.forget { // another limiter may remember a bucket for longer or shorter
		rules = tr.worlds[int(s.by)%len(tr.worlds)].rules
	}
	r := rules[s.cost%len(rules)]
	long := r.period
	switch {
	case r.kind == initial && s.forget:
		long = r.memory()
	case r.meter():
		long = ceil(r.full())
	}
	d := int64(0)
	switch s.move {
	case tick:
		d = 1
	case retry, beforeRetry:
		if tr.last.RetryAfter != core.Never {
			d = int64(tr.last.RetryAfter / time.Microsecond)
		}
	case reset, beforeReset:
		d = int64(tr.last.ResetAfter / time.Microsecond)
	case period, beforePeriod:
		d = long
	case random:
		d = s.by
	case back:
		d = -(s.by % 20_000)
	case farBack:
		d = -s.by
	}
	switch s.move {
	case beforeRetry, beforeReset, beforePeriod:
		d = max(0, d-1)
	}
	return max(d, -tr.model.now)
}

func (tr *trace) reset(i int, a question) {
	fmt.Fprintf(&tr.log, "%d.Reset(%s, %s)\n", i, a.user, a.action)
	if err := tr.limiters[i].Reset(tr.t.Context(), a.user, a.action); err != nil {
		tr.fatal(err.Error())
	}
	tr.model.reset(a)
}

// unban ends a ban, if the limiter can.
func (tr *trace) unban(i int, a question) {
	if a.policy == nil {
		return
	}
	fmt.Fprintf(&tr.log, "%d.Unban(%s, %s)\n", i, a.user, a.action)
	if err := tr.limiters[i].Unban(tr.t.Context(), a.user, a.action); err != nil {
		tr.fatal(err.Error())
	}
	tr.model.unban(a)
}

// judge does by hand what a policy does by itself.
func (tr *trace) judge(s step, i int, a question) {
	l, ctx := tr.limiters[i], tr.t.Context()
	var err error
	switch s.verb {
	case ban:
		length := max(1000, s.by%20_000)
		if tr.f.Advance == nil {
			length *= hour / 1000
		}
		fmt.Fprintf(&tr.log, "%d.Ban(%s, %s, %s)\n", i, a.user, a.action, us(length))
		err = l.Ban(ctx, a.user, a.action, us(length))
		tr.model.ban(a, length)
	case unban:
		tr.unban(i, a)
	}
	if err != nil {
		tr.fatal(err.Error())
	}
	fmt.Fprintf(&tr.log, "%d.Status(%s, %s)", i, a.user, a.action)
	got, err := l.Status(ctx, a.user, a.action)
	if want := tr.model.standingStatus(a); err != nil || !tr.f.sameBan(got.Ban, want) {
		tr.fatal(fmt.Sprintf("got %+v, %v, want %+v", got.Ban, err, want))
	}
}

// refund gives back an action, one of the last or any, whole or in part, or settles it, and looks
// at what has come of it. It reports whether there was one to choose.
func (tr *trace) refund(s step) bool {
	n := len(tr.charged)
	if n == 0 {
		return false
	}
	back := int(s.by) % n
	if s.forget {
		back %= 3
	}
	c := &tr.charged[n-1-min(back, n-1)]
	if s.verb == release || s.verb == renew {
		return tr.release(s, c)
	}
	units := c.units
	if s.move >= period { // whatever the move was for, it is drawn
		units = s.cost % (c.units + 1)
	}
	actual := c.units - units
	if s.verb == settle && s.cost > 0 {
		actual = c.units + 1 + int(s.by)%(s.cost*5)
	}
	gives := slices.ContainsFunc(c.paid, func(p payment) bool { return actual < p.units })
	if gives && tr.f.Advance == nil { // what a refund gives depends on the instant
		return false
	}
	p := c.paid[0]
	a := tr.worlds[c.limiter]
	a.user, a.action, a.cost, a.peek = p.user, p.action, 1, true
	if tr.model.unsure(a) { // what is given back into it may live on
		tr.reset(c.limiter, a)
		tr.unban(c.limiter, a)
	}
	if o := c.other; o != nil && tr.model.unsure(o.question) {
		tr.reset(o.limiter, o.question)
		tr.unban(o.limiter, o.question)
	}
	l, err := tr.limiters[c.limiter], error(nil)
	if s.verb == settle {
		fmt.Fprintf(&tr.log, "%d.Settle(%s, %s, at %d, %d instead of %d)\n", c.limiter, p.user, p.action, p.at, actual, c.units)
		err = l.Settle(tr.t.Context(), c.d, actual)
	} else {
		fmt.Fprintf(&tr.log, "%d.RefundN(%s, %s, at %d, %d of %d)\n", c.limiter, p.user, p.action, p.at, units, c.units)
		err = l.RefundN(tr.t.Context(), c.d, units)
	}
	_, able := tr.f.Store.(core.Amender)
	switch {
	case err == core.ErrNoReceipt && !able:
		return true
	case err != nil:
		tr.fatal(err.Error())
	case !c.spent && s.verb == settle:
		c.spent = true
		tr.model.settle(c.paid, actual)
	case !c.spent:
		c.spent = true
		tr.model.refund(c.paid, units)
	}
	if !tr.model.unsure(a) {
		tr.call(c.limiter, a)
	}
	if o := c.other; o != nil && !tr.model.unsure(o.question) {
		o.question.cost, o.question.peek = 1, true
		tr.call(o.limiter, o.question)
	}
	return true
}

// release releases or renews what an action has taken, and looks at what has come of it.
func (tr *trace) release(s step, c *charged) bool {
	if !slices.ContainsFunc(c.paid, func(p payment) bool { return p.rule.kind == inflight }) {
		return false
	}
	l, p := tr.limiters[c.limiter], c.paid[0]
	a := tr.worlds[c.limiter]
	a.user, a.action, a.cost, a.peek = p.user, p.action, 1, true
	if tr.model.unsure(a) {
		tr.reset(c.limiter, a)
		tr.unban(c.limiter, a)
	}
	if o := c.other; o != nil && tr.model.unsure(o.question) {
		tr.reset(o.limiter, o.question)
		tr.unban(o.limiter, o.question)
	}
	if !c.released && tr.model.mistaken(c.paid) {
		return false
	}
	done := !c.released && tr.model.release(c.paid, s.verb == renew)
	if s.verb == renew {
		fmt.Fprintf(&tr.log, "%d.Renew(%s, %s, at %d)\n", c.limiter, p.user, p.action, p.at)
		if err := l.Renew(tr.t.Context(), c.d); err != nil && err != core.ErrLeaseEnded || done != (err == nil) {
			tr.fatal(fmt.Sprintf("Renew: %v; the model says %t", err, done))
		}
	} else {
		fmt.Fprintf(&tr.log, "%d.Release(%s, %s, at %d)\n", c.limiter, p.user, p.action, p.at)
		if err := l.Release(tr.t.Context(), c.d); err != nil {
			tr.fatal(err.Error())
		}
		c.released = true
	}
	if !tr.model.unsure(a) {
		tr.call(c.limiter, a)
	}
	if o := c.other; o != nil && !tr.model.unsure(o.question) {
		o.question.cost, o.question.peek = 1, true
		tr.call(o.limiter, o.question)
	}
	return true
}
