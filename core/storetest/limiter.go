package storetest

// Limiters of any limits: RetryAfter, costs, several limits, and calls that write nothing.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

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

	{"the limit with the longest RetryAfter binds if any refuses", func(s *script) {
		s.f.stands(s)
		a := s.of(core.SlidingWindow(6, 10*sec), core.Funnel(10, core.Every(time.Hour)), core.FixedWindow(20, year))
		a.allow(5, by(0, pass(6, 1, 10*sec)))
		a.allow(6, by(1, stop(10, 1, time.Hour, 5*time.Hour))) // Remaining is still the least of all
		a.allow(2, by(0, stop(6, 1, 10*sec, 10*sec)))          // the funnel would let this pass
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
