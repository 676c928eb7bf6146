package storetest

// What the rules are made of. The file of each group has its rules.

import (
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

const (
	usec = time.Microsecond
	ms   = time.Millisecond
	sec  = time.Second
	year = 365 * 24 * time.Hour
)

// Rules checks what core's documentation promises, a subtest for each sentence:
// exact decisions at exact instants.
func Rules(t *testing.T, open func(testing.TB) Fixture) {
	for _, group := range [][]promise{windowRules, meterRules, limiterRules, stateRules, clockRules, banRules, shadowRules, surchargeRules, turnRules, refundRules, settleRules, slotRules, failureRules, usageRules, calendarRules, nothingRules, allRules} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) {
				f := open(t)
				f.toMinute()
				p.check(&script{T: t, f: f})
			})
		}
	}
}

// A promise is a rule, named by what it says, and a script that would fail
// without it.
type promise struct {
	name  string
	check func(*script)
}

// A script acts on a store and says what must come of it.
type script struct {
	*testing.T
	f   Fixture
	now time.Duration // since the script began
}

// at moves the clock to an instant after the script's beginning.
func (s *script) at(t time.Duration) {
	if d := t - s.now; d != 0 {
		s.f.stands(s)
		s.f.Advance(d)
		s.now = t
	}
}

// of makes a limiter, for the script's user and action.
func (s *script) of(limits ...core.Limit) *actor {
	s.Helper()
	s.f.slots(s, limits)
	l, err := core.New(s.f.Store, limits...)
	if err != nil {
		s.Fatal(err)
	}
	return &actor{s, l, limits, "alice", "reply"}
}

// An actor is a limiter together with who acts, and on what.
type actor struct {
	s            *script
	l            *core.Limiter
	limits       []core.Limit
	user, action string
}

// as is the same limiter for another user and action.
func (a *actor) as(user, action string) *actor { return &actor{a.s, a.l, a.limits, user, action} }

func (a *actor) allow(n int, want core.Decision) {
	a.s.Helper()
	var got core.Decision
	var err error
	if n == 1 {
		got, err = a.l.Allow(a.s.Context(), a.user, a.action)
	} else {
		got, err = a.l.AllowN(a.s.Context(), a.user, a.action, n)
	}
	a.check(fmt.Sprintf("AllowN(%d)", n), got, err, want)
}

func (a *actor) peek(want core.Decision) {
	a.s.Helper()
	got, err := a.l.Peek(a.s.Context(), a.user, a.action)
	a.check("Peek", got, err, want)
}

// peekN peeks at a cost, which only the store itself can be asked.
func (a *actor) peekN(n int, want core.Decision) {
	a.s.Helper()
	got, err := a.try(n)
	a.check(fmt.Sprintf("Take(Peek, Cost %d)", n), got, err, want)
}

func (a *actor) try(n int) (core.Decision, error) {
	d, _, err := a.s.f.Store.Take(a.s.Context(), core.Charge{User: a.user, Action: a.action, Cost: int64(n), Terms: &core.Terms{
		Limits: a.l.Limits(), Ask: machine.Ask{Mode: machine.ModePeek}}})
	return d, err
}

func (a *actor) check(what string, got core.Decision, err error, want core.Decision) {
	a.s.Helper()
	if err != nil {
		a.s.Fatalf("at %v: %s: %v", a.s.now, what, err)
	}
	if !a.s.f.agree(got, want) {
		a.s.Fatalf("at %v: %s:\n got %s\nwant %s", a.s.now, what, show(got), show(want))
	}
}

func (a *actor) reset() {
	a.s.Helper()
	if err := a.l.Reset(a.s.Context(), a.user, a.action); err != nil {
		a.s.Fatalf("at %v: Reset: %v", a.s.now, err)
	}
}

// pass is the decision of an action that may be done.
func pass(limit, remaining int, reset time.Duration) core.Decision {
	return core.Decision{Allowed: true, Limit: limit, Remaining: remaining, ResetAfter: reset, Source: core.SourceStore}
}

// stop is the decision of one that may not.
func stop(limit, remaining int, retry, reset time.Duration) core.Decision {
	return core.Decision{Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: reset, Reason: core.ReasonLimited, Source: core.SourceStore}
}

// by is d if the i-th limit binds.
func by(i int, d core.Decision) core.Decision {
	d.Binding = i
	return d
}
