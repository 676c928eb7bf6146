package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// The promises of InFlight.

// busy is the refusal of InFlight.
func busy(limit, remaining int, retry, reset time.Duration) core.Decision {
	return because(core.ReasonInFlight, stop(limit, remaining, retry, reset))
}

// taken is an action that has taken slots.
func (a *actor) taken(n int) core.Decision {
	a.s.Helper()
	d, err := a.l.AllowN(a.s.Context(), a.user, a.action, n)
	if err != nil || !d.Allowed {
		a.s.Fatalf("at %v: AllowN(%d): %s, %v; want it to pass", a.s.now, n, show(d), err)
	}
	return d
}

func (a *actor) release(d core.Decision) {
	a.s.Helper()
	if err := a.l.Release(a.s.Context(), d); err != nil {
		a.s.Fatalf("at %v: Release: %v", a.s.now, err)
	}
}

func (a *actor) renew(d core.Decision, want error) {
	a.s.Helper()
	if err := a.l.Renew(a.s.Context(), d); !errors.Is(err, want) {
		a.s.Fatalf("at %v: Renew: %v, want %v", a.s.now, err, want)
	}
}

var slotRules = []promise{
	{"a slot is free when it is released, and once", func(s *script) {
		a := s.of(core.InFlight(2).Lease(time.Hour))
		first := a.taken(1)
		a.allow(1, pass(2, 0, time.Hour))
		a.allow(1, busy(2, 0, time.Hour, time.Hour))
		for range 3 {
			a.release(first)
		}
		a.allow(1, pass(2, 0, time.Hour))
		a.allow(1, busy(2, 0, time.Hour, time.Hour))
		a.renew(first, core.ErrLeaseEnded)
	}},

	{"a slot that is neither released nor renewed is free when its lease ends", func(s *script) {
		a := s.of(core.InFlight(2).Lease(10 * sec))
		first := a.taken(1)
		s.at(4 * sec)
		a.allow(1, pass(2, 0, 10*sec))
		a.allow(1, busy(2, 0, 6*sec, 10*sec))
		s.at(10*sec - usec)
		a.allow(1, busy(2, 0, usec, 4*sec+usec))
		s.at(10 * sec)
		a.renew(first, core.ErrLeaseEnded)
		a.allow(1, pass(2, 0, 10*sec))
		a.release(first) // its slot is another action's by now
		a.renew(first, core.ErrLeaseEnded)
		a.allow(1, busy(2, 0, 4*sec, 10*sec))
	}},

	{"a renewed slot is taken for another lease", func(s *script) {
		a := s.of(core.InFlight(2).Lease(10 * sec))
		first := a.taken(1)
		s.at(4 * sec)
		second := a.taken(1)
		s.at(9 * sec)
		a.renew(first, nil)
		a.allow(1, busy(2, 0, 5*sec, 10*sec))
		s.at(14 * sec)
		a.renew(second, core.ErrLeaseEnded)
		a.allow(1, pass(2, 0, 10*sec))
		s.at(19*sec - usec)
		a.renew(first, nil)
		a.renew(first, nil)
		s.at(24 * sec)
		a.peek(pass(2, 1, 5*sec-usec))
		a.release(first)
		a.peek(pass(2, 2, 0))
	}},

	{"an action of several units takes and frees as many slots", func(s *script) {
		s.f.stands(s)
		a := s.of(core.InFlight(5).Lease(10 * sec))
		three, one := a.taken(3), a.taken(1)
		s.at(4 * sec)
		a.renew(three, nil)
		a.allow(2, busy(5, 1, 6*sec, 10*sec))
		a.allow(3, busy(5, 1, 10*sec, 10*sec))
		a.release(three)
		a.peek(pass(5, 4, 6*sec))
		a.allow(5, busy(5, 4, 6*sec, 6*sec))
		a.release(one)
		a.allow(5, pass(5, 0, 10*sec))
		a.allow(6, stop(5, 0, core.Never, 10*sec))
	}},

	{"a refusal by InFlight alone does not count towards a ban", func(s *script) {
		s.f.stands(s)
		a := s.of(core.InFlight(1).Lease(time.Hour), core.FixedWindow(2, time.Hour)).with(steps)
		first := a.taken(1)
		for range 5 {
			a.allow(1, busy(1, 0, time.Hour, time.Hour))
		}
		a.standing(core.BanStatus{})
		a.release(first)
		a.allow(1, pass(1, 0, time.Hour))
		a.allow(1, by(1, stop(2, 0, time.Hour, time.Hour)))
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 10 * sec})
		a.allow(1, by(1, banned(1, stop(2, 0, time.Hour, time.Hour))))
	}},

	{"InFlight per user counts all of the user's actions, and any limiter with it sees a release", func(s *script) {
		a := s.of(core.InFlight(1).Lease(time.Hour).PerUser())
		first := a.taken(1)
		a.as(a.user, "like").allow(1, busy(1, 0, time.Hour, time.Hour))
		a.as("bob", "like").allow(1, pass(1, 0, time.Hour))
		s.of(core.FixedWindow(9, time.Hour), core.InFlight(1).Lease(time.Hour).PerUser()).release(first)
		a.as(a.user, "like").allow(1, pass(1, 0, time.Hour))
	}},

	{"an action within another takes no slot that it has", func(s *script) {
		a := s.of(core.InFlight(2).Lease(10*sec), core.FixedWindow(9, time.Minute))
		within := func(by *actor, n int, d core.Decision, want core.Decision) core.Decision {
			s.Helper()
			got, err := core.All(s.Context(), by.l.For(by.user, by.action).Cost(n).Within(a.l, d))
			by.check("Within", got, err, want)
			return got
		}
		first := a.taken(2)
		a.allow(1, busy(2, 0, 10*sec, 10*sec))
		inner := within(a, 2, first, pass(2, 0, 10*sec))
		a.renew(inner, nil)
		a.release(inner)
		a.allow(1, busy(2, 0, 10*sec, 10*sec)) // it has released nothing
		within(a.as("alice", "like"), 2, first, pass(2, 0, 10*sec))
		within(a.as("bob", "reply"), 2, first, pass(2, 0, 10*sec))
		a.allow(1, busy(2, 0, 10*sec, 10*sec))
		a.release(first)
		a.allow(1, pass(2, 1, 10*sec)) // both have charged the window: 5 of 9 remain
		s.of(core.FixedWindow(9, time.Minute)).peek(pass(9, 4, time.Minute))
	}},

	{"an action within a cheaper one takes the further slots, and frees them", func(s *script) {
		a := s.of(core.InFlight(3).Lease(10 * sec))
		first := a.taken(1)
		inner, err := core.All(s.Context(), a.l.For("alice", "reply").Cost(3).Within(a.l, first))
		a.check("Within", inner, err, pass(3, 0, 10*sec))
		deeper, err := core.All(s.Context(), a.l.For("alice", "reply").Cost(3).Within(a.l, first).Within(a.l, inner))
		a.check("Within", deeper, err, pass(3, 0, 10*sec))
		a.release(deeper)
		a.allow(1, busy(3, 0, 10*sec, 10*sec))
		a.release(inner)
		a.allow(2, pass(3, 0, 10*sec))
		again, err := core.All(s.Context(), a.l.For("alice", "reply").Cost(2).Within(a.l, first))
		a.check("Within", again, err, busy(3, 0, 10*sec, 10*sec))
	}},

	{"an action within another is held to its own number of slots", func(s *script) {
		large, small := s.of(core.InFlight(3).Lease(10*sec).PerUser()), s.of(core.InFlight(1).Lease(10*sec).PerUser())
		first := large.taken(1)
		within := func(want core.Decision) {
			s.Helper()
			got, err := core.All(s.Context(), small.l.For("alice", "like").Within(large.l, first))
			small.check("Within", got, err, want)
		}
		within(pass(1, 0, 10*sec))
		second := large.taken(1)
		within(busy(1, 0, 10*sec, 10*sec))
		large.release(second)
		within(pass(1, 0, 10*sec))
	}},

	{"Reset frees all slots, and a Release afterwards none of another action", func(s *script) {
		a := s.of(core.InFlight(1).Lease(time.Hour))
		first := a.taken(1)
		a.reset()
		if s.f.Advance != nil {
			s.at(usec)
		}
		a.allow(1, pass(1, 0, time.Hour))
		a.renew(first, core.ErrLeaseEnded)
		a.release(first)
		a.peek(busy(1, 0, time.Hour, time.Hour))
	}},

	{"a release and a renewal meet no slot of another action, however many slots each has", func(s *script) {
		s.f.stands(s)
		a := s.of(core.InFlight(10_000).Lease(1000 * usec))
		first := a.taken(5000)
		s.at(usec)
		second := a.taken(1000)
		s.at(3000 * usec)
		third := a.taken(1)
		s.at(4500 * usec)
		a.taken(1500)
		for _, d := range []core.Decision{first, second, third} {
			a.renew(d, core.ErrLeaseEnded)
			a.release(d)
		}
		a.peek(pass(10_000, 8500, 1000*usec))
	}},

	{"after the clock stepped back a slot lasts for one lease at most, and can be released and renewed", func(s *script) {
		a := s.of(core.InFlight(2).Lease(10 * sec))
		s.at(1000 * sec)
		first := a.taken(1)
		s.at(1005 * sec)
		second := a.taken(1)
		s.at(500 * sec)
		a.allow(1, busy(2, 0, 5*sec, 10*sec)) // both have moved back with the clock
		a.renew(first, nil)
		a.peek(busy(2, 0, 10*sec, 10*sec))
		a.release(second)
		a.peek(pass(2, 1, 10*sec))
		s.at(510*sec - usec)
		a.peek(pass(2, 1, usec))
		s.at(510 * sec)
		a.peek(pass(2, 2, 0))
	}},

	{"the first to renew or release a slot after the clock stepped back moves the others back too", func(s *script) {
		s.f.stands(s)
		for i, renews := range []bool{true, false} {
			s.at(1000 * sec)
			a := s.of(core.InFlight(3).Lease(10*sec)).as(fmt.Sprint("user ", i), "reply")
			first := a.taken(1)
			s.at(1004 * sec)
			a.allow(1, pass(3, 1, 10*sec))
			s.at(1005 * sec)
			a.allow(1, pass(3, 0, 10*sec))
			s.at(500 * sec)
			if renews {
				a.renew(first, nil)
				a.allow(1, busy(3, 0, 9*sec, 10*sec))
			} else {
				a.release(first)
				a.peek(pass(3, 1, 10*sec))
			}
			s.at(509 * sec)
			a.allow(1+i, pass(3, 0, 10*sec))
		}
	}},
}

// neverMore has goroutines take slots and free them again. Of a user's actions no more are
// in progress at a time than there are slots.
func neverMore(t *testing.T, open func(testing.TB) Fixture, goroutines int) {
	const users, slots, rounds = 3, 5, 4
	for _, limits := range [][]core.Limit{
		{core.InFlight(slots).Lease(time.Hour)},
		{core.FixedWindow(1e6, time.Hour), core.InFlight(slots).Lease(time.Hour).PerUser(), core.MovingWindow(1e6, time.Hour)},
	} {
		t.Run("never more in progress than "+fmt.Sprint(limits), func(t *testing.T) {
			a := (&script{T: t, f: open(t)}).of(limits...)
			var running, passed [users]atomic.Int64
			together(t, goroutines, func(i int) error {
				user := fmt.Sprint("user ", i%users)
				for range rounds {
					d, err := a.l.Allow(t.Context(), user, a.action)
					if err != nil {
						return err
					}
					if !d.Allowed {
						continue
					}
					passed[i%users].Add(1)
					if n := running[i%users].Add(1); n > slots {
						t.Errorf("%d are in progress", n)
					}
					running[i%users].Add(-1)
					if err := a.l.Release(t.Context(), d); err != nil {
						return err
					}
				}
				return nil
			})
			for i := range users {
				d, err := a.l.Peek(t.Context(), fmt.Sprint("user ", i), a.action)
				if n := passed[i].Load(); err != nil || d.Remaining < slots || n < slots {
					t.Errorf("user %d: %d passed; then %s, %v", i, n, show(d), err)
				}
			}
		})
	}
}
