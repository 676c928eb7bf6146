package storetest

import (
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
// random traces: a few limiters that share some of their states under other
// numbers, a few users and actions, and a clock that likes to stand still, to
// stop at exact boundaries or just before them, and at times to step back.
//
// On a clock that runs by itself the traces stay within an instant, and their
// limits are so slow that it cannot matter.
func Trace(t *testing.T, open func(testing.TB) Fixture) {
	f := open(t)
	left, asked := f.Traces, false
	if left == 0 {
		left = 500
	}
	flag.Visit(func(g *flag.Flag) { asked = asked || g.Name == "rapid.checks" })
	if asked {
		left = 1 // call of Check, which runs as many as the flag says
	}
	for runs := 0; left > 0; {
		failed := false
		rapid.Check(t, func(rt *rapid.T) {
			// Check has no other way to be told how many. Once a trace has failed it
			// is to shrink it, and must be let.
			if left--; left < 0 && !asked && !failed {
				return
			}
			runs++
			tr := &trace{t: rt, f: f, run: runs, model: newModel(0)}
			defer func() { failed = failed || !tr.done }()
			tr.play()
			tr.done = true
		})
	}
}

// A trace is one run: a world of limiters and the steps taken in it.
type trace struct {
	t     *rapid.T
	f     Fixture
	run   int // part of every user, so that each run starts from nothing
	model *model

	limiters []*core.Limiter
	rules    [][]rule
	last     core.Decision
	honest   bool // check that the model's own answers come true
	log      strings.Builder
	done     bool
}

var (
	periods = []int64{1_000_000, 10_000, 1000, 999_983}
	counts  = []int{1, 2, 3, 6, 7, 1000}
	hour    = int64(time.Hour / time.Microsecond)
)

// drawRule draws a rule, often one that shares the state of one in others.
func (tr *trace) drawRule(others []rule) rule {
	if len(others) > 0 && rapid.Bool().Draw(tr.t, "shared") {
		return tr.drawNumbers(rapid.SampledFrom(others).Draw(tr.t, "with"))
	}
	r := rule{kind: kind(rapid.IntRange(0, int(kinds)-1).Draw(tr.t, "kind"))}
	if rapid.IntRange(0, 3).Draw(tr.t, "named") == 3 {
		r.name = "other"
	}
	if !r.meter() {
		r.period = rapid.SampledFrom(periods).Draw(tr.t, "period")
		if tr.f.Advance == nil {
			r.period = r.period / 1000 * hour
		}
	}
	return tr.drawNumbers(r)
}

// drawNumbers draws what does not belong to the rule's identity.
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
	if r.kind == initial {
		r.initial = rapid.IntRange(1, r.max).Draw(tr.t, "initial")
		r.forget = rapid.SampledFrom([]int64{-1, 0, 1, 500_000, 3_000_000}).Draw(tr.t, "forget")
		if r.forget++; r.forget != 0 { // 0 is the default
			r.forget += ceil(r.full()) - 1
		}
	}
	return r
}

// drawWorld draws up to three limiters of up to three rules.
func (tr *trace) drawWorld() {
	var others []rule
	for i := range rapid.IntRange(1, 3).Draw(tr.t, "limiters") {
		var rules []rule
		var limits []core.Limit
		has := map[string]bool{}
		for range rapid.IntRange(1, 3).Draw(tr.t, "limits") {
			r := tr.drawRule(others)
			if has[r.identity()] {
				continue
			}
			has[r.identity()] = true
			rules, limits = append(rules, r), append(limits, r.limit())
		}
		l, err := core.New(tr.f.Store, limits...)
		if err != nil {
			tr.t.Fatal(err)
		}
		others = append(others, rules...)
		tr.rules, tr.limiters = append(tr.rules, rules), append(tr.limiters, l)
		fmt.Fprintf(&tr.log, "limiter %d:", i)
		for _, l := range limits {
			fmt.Fprintf(&tr.log, " %s", l)
		}
		tr.log.WriteByte('\n')
	}
}

// A step is what happens next: the clock moves, then somebody does something.
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
)

func drawStep(t *rapid.T) step {
	return step{
		move: rapid.SampledFrom([]move{
			stand, stand, stand, tick, retry, retry, beforeRetry, reset, beforeReset,
			period, beforePeriod, random, random, back, farBack,
		}).Draw(t, "move"),
		by: rapid.Int64Range(0, 3_000_000).Draw(t, "by"),
		verb: rapid.SampledFrom([]verb{
			allow, allow, allow, allow, allow, allow, allowN, allowN, allowN, peek, peek, above, forgive,
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
	user = fmt.Sprintf("%s-%d", user, tr.run)
	rules := tr.rules[i]
	if tr.f.Advance != nil {
		if d := tr.distance(s, rules); d != 0 {
			tr.move(d)
			fmt.Fprintf(&tr.log, "%+d us\n", d)
		}
	}
	if tr.model.unsure(user, action, rules) {
		tr.reset(i, user, action)
	}

	switch s.verb {
	case allow:
		tr.call(i, user, action, 1, false)
	case allowN:
		tr.call(i, user, action, s.cost, false)
	case above:
		tr.call(i, user, action, rules[s.cost%len(rules)].max+1, false)
	case peek:
		tr.call(i, user, action, 1, true)
	case forgive:
		tr.reset(i, user, action)
	}
}

// distance is how far the step moves the clock.
func (tr *trace) distance(s step, rules []rule) int64 {
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

func (tr *trace) reset(i int, user, action string) {
	fmt.Fprintf(&tr.log, "%d.Reset(%s, %s)\n", i, user, action)
	if err := tr.limiters[i].Reset(tr.t.Context(), user, action); err != nil {
		tr.fatal(err.Error())
	}
	tr.model.reset(user, action, tr.rules[i])
}

func (tr *trace) call(i int, user, action string, cost int, peek bool) {
	var got core.Decision
	var err error
	if peek {
		fmt.Fprintf(&tr.log, "%d.Peek(%s, %s)", i, user, action)
		got, err = tr.limiters[i].Peek(tr.t.Context(), user, action)
	} else {
		fmt.Fprintf(&tr.log, "%d.AllowN(%s, %s, %d)", i, user, action, cost)
		got, err = tr.limiters[i].AllowN(tr.t.Context(), user, action, cost)
	}
	want := tr.model.take(user, action, tr.rules[i], cost, peek)
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
	tr.last = got
	if tr.honest && !peek && cost > 0 && want.RetryAfter != core.Never && !tr.forgetful(tr.rules[i]) {
		tr.checkHonesty(user, action, tr.rules[i], cost, want)
	}
}

// forgetful reports whether a bucket with Initial may be forgotten before the wait
// is over: sooner than another limiter thinks that has charged it too, or while
// another limit still refuses.
func (tr *trace) forgetful(rules []rule) bool {
	has := func(rules []rule) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.kind == initial })
	}
	n := 0
	for _, others := range tr.rules {
		if has(others) {
			n++
		}
	}
	return has(rules) && (n > 1 || len(rules) > 1)
}

// checkHonesty lets time pass in copies of the model, to see whether what it says
// about the future comes true. It is not asked of a Peek: it leaves a state in
// the future as it is, and what it says holds from the next action on.
func (tr *trace) checkHonesty(user, action string, rules []rule, cost int, d core.Decision) {
	after := func(wait time.Duration) core.Decision {
		m := tr.model.clone()
		m.now += int64(wait / time.Microsecond)
		return m.take(user, action, rules, cost, true)
	}
	if d.RetryAfter > 0 {
		if then := after(d.RetryAfter - us(1)); then.Allowed || then.RetryAfter != us(1) {
			tr.fatal("a microsecond before RetryAfter: " + show(then))
		}
		if then := after(d.RetryAfter); !then.Allowed {
			tr.fatal("at RetryAfter: " + show(then))
		}
	}
	if d.ResetAfter > 0 && len(rules) == 1 {
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
	if d.Reason != "" {
		s += ", " + string(d.Reason)
	}
	if d.Source != core.SourceStore {
		s += ", by " + d.Source.String()
	}
	return s
}
