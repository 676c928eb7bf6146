package storetest

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"pgregory.net/rapid"
)

// Trace compares the store with the reference model, decision by decision, on
// random traces. A trace has a few limiters, some of which share states under
// other numbers, and a few users and actions. Its clock often stands still, stops
// at exact boundaries or just before them, and sometimes steps back.
//
// If the store's clock runs by itself, a trace stays within an instant, and its
// limits are so slow that the clock does not matter.
func Trace(t *testing.T, open func(testing.TB) Fixture) {
	f := open(t)
	f.random(t, func(rt *rapid.T, run int) {
		tr := &trace{t: rt, f: f, run: run, model: newModel(0)}
		if f.Now != nil {
			tr.model.epoch = f.Now().UnixMicro()
		}
		tr.play()
	})
}

// random has rapid check as many runs as the fixture says. They are numbered from 1.
func (f *Fixture) random(t *testing.T, check func(rt *rapid.T, run int)) {
	left, asked := f.Traces, false
	if left == 0 {
		left = 500
	}
	if testing.Short() {
		left = (left + 9) / 10
	}
	flag.Visit(func(g *flag.Flag) { asked = asked || g.Name == "rapid.checks" })
	if asked {
		left = 1 // call of Check, which runs as many as the flag says
	}
	for runs := 0; left > 0; {
		failed := false
		rapid.Check(t, func(rt *rapid.T) {
			// rapid.Check takes its number of runs only from a flag, so extra runs return here.
			// After a failure they go on, so that rapid can shrink it.
			if left--; left < 0 && !asked && !failed {
				return
			}
			runs++
			done := false
			defer func() { failed = failed || !done }()
			check(rt, runs)
			done = true
		})
	}
}

// A trace is one run: a world of limiters and the steps taken in it.
type trace struct {
	t     *rapid.T
	f     Fixture
	run   int // part of every user, so that each run starts from nothing
	model *model

	store    *eager
	limiters []*core.Limiter
	worlds   []question // what the model is asked for each limiter
	receipts []bool
	charged  []charged
	last     core.Decision
	queued   bool // turns were reserved
	honest   bool // check that the model's own answers come true
	log      strings.Builder
}

// charged is an action that can be given back.
type charged struct {
	limiter  int
	d        core.Decision
	paid     []payment
	units    int
	spent    bool
	released bool
	other    *other // the second subject
}

// eager is a store whose charges may be made ahead, as core.Limiter.Wait's are.
type eager struct {
	core.Store
	ahead int64
}

func (s *eager) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.ahead > 0 {
		t := *c.Terms
		t.Ahead, t.Receipt = s.ahead, true
		c.Terms = &t
	}
	return s.Store.Take(ctx, c)
}

func (s *eager) Unwrap() core.Store { return s.Store }

var (
	periods = []int64{1_000_000, 10_000, 1000, 999_983}
	counts  = []int{1, 2, 3, 6, 7, 1000}
	hour    = int64(time.Hour / time.Microsecond)

	// In New York, the days before and after a change of the clock are seldom met. The calendar's own
	// tests look for them.
	zones = []string{"UTC", "America/New_York", "Asia/Kathmandu"}
)

// drawRule draws a rule, often one that shares the state of one in others.
func (tr *trace) drawRule(others []rule) rule {
	if len(others) > 0 && rapid.Bool().Draw(tr.t, "shared") {
		return tr.drawOther(rapid.SampledFrom(others).Draw(tr.t, "with"))
	}
	var able []kind
	for k := range kinds {
		if _, amends := tr.f.Store.(core.Amender); (k != inflight || amends) && (k != calendar || tr.f.Now != nil) {
			able = append(able, k)
		}
	}
	r := rule{kind: rapid.SampledFrom(able).Draw(tr.t, "kind")}
	if rapid.IntRange(0, 3).Draw(tr.t, "named") == 3 {
		r.name = "other"
	}
	r.perUser = rapid.IntRange(0, 3).Draw(tr.t, "per user") == 3
	if r.kind == calendar {
		tr.drawCalendar(&r)
	} else if !r.meter() {
		r.period = rapid.SampledFrom(periods).Draw(tr.t, "period")
		if tr.f.Advance == nil {
			r.period = r.period / 1000 * hour
		}
	}
	if r.kind == fixed || r.kind == moving {
		r.lease = tr.drawLease(r.period)
	}
	return tr.drawNumbers(r)
}

// drawCalendar draws the unit and the zone of a calendar. On a clock that runs, no period ends.
func (tr *trace) drawCalendar(r *rule) {
	lengths := map[core.CalendarUnit]int64{core.Minute: hour / 60, core.Hour: hour, core.Day: day, core.Month: 31 * day, core.Year: 366 * day}
	r.unit = core.Year
	if tr.f.Advance != nil {
		r.unit = rapid.SampledFrom([]core.CalendarUnit{core.Minute, core.Minute, core.Hour, core.Day, core.Month}).Draw(tr.t, "unit")
	}
	if r.period = lengths[r.unit]; r.unit == core.Month {
		r.unit = core.Month.From(rapid.SampledFrom([]int{1, 17, 31}).Draw(tr.t, "from"))
	}
	zone := rapid.SampledFrom(zones).Draw(tr.t, "zone")
	var err error
	if r.zone, err = time.LoadLocation(zone); err != nil {
		tr.t.Fatal(err)
	}
}

// drawLease draws the lease of a rule with that period: none, or the longest.
func (tr *trace) drawLease(period int64) int64 {
	longest := period / 11
	if longest < 1000 || rapid.IntRange(0, 3).Draw(tr.t, "leased") != 3 {
		return 0
	}
	return longest
}

// drawOther draws the numbers that are not in a rule's identity. Of a meter it sometimes
// draws all numbers.
func (tr *trace) drawOther(r rule) rule {
	if !r.meter() || rapid.IntRange(0, 3).Draw(tr.t, "other numbers") == 3 {
		return tr.drawNumbers(r)
	}
	if r.kind == funnel || r.kind == throttle {
		r.kind = rapid.SampledFrom([]kind{funnel, throttle}).Draw(tr.t, "funnel")
	}
	if by := rapid.SampledFrom([]int{1, 2}).Draw(tr.t, "rate"); r.d*int64(by) <= hour {
		r.n, r.d = r.n*by, r.d*int64(by)
	}
	return tr.drawMemory(r)
}

// drawNumbers draws a rule's numbers.
func (tr *trace) drawNumbers(r rule) rule {
	r.max = rapid.IntRange(1, 6).Draw(tr.t, "max")
	if !r.meter() {
		return r
	}
	if r.kind == funnel && rapid.Bool().Draw(tr.t, "throttle") {
		r.kind = throttle
	}
	if r.kind == bucket || r.kind == initial {
		r.kind = rapid.SampledFrom([]kind{bucket, initial}).Draw(tr.t, "bucket")
	}
	r.n = rapid.SampledFrom(counts).Draw(tr.t, "n")
	r.d = rapid.SampledFrom(periods).Draw(tr.t, "d")
	if tr.f.Advance == nil {
		r.n, r.d = 1, r.d/1000*hour
	}
	r.initial, r.lease = 0, 0
	if r.kind == initial {
		r.initial = rapid.IntRange(1, r.max).Draw(tr.t, "initial")
	} else {
		r.lease = tr.drawLease(floor(r.full()))
	}
	return tr.drawMemory(r)
}

// drawMemory draws when a bucket with Initial is forgotten.
func (tr *trace) drawMemory(r rule) rule {
	if r.kind == initial {
		r.forget = rapid.SampledFrom([]int64{-1, 0, 1, 500_000, 3_000_000}).Draw(tr.t, "forget")
		if r.forget++; r.forget != 0 { // 0 is the default
			r.forget += ceil(r.full()) - 1
		}
	}
	return r
}

// drawPolicy draws the policy of some limiters.
func (tr *trace) drawPolicy() *policy {
	if rapid.IntRange(0, 3).Draw(tr.t, "policy") != 3 {
		return nil
	}
	unit := int64(1)
	if tr.f.Advance == nil {
		unit = hour / 1000
	}
	if rapid.IntRange(0, 3).Draw(tr.t, "by hand") == 3 {
		return &policy{forgetAfter: 24 * hour}
	}
	l := &policy{
		refusals:    rapid.IntRange(1, 4).Draw(tr.t, "refusals"),
		within:      rapid.SampledFrom(periods).Draw(tr.t, "within") * unit,
		forgetAfter: rapid.SampledFrom(periods).Draw(tr.t, "forgetAfter") * unit,
		perUser:     rapid.Bool().Draw(tr.t, "per user"),
	}
	for range rapid.IntRange(1, 3).Draw(tr.t, "bans") {
		l.bans = append(l.bans, rapid.SampledFrom([]int64{1000, 5000, 30_000, 1_000_000}).Draw(tr.t, "ban")*unit)
	}
	return l
}

// drawWorld draws up to three limiters of up to three rules, and at times of more
// that are shadows.
func (tr *trace) drawWorld() {
	var others []rule
	tr.store = &eager{Store: tr.f.Store}
	for i := range rapid.IntRange(1, 3).Draw(tr.t, "limiters") {
		var rules []rule
		var limits, shadowed []core.Limit
		has := map[string]bool{}
		enforced := rapid.IntRange(1, 3).Draw(tr.t, "limits")
		shadows := max(0, rapid.IntRange(-5, 2).Draw(tr.t, "shadows"))
		for n := range enforced + shadows {
			r := tr.drawRule(others)
			if r.shadow = n >= enforced; has[r.identity()] {
				continue
			}
			has[r.identity()] = true
			rules = append(rules, r)
			if r.shadow {
				shadowed = append(shadowed, r.limit())
			} else {
				limits = append(limits, r.limit())
			}
		}
		limits = append(shadowed, limits...) // New puts the enforced ones first
		l, err := core.New(tr.store, limits...)
		if err != nil {
			tr.t.Fatal(err)
		}
		fmt.Fprintf(&tr.log, "limiter %d: %v", i, limits)
		var options []core.Option
		policy := tr.drawPolicy()
		if policy != nil {
			options = append(options, policy.option())
		}
		receipts := rapid.Bool().Draw(tr.t, "receipts")
		if receipts {
			options = append(options, core.Refundable{})
		}
		if l, err = l.With(options...); err != nil {
			tr.t.Fatal(err)
		}
		fmt.Fprintf(&tr.log, " %+v\n", options)
		others = append(others, rules...)
		tr.limiters, tr.receipts = append(tr.limiters, l), append(tr.receipts, receipts)
		tr.worlds = append(tr.worlds, question{rules: rules, policy: policy})
	}
}

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

func (tr *trace) play() {
	tr.drawWorld()
	if tr.f.Advance != nil {
		tr.move(60_000_000) // room to step back into
	}
	// A slice that is drawn in parts is long on the average and shrinks to little.
	steps := rapid.SliceOfN(rapid.Custom(drawStep), 0, 20)
	for range 8 {
		for _, s := range steps.Draw(tr.t, "steps") {
			tr.step(s)
		}
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

// ask asks a limiter.
func (tr *trace) ask(i int, a question) (core.Decision, error) {
	l, ctx := tr.limiters[i], tr.t.Context()
	switch {
	case a.peek:
		fmt.Fprintf(&tr.log, "%d.Peek(%s, %s)", i, a.user, a.action)
		return l.Peek(ctx, a.user, a.action)
	case a.force:
		fmt.Fprintf(&tr.log, "%d.Surcharge(%s, %s, %d)", i, a.user, a.action, a.cost)
		return l.Surcharge(ctx, a.user, a.action, a.cost)
	}
	fmt.Fprintf(&tr.log, "%d.AllowN(%s, %s, %d)", i, a.user, a.action, a.cost)
	if a.ahead > 0 {
		fmt.Fprintf(&tr.log, " up to %d us ahead", a.ahead)
	}
	tr.store.ahead = a.ahead
	defer func() { tr.store.ahead = 0 }()
	return l.AllowN(ctx, a.user, a.action, a.cost)
}

func (tr *trace) call(i int, a question) {
	got, err := tr.ask(i, a)
	if a.force {
		a.policy = nil
	}
	want, paid := tr.model.take(a)
	d := bare(got)
	tr.compare(d, want, err)
	inFlight := slices.ContainsFunc(a.rules, func(r rule) bool { return r.kind == inflight })
	if paid != nil && (tr.receipts[i] || a.ahead > 0 || inFlight) {
		tr.charged = append(tr.charged, charged{limiter: i, d: got, paid: paid, units: a.cost})
	}
	tr.last = d
	tr.queued = tr.queued || a.ahead > 0
	// A slot may be released at any moment, so RetryAfter does not wait for it if another limit or a ban
	// refuses too.
	free := inFlight && (len(a.rules) > 1 || a.policy != nil)
	if tr.honest && !free && !a.peek && a.ahead == 0 && a.cost > 0 && want.RetryAfter != core.Never && !tr.forgetful(a) {
		tr.checkHonesty(a, want)
	}
}

func (tr *trace) compare(got, want core.Decision, err error) {
	if err != nil {
		tr.fatal(err.Error())
	}
	fmt.Fprintf(&tr.log, " %s\n", show(got))
	if tr.f.Advance == nil {
		// Ties that the model sees are decided by the microseconds between calls.
		want.Binding, want.Limit = got.Binding, got.Limit
		want.RetryAfter, want.ResetAfter = got.RetryAfter, got.ResetAfter
	}
	if got != want {
		tr.fatal("the model says " + show(want))
	}
}

// forgetful reports whether a bucket with Initial may be forgotten before the wait is
// over: while another limit or a ban still refuses, or before a turn that a bucket
// without Initial has reserved.
func (tr *trace) forgetful(a question) bool {
	has := slices.ContainsFunc(a.rules, func(r rule) bool { return r.kind == initial })
	return has && (len(a.rules) > 1 || a.policy != nil || tr.queued)
}

// checkHonesty lets time pass in copies of the model, and checks RetryAfter and ResetAfter. It leaves
// out a Peek, which does not correct a state from the future: its times hold only from the next action
// on. It also leaves out a limit that binds beside InFlight: if both refuse, RetryAfter is the other
// limit's, though the slots may be taken for longer.
func (tr *trace) checkHonesty(a question, d core.Decision) {
	a.peek, a.force, a.ahead = true, false, 0
	after := func(wait time.Duration) core.Decision {
		m := tr.model.clone()
		m.now += int64(wait / time.Microsecond)
		d, _ := m.take(a)
		return d
	}
	beside := a.rules[d.Binding].kind != inflight &&
		slices.ContainsFunc(a.rules, func(r rule) bool { return r.kind == inflight && !r.shadow })
	if d.RetryAfter > 0 && !beside {
		if then := after(d.RetryAfter - us(1)); then.Allowed || then.RetryAfter != us(1) {
			tr.fatal("a microsecond before RetryAfter: " + show(then))
		}
		if then := after(d.RetryAfter); !then.Allowed {
			tr.fatal("at RetryAfter: " + show(then))
		}
	}
	if d.ResetAfter > 0 && len(a.rules) == 1 {
		if then := after(d.ResetAfter - us(1)); then.Remaining == then.Limit || then.ResetAfter != us(1) {
			tr.fatal("a microsecond before ResetAfter: " + show(then))
		}
		if then := after(d.ResetAfter); then.ResetAfter != 0 || then.Remaining != then.Limit {
			tr.fatal("at ResetAfter: " + show(then))
		}
	}
}

func (tr *trace) fatal(why string) {
	tr.t.Helper()
	tr.t.Fatalf("\n%s%s", tr.log.String(), why)
}

// show is a decision in a line.
func show(d core.Decision) string {
	verdict := "passes"
	if !d.Allowed {
		verdict = "refused"
	}
	retry := d.RetryAfter.String()
	if d.RetryAfter == math.MaxInt64 {
		retry = "never"
	}
	s := fmt.Sprintf("%s, %d of %d remain, retry %s, whole in %s, limit %d binds", verdict, d.Remaining, d.Limit, retry, d.ResetAfter, d.Binding)
	if d.Subject > 0 {
		s += fmt.Sprintf(" of subject %d", d.Subject)
	}
	if d.Reason != "" {
		s += ", " + string(d.Reason)
	}
	if d.Shadow > 0 {
		s += fmt.Sprintf(" by limit %d", d.Shadow)
	}
	if d.Source != core.SourceStore {
		s += ", by " + d.Source.String()
	}
	if d.BanLevel > 0 {
		s += fmt.Sprintf(", level %d", d.BanLevel)
	}
	return s
}
