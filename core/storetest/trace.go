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
