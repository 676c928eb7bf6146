package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
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
	for _, group := range [][]promise{windowRules, meterRules, limiterRules, stateRules, clockRules, banRules, shadowRules, surchargeRules, turnRules, refundRules, settleRules, slotRules, failureRules, usageRules, calendarRules, allRules} {
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
	return a.s.f.Store.Take(a.s.Context(), core.Charge{User: a.user, Action: a.action, Cost: int64(n)}.With(core.Terms{
		Limits: a.l.Limits(), Ask: machine.Ask{Mode: machine.ModePeek}}))
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

// A maker is a constructor of windows.
type maker struct {
	name string
	make func(int, time.Duration) core.Limit
}

func countRefused(n int, d time.Duration) core.Limit { return core.SlidingWindow(n, d).CountRefused() }

var (
	slidingWindow = maker{"SlidingWindow", core.SlidingWindow}
	movingWindow  = maker{"MovingWindow", core.MovingWindow}
	refusedWindow = maker{"CountRefused", countRefused}
	fixedWindow   = maker{"FixedWindow", core.FixedWindow}
	elasticWindow = maker{"ElasticWindow", core.ElasticWindow}
)

// each runs a promise for several windows.
func each(check func(*script, maker), makers ...maker) func(*script) {
	return func(s *script) {
		for _, m := range makers {
			s.Run(m.name, func(t *testing.T) {
				check(&script{T: t, f: s.f}, m)
			})
		}
	}
}

var windowRules = []promise{
	{"a sliding or moving window admits max in any half-open period", each(func(s *script, m maker) {
		a := s.of(m.make(2, 10*sec))
		a.allow(1, pass(2, 1, 10*sec))
		s.at(4 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		a.peek(stop(2, 0, 6*sec, 10*sec))
		s.at(10*sec - usec)
		a.peek(stop(2, 0, usec, 4*sec+usec))
		s.at(10 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		s.at(14*sec - usec)
		a.peek(stop(2, 0, usec, 6*sec+usec))
		s.at(14 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		s.at(24*sec - usec)
		a.peek(pass(2, 1, usec))
		s.at(24 * sec)
		a.peek(pass(2, 2, 0))
	}, slidingWindow, movingWindow, refusedWindow)},

	{"two actions in one instant are two", each(func(s *script, m maker) {
		a := s.of(m.make(2, 10*sec))
		a.allow(1, pass(2, 1, 10*sec))
		a.allow(1, pass(2, 0, 10*sec))
		a.peek(stop(2, 0, 10*sec, 10*sec))
	}, slidingWindow, movingWindow, refusedWindow, fixedWindow, elasticWindow)},

	{"a cost waits until as many actions have left the window", each(func(s *script, m maker) {
		a := s.of(m.make(5, 10*sec))
		for i := range 5 {
			s.at(time.Duration(i) * sec)
			a.allow(1, pass(5, 4-i, 10*sec))
		}
		s.at(5 * sec)
		a.allow(3, stop(5, 0, 7*sec, 9*sec))
		s.at(12*sec - usec)
		a.allow(3, stop(5, 2, usec, 2*sec+usec))
		s.at(12 * sec)
		a.allow(3, pass(5, 0, 10*sec))
		s.at(14 * sec)
		a.allow(2, pass(5, 0, 10*sec))
	}, slidingWindow, movingWindow)},

	{"each of two hundred actions leaves at its own instant, and not before", each(func(s *script, m maker) {
		const quota = 200
		const period = quota * sec
		made := func(i int) time.Duration { return time.Duration(i)*sec + time.Duration(i*i)*usec }
		a := s.of(m.make(quota, period))
		for i := range quota {
			s.at(made(i))
			a.allow(1, pass(quota, quota-1-i, period))
		}
		newest := s.now
		for i := range quota {
			s.at(made(i) + period - usec)
			a.peek(stop(quota, 0, usec, newest+period-s.now))
			s.at(made(i) + period)
			a.allow(1, pass(quota, 0, period))
			newest = s.now
		}
	}, slidingWindow, movingWindow, refusedWindow)},

	{"a sliding or moving window does not record what it refuses", each(func(s *script, m maker) {
		a := s.of(m.make(1, 10*sec))
		a.allow(1, pass(1, 0, 10*sec))
		s.at(9 * sec)
		a.allow(1, stop(1, 0, sec, sec))
		s.at(10 * sec)
		a.allow(1, pass(1, 0, 10*sec))
	}, slidingWindow, movingWindow)},

	{"CountRefused records what it refuses, and keeps the newest max", func(s *script) {
		a := s.of(countRefused(2, 10*sec))
		a.allow(1, pass(2, 1, 10*sec))
		s.at(1 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		s.at(2 * sec)
		a.allow(1, stop(2, 0, 9*sec, 10*sec))
		s.at(9 * sec)
		a.allow(1, stop(2, 0, 3*sec, 10*sec))
		s.of(countRefused(5, 10*sec)).peek(pass(5, 3, 10*sec))
		s.at(12*sec - usec)
		a.peek(stop(2, 0, usec, 7*sec+usec))
		s.at(12 * sec)
		a.allow(1, pass(2, 0, 10*sec))
	}},

	{"with CountRefused a refused cost of n is n entries", func(s *script) {
		a := s.of(countRefused(3, 10*sec))
		a.allow(1, pass(3, 2, 10*sec))
		s.at(1 * sec)
		a.allow(3, stop(3, 0, 10*sec, 10*sec))
		s.at(11*sec - usec)
		a.peekN(3, stop(3, 0, usec, usec))
		s.at(11 * sec)
		a.allow(3, pass(3, 0, 10*sec))
	}},

	{"with CountRefused a refused cost that leaves room is recorded too", func(s *script) {
		a := s.of(countRefused(5, 10*sec))
		a.allow(3, pass(5, 2, 10*sec))
		s.at(4 * sec)
		a.allow(3, stop(5, 0, 10*sec, 10*sec)) // two of the first stay, and three
		s.at(10 * sec)
		a.peek(pass(5, 2, 4*sec))
	}},

	{"CountRefused does not record what another limit refuses", func(s *script) {
		counting := countRefused(5, 10*sec)
		both, alone := s.of(counting, core.FixedWindow(1, 20*sec)), s.of(counting)
		both.allow(1, by(1, pass(1, 0, 20*sec)))
		s.at(1 * sec)
		both.allow(1, by(1, stop(1, 0, 19*sec, 19*sec)))
		alone.peek(pass(5, 4, 9*sec))
	}},

	{"CountRefused under a lowered max keeps as many as counted", func(s *script) {
		large, small := s.of(countRefused(4, 10*sec)), s.of(countRefused(2, 10*sec))
		for i := range 4 {
			s.at(time.Duration(i) * sec)
			large.allow(1, pass(4, 3-i, 10*sec))
		}
		s.at(4 * sec)
		small.allow(1, stop(2, 0, 9*sec, 10*sec))
		large.peek(stop(4, 0, 7*sec, 10*sec))
	}},

	{"a fixed window opens at the first admitted action and ends period later", func(s *script) {
		a := s.of(core.FixedWindow(2, 10*sec))
		a.peek(pass(2, 2, 0))
		s.at(3 * sec)
		a.allow(1, pass(2, 1, 10*sec))
		s.at(9 * sec)
		a.allow(1, pass(2, 0, 4*sec))
		a.allow(1, stop(2, 0, 4*sec, 4*sec))
		s.at(13*sec - usec)
		a.allow(1, stop(2, 0, usec, usec))
		s.at(13 * sec)
		a.peek(pass(2, 2, 0))
		s.at(15 * sec)
		a.allow(1, pass(2, 1, 10*sec))
	}},

	{"a fixed window lets twice max through across a boundary", func(s *script) {
		a := s.of(core.FixedWindow(3, 10*sec))
		a.allow(1, pass(3, 2, 10*sec))
		s.at(10*sec - usec)
		a.allow(2, pass(3, 0, usec))
		s.at(10 * sec)
		a.allow(3, pass(3, 0, 10*sec))
	}},

	{"every attempt moves the end of an elastic window, a refused one too", func(s *script) {
		a := s.of(core.ElasticWindow(2, 10*sec))
		a.allow(1, pass(2, 1, 10*sec))
		s.at(6 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		s.at(15 * sec)
		a.allow(1, stop(2, 0, 10*sec, 10*sec))
		s.at(25*sec - usec)
		a.allow(1, stop(2, 0, 10*sec, 10*sec))
		s.at(35*sec - 2*usec)
		a.peek(stop(2, 0, usec, usec))
		s.at(35*sec - usec)
		a.allow(1, pass(2, 1, 10*sec))
	}},

	{"a refusal moves the end of an elastic window and not the count", func(s *script) {
		a := s.of(core.ElasticWindow(5, 10*sec))
		a.allow(3, pass(5, 2, 10*sec))
		s.at(5 * sec)
		a.allow(3, stop(5, 2, 10*sec, 10*sec))
		s.at(6 * sec)
		a.allow(2, pass(5, 0, 10*sec))
	}},

	{"another limit's refusal does not move an elastic window", func(s *script) {
		elastic := core.ElasticWindow(5, 10*sec)
		both, alone := s.of(elastic, core.FixedWindow(1, 20*sec)), s.of(elastic)
		both.allow(1, by(1, pass(1, 0, 20*sec)))
		s.at(5 * sec)
		both.allow(1, by(1, stop(1, 0, 15*sec, 15*sec)))
		alone.peek(pass(5, 4, 5*sec))
		s.at(10 * sec)
		alone.peek(pass(5, 5, 0))
	}},

	{"an elastic window that refuses moves, whatever other limits do", func(s *script) {
		elastic := core.ElasticWindow(1, 10*sec)
		both, alone := s.of(elastic, core.FixedWindow(1, 20*sec)), s.of(elastic)
		both.allow(1, by(1, pass(1, 0, 20*sec)))
		s.at(5 * sec)
		both.allow(1, by(1, stop(1, 0, 15*sec, 15*sec)))
		alone.peek(stop(1, 0, 10*sec, 10*sec))
	}},
}

// leaks is what Funnel(3, Every(10s)) does, and the same bucket.
func leaks(l core.Limit) func(*script) {
	return func(s *script) {
		a := s.of(l)
		a.peek(pass(3, 3, 0))
		a.allow(1, pass(3, 2, 10*sec))
		a.allow(1, pass(3, 1, 20*sec))
		a.allow(1, pass(3, 0, 30*sec))
		a.allow(1, stop(3, 0, 10*sec, 30*sec))
		s.at(10*sec - usec)
		a.allow(1, stop(3, 0, usec, 20*sec+usec))
		s.at(10 * sec)
		a.allow(1, pass(3, 0, 30*sec))
		s.at(15 * sec)
		a.allow(2, stop(3, 0, 15*sec, 25*sec))
		s.at(30*sec - usec)
		a.allow(2, stop(3, 1, usec, 10*sec+usec))
		s.at(30 * sec)
		a.allow(2, pass(3, 0, 30*sec))
		s.at(60*sec - usec)
		a.peek(pass(3, 2, usec))
		s.at(60 * sec)
		a.peek(pass(3, 3, 0))
		s.at(90 * sec) // what is not used does not pile up
		a.allow(3, pass(3, 0, 30*sec))
	}
}

var meterRules = []promise{
	{"a funnel admits its capacity at once and then at its rate", leaks(core.Funnel(3, core.Every(10*sec)))},
	{"a Throttle's capacity is maxBurst+1", leaks(core.Throttle(2, core.Every(10*sec)))},
	{"a bucket starts full and is refilled at its rate", leaks(core.TokenBucket(3, core.Every(10*sec)))},
	{"a bucket with Initial of its whole capacity starts full", func(s *script) {
		a := s.of(core.TokenBucket(3, core.Every(10*sec)).Initial(3))
		a.peek(pass(3, 3, 0))
		a.allow(3, pass(3, 0, 30*sec))
		a.peek(stop(3, 0, 10*sec, 30*sec))
	}},

	{"Throttle(15, Per(30, time.Minute)) is CL.THROTTLE key 15 30 60", func(s *script) {
		a := s.of(core.Throttle(15, core.Per(30, time.Minute)))
		s.f.stands(s)
		for i := range 17 {
			d, err := a.l.Allow(s.Context(), a.user, a.action)
			want := [5]int64{0, 16, int64(15 - i), -1, int64(2 * (i + 1))}
			if i == 16 {
				want = [5]int64{1, 16, 0, 2, 32}
			}
			if err != nil || d.Cell() != want {
				s.Fatalf("call %d: %v, %v; want %v", i+1, d.Cell(), err, want)
			}
		}
	}},

	{"a bucket with Initial starts with so many tokens", func(s *script) {
		a := s.of(core.TokenBucket(10, core.Every(sec)).Initial(2))
		a.peek(pass(10, 2, 8*sec))
		a.allow(1, pass(10, 1, 9*sec))
		a.allow(1, pass(10, 0, 10*sec))
		a.allow(1, stop(10, 0, sec, 10*sec))
		s.at(sec - usec)
		a.allow(1, stop(10, 0, usec, 9*sec+usec))
		s.at(sec)
		a.allow(1, pass(10, 0, 10*sec))
		s.at(11 * sec)
		a.peek(pass(10, 10, 0))
	}},

	{"an unseen bucket with Initial does not fill up by itself", func(s *script) {
		a := s.of(core.TokenBucket(10, core.Every(sec)).Initial(2))
		a.peek(pass(10, 2, 8*sec))
		s.at(3 * sec)
		a.peek(pass(10, 2, 8*sec))
		a.allow(11, stop(10, 2, core.Never, 8*sec))
		s.at(6 * sec)
		a.allow(0, pass(10, 2, 8*sec))
		s.at(9 * sec)
		a.peek(pass(10, 2, 8*sec))
	}},

	{"an action that costs too much for an unseen bucket starts it", func(s *script) {
		a := s.of(core.TokenBucket(10, core.Every(sec)).Initial(2))
		a.allow(5, stop(10, 2, 3*sec, 8*sec))
		s.at(sec)
		a.allow(5, stop(10, 3, 2*sec, 7*sec)) // and does not start it again
		s.at(3*sec - usec)
		a.allow(5, stop(10, 4, usec, 5*sec+usec))
		s.at(3 * sec)
		a.allow(5, pass(10, 0, 10*sec))
	}},

	{"another limit's refusal does not start a bucket", func(s *script) {
		bucket, fixed := core.TokenBucket(10, core.Every(sec)).Initial(2), core.FixedWindow(1, 20*sec)
		s.of(fixed).allow(1, pass(1, 0, 20*sec))
		s.of(bucket, fixed).allow(1, by(1, stop(1, 0, 20*sec, 20*sec)))
		s.at(3 * sec)
		s.of(bucket).peek(pass(10, 2, 8*sec))
	}},

	{"a bucket with Initial is forgotten ForgetAfter after the last admitted action", func(s *script) {
		a := s.of(core.TokenBucket(4, core.Every(sec)).Initial(1).ForgetAfter(10 * sec))
		a.allow(1, pass(4, 0, 4*sec))
		s.at(9 * sec)
		a.allow(1, pass(4, 3, sec)) // this one renews it
		s.at(19*sec - usec)
		a.peek(pass(4, 4, 0))
		s.at(19 * sec)
		a.peek(pass(4, 1, 3*sec))
		a.allow(1, pass(4, 0, 4*sec))
		s.at(20 * sec)
		a.allow(4, stop(4, 1, 3*sec, 3*sec)) // this one does not
		s.at(29*sec - usec)
		a.peek(pass(4, 4, 0))
		s.at(29 * sec)
		a.peek(pass(4, 1, 3*sec))
	}},

	{"a refused action that starts a bucket counts from then until it is forgotten", func(s *script) {
		a := s.of(core.TokenBucket(4, core.Every(sec)).Initial(1).ForgetAfter(10 * sec))
		s.at(5 * sec)
		a.allow(4, stop(4, 1, 3*sec, 3*sec))
		s.at(15*sec - usec)
		a.peek(pass(4, 4, 0))
		s.at(15 * sec)
		a.peek(pass(4, 1, 3*sec))
	}},

	{"limiters of one bucket with different ForgetAfter agree on when it is forgotten", func(s *script) {
		bucket := core.TokenBucket(4, core.Every(sec)).Initial(1)
		long, short := s.of(bucket.ForgetAfter(20*sec)), s.of(bucket.ForgetAfter(10*sec))
		both := func(want core.Decision) {
			s.Helper()
			long.peek(want)
			short.peek(want)
		}
		long.allow(1, pass(4, 0, 4*sec)) // the last admitted action's limiter says it
		s.at(20*sec - usec)
		both(pass(4, 4, 0))
		s.at(20 * sec)
		both(pass(4, 1, 3*sec))
		short.allow(1, pass(4, 0, 4*sec))
		s.at(30*sec - usec)
		both(pass(4, 4, 0))
		s.at(30 * sec)
		both(pass(4, 1, 3*sec))
		long.allow(4, stop(4, 1, 3*sec, 3*sec)) // a refused action can start the bucket
		s.at(50*sec - usec)
		both(pass(4, 4, 0))
		s.at(50 * sec)
		both(pass(4, 1, 3*sec))
		long.allow(1, pass(4, 0, 4*sec))
		s.at(51 * sec)
		short.allow(4, stop(4, 1, 3*sec, 3*sec)) // or shorten what its limiter finds too long
		s.at(61*sec - usec)
		both(pass(4, 4, 0))
		s.at(61 * sec)
		both(pass(4, 1, 3*sec))
	}},

	{"by default a bucket with Initial is forgotten a day after it is full", func(s *script) {
		a := s.of(core.TokenBucket(10, core.Every(sec)).Initial(2))
		a.allow(1, pass(10, 1, 9*sec))
		s.at(10*sec + 24*time.Hour - usec)
		a.peek(pass(10, 10, 0))
		s.at(10*sec + 24*time.Hour)
		a.peek(pass(10, 2, 8*sec))
	}},

	{"a rate does not drift", func(s *script) {
		// Each action comes at the first microsecond at which it may. The k-th is
		// due at exactly k sevenths of a second.
		a := s.of(core.Funnel(2, core.Per(7, sec)))
		s.f.stands(s)
		a.allow(2, pass(2, 0, 285_715*usec))
		for k := range 140 {
			due := (time.Duration(k+1)*1_000_000 + 6) / 7 * usec
			s.at(due - usec)
			if d, err := a.try(1); err != nil || d.Allowed || d.RetryAfter != usec {
				s.Fatalf("at %v: %s, %v; want it refused for a microsecond more", s.now, show(d), err)
			}
			s.at(due)
			if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || !d.Allowed {
				s.Fatalf("at %v: %s, %v; want it to pass", s.now, show(d), err)
			}
		}
		if s.now != 20*sec {
			s.Fatalf("140 actions took %v, not 20s", s.now)
		}
	}},

	{"seven sevenths of a second are a second", func(s *script) {
		s.f.stands(s)
		funnel, bucket := s.of(core.Funnel(9, core.Per(7, sec))), s.of(core.TokenBucket(9, core.Per(7, sec)).Initial(8))
		for k := 1; k < 7; k++ {
			funnel.allow(1, pass(9, 9-k, (time.Duration(k)*1_000_000+6)/7*usec))
		}
		funnel.allow(1, pass(9, 2, sec))
		for k := 2; k < 7; k++ {
			bucket.allow(1, pass(9, 9-k, (time.Duration(k)*1_000_000+6)/7*usec))
		}
		bucket.allow(1, pass(9, 2, sec))
	}},

	{"the finest rate is a millionth of a microsecond per unit", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(1e9, core.Per(1e9, ms)))
		a.allow(1, pass(1e9, 1e9-1, usec))
		a.allow(1e9-1, pass(1e9, 0, ms))
		a.allow(1, stop(1e9, 0, usec, ms))
		a.allow(1e6, stop(1e9, 0, usec, ms))
		a.peekN(1e6+1, stop(1e9, 0, 2*usec, ms))
		s.at(usec)
		a.allow(1e6, pass(1e9, 0, ms))
		s.at(ms)
		a.peek(pass(1e9, 999_000_000, usec))
	}},

	{"the slowest rate drains in a hundred years", func(s *script) {
		a := s.of(core.Funnel(100, core.Every(year)))
		a.allow(100, pass(100, 0, 100*year))
		a.allow(1, stop(100, 0, year, 100*year))
		s.at(year - usec)
		a.allow(1, stop(100, 0, usec, 99*year+usec))
		s.at(year)
		a.allow(1, pass(100, 0, 100*year))
	}},

	{"the largest meter is exact", func(s *script) {
		s.f.stands(s)
		const n = 999_999_937 // a prime: nothing cancels
		a := s.of(core.TokenBucket(n, core.Per(n, year)))
		a.allow(n, pass(n, 0, year))
		a.allow(1, stop(n, 0, 31_537*usec, year)) // 31,536.002 us a token
		s.at(31_536 * usec)
		a.allow(1, stop(n, 0, usec, year-31_536*usec))
		s.at(31_537 * usec)
		a.allow(1, pass(n, 0, year))
		s.at(year)
		a.peek(pass(n, n-1, 31_537*usec))
	}},

	{"a bucket can be remembered for a hundred and one years", func(s *script) {
		a := s.of(core.TokenBucket(100, core.Every(year)).Initial(1).ForgetAfter(101 * year))
		a.allow(1, pass(100, 0, 100*year))
		s.at(year)
		a.allow(1, pass(100, 0, 100*year))
	}},
}

// fives are limits of each kind, of quota 5, whose state fades within two minutes. Two rates are
// not whole microseconds a unit.
var fives = append(everyKind(5, time.Minute),
	core.Funnel(5, core.Per(7, sec)),
	core.TokenBucket(5, core.Per(7, 11*sec)).Initial(2),
)

// ofEach runs a promise for one limit of each kind.
func ofEach(check func(*script, *actor, core.Limit)) func(*script) {
	return func(s *script) {
		for i, l := range fives {
			s.Run(l.String(), func(t *testing.T) {
				s.f.dated(t, l)
				s.f.toMinute()
				s := &script{T: t, f: s.f}
				check(s, s.of(l).as(fmt.Sprint("user ", i), "reply"), l)
			})
		}
	}
}

var limiterRules = []promise{
	{"RetryAfter is honest: at that instant it passes, a microsecond earlier it does not", ofEach(func(s *script, a *actor, l core.Limit) {
		s.f.stands(s)
		for round := range 3 {
			for cost := 1; cost <= 5; cost++ {
				d, err := a.l.AllowN(s.Context(), a.user, a.action, cost)
				if err != nil {
					s.Fatal(err)
				}
				if d.Allowed {
					s.at(s.now + 300*ms)
					continue
				}
				if d.RetryAfter <= 0 || d.RetryAfter > time.Minute {
					s.Fatalf("at %v: AllowN(%d): %s", s.now, cost, show(d))
				}
				s.at(s.now + d.RetryAfter - usec)
				if d, err := a.try(cost); err != nil || d.Allowed || d.RetryAfter != usec {
					s.Fatalf("at %v: cost %d, a microsecond early: %s, %v", s.now, cost, show(d), err)
				}
				s.at(s.now + usec)
				if d, err := a.l.AllowN(s.Context(), a.user, a.action, cost); err != nil || !d.Allowed {
					s.Fatalf("at %v: cost %d, in time: %s, %v", s.now, cost, show(d), err)
				}
			}
			s.at(s.now + time.Duration(round)*777_777*usec)
		}
	})},

	{"ResetAfter is honest: at that instant the limit is whole, a microsecond earlier it is not", ofEach(func(s *script, a *actor, l core.Limit) {
		s.f.stands(s)
		for cost := 1; cost <= 2; cost++ {
			s.at(s.now + sec)
			d, err := a.l.AllowN(s.Context(), a.user, a.action, cost)
			if err != nil || !d.Allowed {
				s.Fatalf("at %v: %s, %v", s.now, show(d), err)
			}
			s.at(s.now + d.ResetAfter - usec)
			d, err = a.l.Peek(s.Context(), a.user, a.action)
			if err != nil || d.Remaining >= 5 || d.ResetAfter != usec {
				s.Fatalf("at %v: a microsecond early: %s, %v", s.now, show(d), err)
			}
			s.at(s.now + usec)
			a.peek(pass(5, 5, 0))
		}
	})},

	{"a cost above the quota is refused with Never and writes nothing", ofEach(func(s *script, a *actor, l core.Limit) {
		s.f.stands(s)
		unseen, err := a.l.Peek(s.Context(), a.user, a.action)
		if err != nil {
			s.Fatal(err)
		}
		a.allow(6, stop(5, unseen.Remaining, core.Never, unseen.ResetAfter))
		a.peek(unseen)
		d, err := a.l.AllowN(s.Context(), a.user, a.action, 2)
		if err != nil || !d.Allowed {
			s.Fatalf("%s, %v", show(d), err)
		}
		a.allow(6, stop(5, d.Remaining, core.Never, d.ResetAfter))
		s.at(sec)
		before, err := a.l.Peek(s.Context(), a.user, a.action)
		if err != nil {
			s.Fatal(err)
		}
		for _, cost := range []int{6, math.MaxInt} {
			a.allow(cost, stop(5, before.Remaining, core.Never, before.ResetAfter))
			a.peek(before)
		}
	})},

	{"a cost above the quota of one limit writes nothing to another", func(s *script) {
		elastic, counting := core.ElasticWindow(2, 10*sec), countRefused(2, 10*sec)
		bucket := core.TokenBucket(4, core.Every(sec)).Initial(1)
		a := s.of(elastic, counting, bucket, core.FixedWindow(1, 10*sec))
		a.allow(1, by(3, pass(1, 0, 10*sec)))
		s.at(4 * sec)
		a.allow(2, by(3, stop(1, 0, core.Never, 6*sec)))
		s.of(elastic).peek(pass(2, 1, 6*sec))
		s.of(counting).peek(pass(2, 1, 6*sec))
		fresh := a.as("fresh", "reply")
		fresh.allow(2, by(3, stop(1, 1, core.Never, 0)))
		s.at(5 * sec)
		s.of(bucket).as("fresh", "reply").peek(pass(4, 1, 3*sec))
	}},

	{"a cost of the whole quota passes once", ofEach(func(s *script, a *actor, l core.Limit) {
		s.f.stands(s)
		d, err := a.l.Peek(s.Context(), a.user, a.action)
		if err != nil {
			s.Fatal(err)
		}
		n := d.Remaining // not 5 for a bucket with Initial
		if d, err = a.l.AllowN(s.Context(), a.user, a.action, n); err != nil || !d.Allowed || d.Remaining != 0 {
			s.Fatalf("AllowN(%d): %s, %v", n, show(d), err)
		}
		if d, err = a.l.Allow(s.Context(), a.user, a.action); err != nil || d.Allowed {
			s.Fatalf("one more: %s, %v", show(d), err)
		}
	})},

	{"AllowN(0) is allowed unless the user is banned, and otherwise answers as Peek", ofEach(func(s *script, a *actor, l core.Limit) {
		s.f.stands(s)
		for range 7 {
			want, err := a.l.Peek(s.Context(), a.user, a.action)
			if err != nil {
				s.Fatal(err)
			}
			want.Allowed, want.RetryAfter, want.Reason = true, 0, ""
			a.allow(0, want)
			a.allow(0, want)
			if _, err := a.l.Allow(s.Context(), a.user, a.action); err != nil {
				s.Fatal(err)
			}
			s.at(s.now + 100*ms)
		}
	})},

	{"AllowN(0) and Peek tell of the limit that refuses", func(s *script) {
		s.f.stands(s)
		a := s.of(core.FixedWindow(4, 10*sec), core.FixedWindow(4, 20*sec), core.SlidingWindow(6, 30*sec))
		a.allow(4, by(1, pass(4, 0, 20*sec)))
		a.peek(by(1, stop(4, 0, 20*sec, 20*sec)))
		a.allow(0, by(1, pass(4, 0, 20*sec)))
	}},

	{"a Peek writes nothing", ofEach(func(s *script, a *actor, l core.Limit) {
		// Two users do the same; one peeks all the time.
		s.f.stands(s)
		b := a.as(a.user+", peeking", a.action)
		for i := range 24 {
			for range 2 {
				if _, err := b.l.Peek(s.Context(), b.user, b.action); err != nil {
					s.Fatal(err)
				}
			}
			if i%3 == 0 {
				want, err := a.l.AllowN(s.Context(), a.user, a.action, i/3%2+1)
				if err != nil {
					s.Fatal(err)
				}
				b.allow(i/3%2+1, want)
			}
			s.at(s.now + 500*ms)
		}
	})},

	{"all limits are charged or none is", func(s *script) {
		for i, l := range s.f.exact(everyKind(5, time.Minute)) {
			s.Run(l.String(), func(t *testing.T) {
				s.f.toMinute()
				s := &script{T: t, f: s.f}
				s.f.stands(s)
				user := fmt.Sprint("user ", i)
				one := core.FixedWindow(1, 20*sec).Named("one")
				s.of(one, l).as(user, "reply").allow(1, by(0, pass(1, 0, 20*sec)))
				alone := s.of(l).as(user, "reply")
				before, err := alone.l.Peek(s.Context(), user, "reply")
				if err != nil || before.Remaining != 4 {
					s.Fatalf("%s, %v", show(before), err)
				}
				for range 3 {
					s.of(one, l).as(user, "reply").allow(1, by(0, stop(1, 0, 20*sec, 20*sec)))
					s.of(l, one).as(user, "reply").allow(1, by(1, stop(1, 0, 20*sec, 20*sec)))
				}
				alone.peek(before)
			})
		}
	}},

	{"the limit with the least Remaining binds if all allow", func(s *script) {
		a := s.of(core.SlidingWindow(5, 10*sec), core.FixedWindow(3, 5*sec), core.MovingWindow(4, 20*sec))
		a.allow(1, by(1, pass(3, 2, 5*sec)))
	}},

	{"of equal Remaining the longer ResetAfter binds, then the first", func(s *script) {
		a := s.of(core.SlidingWindow(3, 10*sec), core.FixedWindow(3, 20*sec), core.MovingWindow(3, 20*sec))
		a.allow(1, by(1, pass(3, 2, 20*sec)))
		b := s.of(core.FixedWindow(3, 20*sec), core.SlidingWindow(3, 10*sec)).as("b", "reply")
		b.allow(1, by(0, pass(3, 2, 20*sec)))
	}},

	{"the limit with the longest RetryAfter binds if any refuses", func(s *script) {
		s.f.stands(s)
		a := s.of(core.SlidingWindow(6, 10*sec), core.Funnel(10, core.Every(time.Hour)), core.FixedWindow(20, year))
		a.allow(5, by(0, pass(6, 1, 10*sec)))
		a.allow(6, by(1, stop(10, 1, time.Hour, 5*time.Hour))) // Remaining is still the least of all
		a.allow(2, by(0, stop(6, 1, 10*sec, 10*sec)))          // the funnel would let this pass
	}},

	{"of equal RetryAfter the longer ResetAfter binds, then the first", func(s *script) {
		s.f.stands(s)
		window, funnel := core.FixedWindow(1, 10*sec), core.Funnel(2, core.Every(10*sec))
		s.of(funnel).allow(1, pass(2, 1, 10*sec))
		a := s.of(window, funnel)
		a.allow(1, by(1, pass(2, 0, 20*sec)))
		a.allow(1, by(1, stop(2, 0, 10*sec, 20*sec)))
		s.of(funnel, window).allow(1, by(0, stop(2, 0, 10*sec, 20*sec)))
		b := s.of(core.SlidingWindow(1, 10*sec), core.MovingWindow(1, 10*sec)).as("b", "reply")
		b.allow(1, by(0, pass(1, 0, 10*sec)))
		b.allow(1, by(0, stop(1, 0, 10*sec, 10*sec)))
	}},

	{"of limits that can never pass the longer ResetAfter binds", func(s *script) {
		a := s.of(core.FixedWindow(2, 10*sec), core.FixedWindow(3, 20*sec), core.FixedWindow(9, 30*sec))
		a.allow(1, by(0, pass(2, 1, 10*sec)))
		a.allow(5, by(1, stop(3, 1, core.Never, 20*sec)))
	}},

	{"Reset forgets this limiter's states for this user and action, and no others", func(s *script) {
		s.f.stands(s)
		for i, l := range s.f.exact(fives) {
			user := fmt.Sprint("user ", i)
			a, other := s.of(l).as(user, "reply"), s.of(l.Named("other")).as(user, "reply")
			whole, err := a.l.Peek(s.Context(), user, "reply")
			if err != nil {
				s.Fatal(err)
			}
			a.reset() // of nothing
			var used core.Decision
			for _, b := range []*actor{a, other, a.as(user+"2", "reply"), a.as(user, "like")} {
				if used, err = b.l.AllowN(s.Context(), b.user, b.action, 2); err != nil {
					s.Fatal(err)
				}
			}
			used.Allowed, used.RetryAfter, used.Reason = true, 0, ""
			a.reset()
			a.peek(whole)
			other.allow(0, used)
			a.as(user+"2", "reply").allow(0, used)
			a.as(user, "like").allow(0, used)
		}
		a := s.of(s.f.exact(everyKind(5, time.Minute))...)
		d, err := a.l.AllowN(s.Context(), a.user, a.action, 5)
		if err != nil || !d.Allowed {
			s.Fatalf("%s, %v", show(d), err)
		}
		a.reset()
		if d, err = a.l.AllowN(s.Context(), a.user, a.action, 5); err != nil || !d.Allowed {
			s.Fatalf("after Reset: %s, %v", show(d), err)
		}
	}},

	{"a decorator of a store that answers changes no decision", ofEach(func(s *script, _ *actor, l core.Limit) {
		// One user's calls go to the store itself, the other's through a decorator. If the
		// fallback decides, the Source shows it.
		s.f.stands(s)
		for name, decorate := range map[string]func(core.Store) core.Store{
			"Observe": func(store core.Store) core.Store {
				return core.Observe(store, func(context.Context, core.Observation) {})
			},
			"Fallback": func(store core.Store) core.Store { return core.Fallback(store, store) },
			"FailOpen": core.FailOpen,
		} {
			s.Run(name, func(t *testing.T) {
				s, decorated := &script{T: t, f: s.f}, &script{T: t, f: Fixture{Store: decorate(s.f.Store), Advance: s.f.Advance}}
				bare, b := s.of(l).as(name, "reply"), decorated.of(l).as(name+", decorated", "reply")
				for _, cost := range []int{0, 1, 2, 6, 1, 1, 3, 1, 1} {
					want, err := bare.l.AllowN(s.Context(), bare.user, bare.action, cost)
					if err != nil {
						s.Fatal(err)
					}
					b.allow(cost, want)
					s.at(s.now + 300*ms)
					if want, err = bare.l.Peek(s.Context(), bare.user, bare.action); err != nil {
						s.Fatal(err)
					}
					b.peek(want)
				}
				want, err := bare.l.Surcharge(s.Context(), bare.user, bare.action, 2)
				if err != nil {
					s.Fatal(err)
				}
				b.surcharge(2, want)
				status, err := bare.l.Status(s.Context(), bare.user, bare.action)
				if err != nil {
					s.Fatal(err)
				}
				if got, err := b.l.Status(s.Context(), b.user, b.action); err != nil || !slices.Equal(got.Limits, status.Limits) {
					s.Errorf("Status: %+v, %v; want %+v", got.Limits, err, status.Limits)
				}
			})
		}
	})},

	{"a call that cannot be answered is an error and charges nothing", func(s *script) {
		a := s.of(core.FixedWindow(2, 10*sec))
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		calls := func(ctx context.Context, user, action string, n int) []error {
			_, allow := a.l.Allow(ctx, user, action)
			_, allowN := a.l.AllowN(ctx, user, action, n)
			_, peek := a.l.Peek(ctx, user, action)
			return []error{allow, allowN, peek, a.l.Reset(ctx, user, action)}
		}
		a.allow(1, pass(2, 1, 10*sec))
		for i, err := range calls(ctx, a.user, a.action, 1) {
			if !errors.Is(err, context.Canceled) {
				s.Errorf("call %d with a context that is done: %v", i, err)
			}
		}
		for i, err := range calls(s.Context(), "", a.action, 1) {
			if !errors.Is(err, core.ErrNoUser) {
				s.Errorf("call %d without a user: %v", i, err)
			}
		}
		for i, err := range calls(s.Context(), a.user, "", 1) {
			if !errors.Is(err, core.ErrNoAction) {
				s.Errorf("call %d without an action: %v", i, err)
			}
		}
		if _, err := a.l.AllowN(s.Context(), a.user, a.action, -1); !errors.Is(err, core.ErrCost) {
			s.Errorf("a negative cost: %v", err)
		}
		a.peek(pass(2, 1, 10*sec))
	}},
}

var stateRules = []promise{
	{"windows of one period share state, whatever their max", each(func(s *script, m maker) {
		small, large := s.of(m.make(2, 10*sec)), s.of(m.make(5, 10*sec))
		large.allow(1, pass(5, 4, 10*sec))
		small.allow(1, pass(2, 0, 10*sec))
		large.allow(1, pass(5, 2, 10*sec))
		small.peek(stop(2, 0, 10*sec, 10*sec))
	}, slidingWindow, movingWindow, refusedWindow, fixedWindow, elasticWindow)},

	{"a Throttle and a Funnel are one kind", func(s *script) {
		s.of(core.Throttle(15, core.Every(sec))).allow(3, pass(16, 13, 3*sec))
		s.of(core.Funnel(16, core.Every(sec))).peek(pass(16, 13, 3*sec))
	}},

	{"a lowered max reads a longer history as if it were cut to the new max, and does not write it", each(func(s *script, m maker) {
		large, small := s.of(m.make(5, 10*sec)), s.of(m.make(2, 10*sec))
		large.allow(4, pass(5, 1, 10*sec))
		small.allow(1, stop(2, 0, 10*sec, 10*sec))
		small.allow(2, stop(2, 0, 10*sec, 10*sec))
		small.peek(stop(2, 0, 10*sec, 10*sec))
		large.allow(1, pass(5, 0, 10*sec))
		large.peek(stop(5, 0, 10*sec, 10*sec))
	}, slidingWindow, movingWindow, fixedWindow, elasticWindow)},

	{"a lowered max waits until less than it counts", each(func(s *script, m maker) {
		large, small := s.of(m.make(5, 10*sec)), s.of(m.make(2, 10*sec))
		for i := range 4 {
			s.at(time.Duration(i) * sec)
			large.allow(1, pass(5, 4-i, 10*sec))
		}
		s.at(4 * sec)
		small.allow(1, stop(2, 0, 8*sec, 9*sec))
		small.allow(2, stop(2, 0, 9*sec, 9*sec))
		s.at(12 * sec)
		small.allow(1, pass(2, 0, 10*sec))
		large.peek(pass(5, 3, 10*sec))
	}, slidingWindow, movingWindow)},

	{"a raised max has room at once", each(func(s *script, m maker) {
		small, large := s.of(m.make(2, 10*sec)), s.of(m.make(3, 10*sec))
		small.allow(2, pass(2, 0, 10*sec))
		large.allow(1, pass(3, 0, 10*sec))
		large.peek(stop(3, 0, 10*sec, 10*sec))
	}, slidingWindow, movingWindow, refusedWindow, fixedWindow, elasticWindow)},

	{"a funnel or bucket with other numbers is another one", func(s *script) {
		type first struct {
			limit core.Limit
			left  int // after its first action
		}
		var all []first
		for _, rate := range []core.Rate{core.Every(10 * sec), core.Every(10*sec + usec), core.Per(3, 10*sec)} {
			for n := 2; n < 5; n++ {
				all = append(all, first{core.Funnel(n, rate), n - 1}, first{core.TokenBucket(n, rate), n - 1})
				for initial := 1; initial <= n; initial++ {
					all = append(all, first{core.TokenBucket(n, rate).Initial(initial), initial - 1})
				}
			}
		}
		for _, l := range all {
			a := s.of(l.limit)
			if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || !d.Allowed || d.Remaining != l.left {
				s.Fatalf("%v: %s, %v; want %d to remain", l.limit, show(d), err, l.left)
			}
		}
		s.of(core.Funnel(2, core.Per(6, time.Minute))).peek(pass(2, 1, 10*sec)) // the same numbers
	}},

	{"two meters of different sizes each admit no more than alone", func(s *script) {
		s.f.stands(s)
		rate := core.Per(5, 2*sec)
		for _, make := range []func(int) core.Limit{
			func(n int) core.Limit { return core.Funnel(n, rate) },
			func(n int) core.Limit { return core.TokenBucket(n, rate) },
			func(n int) core.Limit { return core.TokenBucket(n, rate).Initial(n) },
		} {
			start, passed := s.now, map[int]int{}
			for ; s.now < start+20*sec; s.at(s.now + 100*ms) {
				for _, n := range []int{5, 15} {
					a := s.of(make(n))
					d, err := a.l.Allow(s.Context(), a.user, a.action)
					if err != nil {
						s.Fatal(err)
					}
					if d.Allowed {
						passed[n]++
					}
				}
			}
			for n, got := range passed {
				if want := n + 49; got != want { // one more every 0.4 s
					s.Errorf("%s let %d pass in 20 s, not %d", make(n), got, want)
				}
			}
		}
	}},

	{"limits of another kind, period, name or other numbers share no state", func(s *script) {
		var limits []core.Limit
		for _, l := range []core.Limit{
			core.SlidingWindow(1, time.Minute), countRefused(1, time.Minute), core.MovingWindow(1, time.Minute),
			core.FixedWindow(1, time.Minute), core.ElasticWindow(1, time.Minute),
			core.SlidingWindow(1, time.Hour), countRefused(1, time.Hour), core.MovingWindow(1, time.Hour),
			core.FixedWindow(1, time.Hour), core.ElasticWindow(1, time.Hour),
			core.FixedWindow(1, time.Minute+usec), core.FixedWindow(1, 10*time.Minute),
			core.TokenBucket(1, core.Every(time.Minute)), core.Funnel(1, core.Every(time.Minute)),
			core.TokenBucket(1, core.Every(time.Hour)), core.Funnel(1, core.Every(time.Hour)),
			core.TokenBucket(1, core.Every(time.Minute)).Initial(1), core.TokenBucket(11, core.Every(time.Minute)).Initial(1),
		} {
			limits = append(limits, l)
			for _, name := range []string{"a", "A", "a.", "_", "1", "1m", "1h", "funnel", "sliding", "fixed", "60000000"} {
				limits = append(limits, l.Named(name))
			}
		}
		for range 2 {
			for _, l := range limits {
				a := s.of(l)
				a.reset()
				if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || !d.Allowed || d.Remaining != 0 {
					s.Fatalf("%s: %s, %v; want it to pass", l, show(d), err)
				}
			}
		}
		for _, l := range limits {
			a := s.of(l)
			if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || d.Allowed {
				s.Fatalf("%s, once more: %s, %v; want it refused", l, show(d), err)
			}
		}
	}},

	{"a PerUser limit counts all of a user's actions together, and its key is no action's key", func(s *script) {
		l := core.FixedWindow(2, 10*sec)
		a := s.of(l.PerUser())
		a.allow(1, pass(2, 1, 10*sec))
		a.as(a.user, "like").allow(1, pass(2, 0, 10*sec))
		a.as(a.user, "*").allow(1, stop(2, 0, 10*sec, 10*sec))
		a.as("another", "like").allow(1, pass(2, 1, 10*sec))
		for _, action := range []string{"*", "like", "reply"} {
			s.of(l).as(a.user, action).allow(1, pass(2, 1, 10*sec))
		}
		a.as(a.user, "like").reset()
		a.allow(1, pass(2, 1, 10*sec))
		s.of(l).as(a.user, "like").allow(1, pass(2, 0, 10*sec))
	}},

	{"users and actions are kept apart whatever their bytes", func(s *script) {
		long := strings.Repeat("x", 64<<10)
		pairs := [][2]string{
			{"a", "b"}, {"b", "a"}, {"a:b", "c"}, {"a", "b:c"}, {"a:b:c", "d"}, {"a", "b:c:d"}, {"a:b", "c:d"},
			{"a\\", "b"}, {"a", "\\b"}, {"a\\:b", "c"}, {"a\\", "b:c"}, {"a/b", "c"}, {"a", "b/c"}, {"a\n", "b"},
			{"a ", "b"}, {"a", " b"}, {" a", "b"}, {"A", "b"}, {"a", "B"},
			{"a\x00", "b"}, {"a", "\x00b"}, {"a\x00b", "c"}, {"\x00", "\x00"}, {"\x00\x00", "\x00"}, {"\x00", "\x00\x00"},
			{"\xff", "b"}, {"\xfe", "b"}, {"\xff\xfe", "b"}, {"a", "\xff"}, {"a", "\xfe"}, {"\xc3\xa9", "b"}, {"\xc3", "\xa9b"}, {"\ufffd", "b"}, {"a", "\ufffd"},
			{"e\u0301", "b"}, {"老钱", "回复"}, {"老", "钱回复"},
			{"e", "b"}, {"a", "e"}, {"a", "é"}, {"ß", "b"}, {"ss", "b"}, {"æ", "b"}, {"ae", "b"}, {"ı", "b"}, {"i", "b"}, {"\u212a", "b"}, {"k", "b"}, {"ａ", "b"}, // alike to some databases
			{"{a}", "b"}, {"a}", "b"}, {"{a", "b"}, {"}", "b"}, {"{", "b"}, {"{}", "b"}, {"a", "{b}"}, {"a}:{b", "c"}, {"a", "}{b"},
			{"%", "b"}, {"%%", "b"}, {"%25", "b"}, {"%3A", "b"}, {":", "b"}, {"a%3Ab", "c"}, {"%7B", "b"}, {"%00", "b"}, {"%ff", "b"}, {"%FF", "b"}, {"\\xff", "b"},
			{"~", "b"}, {"~~", "b"}, {"~2:a", "b"}, {"a", "~"}, {"a", "~b"}, {"~a", "b"}, {"#a", "b"}, {"=a", "b"}, {"*", "b"}, {"?", "b"}, {"[a]", "b"}, {"-", "-"}, {".", "."}, {"_", "_"},
			{"a", "b:fixed:1h0m0s"}, {"a", "fixed"}, {"a:b:fixed:1h0m0s", "x"}, {"a", "b:fixed"},
			{long, "b"}, {long + "x", "b"}, {long[1:], "xb"}, {long[1:] + "y", "b"}, {"y" + long[1:], "b"}, {"a", long}, {"a", long[1:] + "y"}, {long, long}, {long[1:], long + "x"},
		}
		for n := 16; n <= 1024; n *= 2 { // wherever a bound may be
			for _, n := range []int{n - 1, n, n + 1} {
				pairs = append(pairs, [2]string{long[:n], "b"}, [2]string{long[1:n] + "y", "b"}, [2]string{"a", long[:n]}, [2]string{long[:n], long[:n]})
			}
		}
		l := s.of(core.FixedWindow(1, time.Hour))
		for round, want := range []core.Decision{pass(1, 0, time.Hour), stop(1, 0, time.Hour, time.Hour)} {
			for _, p := range pairs {
				d, err := l.l.Allow(s.Context(), p[0], p[1])
				if err != nil || !s.f.agree(d, want) {
					s.Fatalf("round %d: user %.80q, action %.80q: %s, %v", round, p[0], p[1], show(d), err)
				}
			}
		}
		l.as(pairs[2][0], pairs[2][1]).reset()
		l.as(pairs[2][0], pairs[2][1]).peek(pass(1, 1, 0))
		l.as(pairs[3][0], pairs[3][1]).peek(stop(1, 0, time.Hour, time.Hour))
	}},

	{"a fresh key's first cost may be all of a large window", each(func(s *script, m maker) {
		a := s.of(m.make(10_000, year))
		a.allow(9_999, pass(10_000, 1, year))
		a.allow(2, stop(10_000, 1, year, year))
		a.allow(10_001, stop(10_000, 1, core.Never, year))
		a.allow(1, pass(10_000, 0, year))
		s.at(year - usec)
		a.peek(stop(10_000, 0, usec, usec))
		s.at(year)
		a.allow(10_000, pass(10_000, 0, year))
	}, slidingWindow, movingWindow, fixedWindow)},

	{"a count goes up to a billion", each(func(s *script, m maker) {
		a := s.of(m.make(1e9, year))
		a.allow(1, pass(1e9, 1e9-1, year))
		a.allow(1e9, stop(1e9, 1e9-1, year, year))
		a.allow(1e9-1, pass(1e9, 0, year))
		a.allow(1, stop(1e9, 0, year, year))
		s.at(year - usec)
		a.peek(stop(1e9, 0, usec, usec))
		s.at(year)
		a.allow(1e9, pass(1e9, 0, year))
	}, fixedWindow, elasticWindow)},

	{"a moving window goes up to fifty million", func(s *script) {
		a := s.of(core.MovingWindow(50_000_000, year))
		a.allow(3, pass(50_000_000, 49_999_997, year))
		a.allow(1_000_000, pass(50_000_000, 48_999_997, year))
		a.allow(50_000_001, stop(50_000_000, 48_999_997, core.Never, year))
	}},
}

// other is a limit that has no room, to refuse on behalf of what is under test.
func (s *script) other(user string) core.Limit {
	s.Helper()
	l := core.FixedWindow(1, year).Named("exhausted")
	a := s.of(l).as(user, "reply")
	a.reset()
	a.allow(1, pass(1, 0, year))
	return l
}

var clockRules = []promise{
	{"a window's end in the future is corrected by an action that another limit refuses, and not by a Peek", each(func(s *script, m maker) {
		l := m.make(5, 10*sec)
		a := s.of(l)
		s.at(100 * sec)
		a.allow(1, pass(5, 4, 10*sec))
		s.at(50 * sec)
		a.peek(pass(5, 4, 10*sec))
		a.allow(0, pass(5, 4, 10*sec))
		a.allow(6, stop(5, 4, core.Never, 10*sec))
		s.at(56 * sec)
		a.peek(pass(5, 4, 10*sec)) // nothing was written
		s.of(l, s.other(a.user)).allow(1, by(1, stop(1, 0, year, year)))
		s.at(62 * sec)
		a.peek(pass(5, 4, 4*sec))
		s.at(66 * sec)
		a.peek(pass(5, 5, 0))
	}, slidingWindow, movingWindow, refusedWindow, fixedWindow, elasticWindow)},

	{"a window's end in the future is corrected by an action that passes", each(func(s *script, m maker) {
		a := s.of(m.make(5, 10*sec))
		s.at(100 * sec)
		a.allow(1, pass(5, 4, 10*sec))
		s.at(50 * sec)
		a.allow(1, pass(5, 3, 10*sec))
		s.at(60*sec - usec)
		a.peek(pass(5, 3, usec))
		s.at(60 * sec)
		a.peek(pass(5, 5, 0))
	}, slidingWindow, movingWindow, refusedWindow, fixedWindow, elasticWindow)},

	{"a queue shifts so that its newest entry is now", each(func(s *script, m maker) {
		a := s.of(m.make(3, 10*sec))
		for i, at := range []time.Duration{100, 103, 107} {
			s.at(at * sec)
			a.allow(1, pass(3, 2-i, 10*sec))
		}
		s.at(50 * sec)
		a.peek(stop(3, 0, 3*sec, 10*sec)) // as if they had been at 43, 46 and 50
		s.at(106 * sec)
		a.peek(stop(3, 0, 3*sec, 10*sec)) // 99, 102 and 106
		a.allow(1, stop(3, 0, 3*sec, 10*sec))
		s.at(107 * sec)
		a.peek(stop(3, 0, 2*sec, 9*sec))
		s.at(109 * sec)
		a.allow(1, pass(3, 0, 10*sec))
	}, slidingWindow, movingWindow)},

	{"CountRefused shifts its queue before it records", func(s *script) {
		a := s.of(countRefused(2, 10*sec))
		s.at(100 * sec)
		a.allow(1, pass(2, 1, 10*sec))
		s.at(104 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		s.at(90 * sec)
		a.allow(1, stop(2, 0, 10*sec, 10*sec)) // at 86 and 90 before, at 90 and 90 now
		s.at(100 * sec)
		a.peek(pass(2, 2, 0))
	}},

	{"a clock that steps back a little leaves a window as it is", each(func(s *script, m maker) {
		a := s.of(m.make(5, 10*sec))
		s.at(100 * sec)
		a.allow(1, pass(5, 4, 10*sec))
		s.at(108 * sec)
		s.at(104 * sec)
		a.allow(1, pass(5, 3, 6*sec))
		s.at(110 * sec)
		a.peek(pass(5, 5, 0))
	}, fixedWindow)},

	{"a debt in the future is corrected by the first action, even a refused one, and not by a Peek", func(s *script) {
		for _, l := range []core.Limit{
			core.Funnel(2, core.Every(10*sec)),
			core.TokenBucket(2, core.Every(10*sec)),
			core.TokenBucket(2, core.Every(10*sec)).Initial(2).Named("i"),
		} {
			a := s.of(l)
			s.at(100 * sec)
			a.allow(2, pass(2, 0, 20*sec))
			s.at(50 * sec)
			a.peek(stop(2, 0, 10*sec, 20*sec))
			a.allow(0, pass(2, 0, 20*sec))
			a.allow(3, stop(2, 0, core.Never, 20*sec))
			s.at(60 * sec)
			a.peek(stop(2, 0, 10*sec, 20*sec)) // nothing was written
			a.allow(1, stop(2, 0, 10*sec, 20*sec))
			s.at(70*sec - usec)
			a.peek(stop(2, 0, usec, 10*sec+usec))
			s.at(70 * sec)
			a.allow(1, pass(2, 0, 20*sec))
			a.reset()
		}
	}},

	{"a debt that exceeds the full quota by a part of a microsecond is corrected", func(s *script) {
		a := s.of(core.Funnel(7, core.Per(7, 2*sec)))
		s.at(100 * sec)
		a.allow(3, pass(7, 4, 857_143*usec))
		s.at(s.now + 857_142*usec - 2*sec) // 2 s and 6/7 us before the debt ends
		a.peek(stop(7, 0, 285_715*usec, 2*sec))
	}},

	{"a debt of at most one full quota stays as it is", func(s *script) {
		a := s.of(core.Funnel(3, core.Every(10*sec)))
		s.at(100 * sec)
		a.allow(1, pass(3, 2, 10*sec))
		s.at(80 * sec)
		a.peek(stop(3, 0, 10*sec, 30*sec))
		s.at(85 * sec)
		a.allow(1, stop(3, 0, 5*sec, 25*sec))
		s.at(90 * sec)
		a.allow(1, pass(3, 0, 30*sec))
	}},

	{"a bucket's last action in the future is corrected, so that the bucket is forgotten in time", func(s *script) {
		l := core.TokenBucket(4, core.Every(sec)).Initial(3).ForgetAfter(10 * sec)
		for i, act := range []func(a *actor){
			func(a *actor) { s.of(l, s.other(a.user)).as(a.user, "reply").allow(1, by(1, stop(1, 0, year, year))) },
			func(a *actor) { a.allow(4, stop(4, 1, 3*sec, 3*sec)) },
		} {
			a := s.of(l).as(fmt.Sprint("user ", i), "reply")
			s.at(100 * sec)
			a.allow(1, pass(4, 2, 2*sec))
			s.at(99 * sec)
			a.peek(pass(4, 1, 3*sec))
			act(a)
			s.at(109*sec - usec)
			a.peek(pass(4, 4, 0))
			s.at(109 * sec)
			a.peek(pass(4, 3, sec))
		}
		// A Peek puts nothing right.
		a := s.of(l).as("peeking", "reply")
		s.at(200 * sec)
		a.allow(1, pass(4, 2, 2*sec))
		s.at(199 * sec)
		a.peek(pass(4, 1, 3*sec))
		a.allow(5, stop(4, 1, core.Never, 3*sec))
		s.at(210*sec - usec)
		a.peek(pass(4, 4, 0))
		s.at(210 * sec)
		a.peek(pass(4, 3, sec))
	}},

	{"a user who waits RetryAfter is not locked out for longer than one full period", ofEach(func(s *script, a *actor, l core.Limit) {
		s.at(time.Hour)
		for range 7 {
			if _, err := a.l.Allow(s.Context(), a.user, a.action); err != nil {
				s.Fatal(err)
			}
		}
		s.at(0)
		start := s.now
		for tries := 0; ; tries++ {
			d, err := a.l.Allow(s.Context(), a.user, a.action)
			if err != nil {
				s.Fatal(err)
			}
			if d.Allowed {
				break
			}
			if tries == 2 {
				s.Fatalf("refused a third time: %s", show(d))
			}
			s.at(s.now + d.RetryAfter)
		}
		if waited := s.now - start; waited > l.Period() {
			s.Fatalf("waited %v, longer than %v", waited, l.Period())
		}
	})},
}
