package storetest

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// The promises of OnlyFailures.

// locks bans at the first refusal.
var locks = core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{15 * time.Minute}}

// left is what remains of the actor's first limit, without the slots of attempts.
func (a *actor) left() int {
	a.s.Helper()
	d, err := core.Must(core.New(a.s.f.Store, a.limits...)).Peek(a.s.Context(), a.user, a.action)
	if err != nil {
		a.s.Fatal(err)
	}
	return d.Remaining
}

// failed counts a failure.
func (a *actor) failed(n int) {
	a.s.Helper()
	if d, err := a.l.Surcharge(a.s.Context(), a.user, a.action, n); err != nil || !d.Allowed {
		a.s.Fatalf("at %v: Surcharge(%d): %s, %v", a.s.now, n, show(d), err)
	}
}

// refused is an attempt that is refused for a reason.
func (a *actor) refused(why core.Reason) {
	a.s.Helper()
	if d, err := a.l.Allow(a.s.Context(), a.user, a.action); err != nil || d.Allowed || d.Reason != why {
		a.s.Fatalf("at %v: Allow: %s, %v; want the reason %s", a.s.now, show(d), err, why)
	}
}

// attempts runs a promise for a limiter of each kind of limit, of five failures a minute.
func attempts(check func(s *script, a *actor)) func(*script) {
	return func(s *script) {
		for _, l := range rateKinds(5, time.Minute) {
			s.Run(l.String(), func(t *testing.T) {
				s.f.slots(t, []core.Limit{core.InFlight(1)})
				s.f.dated(t, l)
				s.f.toMinute()
				s := &script{T: t, f: s.f}
				check(s, s.of(l).with(core.OnlyFailures{}, locks).as(l.String(), "login"))
			})
		}
	}
}

var failureRules = []promise{
	{"attempts that are right never count", attempts(func(s *script, a *actor) {
		for range 20 {
			a.release(a.taken(1))
		}
		if left := a.left(); left != 5 {
			s.Errorf("%d remain, not 5", left)
		}
	})},

	{"Reset and then Unban end a lock, though an attempt comes between them", attempts(func(s *script, a *actor) {
		a.failed(5)
		a.refused(core.ReasonBanned)
		a.reset()
		a.refused(core.ReasonBanned)
		a.unban()
		a.release(a.taken(1))
		a.standing(core.BanStatus{})
	})},

	{"attempts in progress refuse others, which counts towards no ban", attempts(func(s *script, a *actor) {
		var taken []core.Decision
		for range 5 {
			taken = append(taken, a.taken(1))
		}
		for range 3 {
			a.refused(core.ReasonInFlight)
		}
		a.standing(core.BanStatus{})
		a.release(taken[0])
		taken[0] = a.taken(1)
		a.refused(core.ReasonInFlight)
		for _, d := range taken {
			a.release(d)
		}
		if left := a.left(); left != 5 {
			s.Errorf("%d remain, not 5", left)
		}
		a.release(a.taken(1))
	})},

	{"n failures lock, one after the other", attempts(func(s *script, a *actor) {
		for i := range 5 {
			d := a.taken(1)
			a.failed(1)
			a.release(d)
			if left := a.left(); left != 4-i {
				s.Errorf("%d remain after %d failures", left, i+1)
			}
		}
		a.refused(core.ReasonBanned)
		a.refused(core.ReasonBanned)
	})},

	{"n failures lock at once, and fewer than 2n attempts begin", attempts(func(s *script, a *actor) {
		begun := 0
		var taken []core.Decision
		for range 1000 { // whenever there is no slot, the oldest attempt fails
			d, err := a.l.Allow(s.Context(), a.user, a.action)
			switch {
			case err != nil:
				s.Fatal(err)
			case d.Allowed:
				begun++
				taken = append(taken, d)
			case d.Reason == core.ReasonInFlight && len(taken) > 0:
				a.failed(1)
				a.release(taken[0])
				taken = taken[1:]
			}
		}
		if begun < 5 || begun >= 10 {
			s.Errorf("%d attempts began", begun)
		}
		for _, d := range taken {
			a.failed(1)
			a.release(d)
		}
		a.refused(core.ReasonBanned)
	})},

	{"a refund and a settlement of an attempt change nothing", attempts(func(s *script, a *actor) {
		s.f.refunds(s)
		for _, actual := range []int{0, 1, 7} {
			d := a.taken(1)
			a.failed(1)
			if err := a.l.Settle(s.Context(), d, actual); err != nil {
				s.Error(err)
			}
			a.release(d)
		}
		d := a.taken(1)
		a.refund(d, 1)
		a.release(d)
		if left := a.left(); left != 2 {
			s.Errorf("%d remain after 3 failures, not 2", left)
		}
	})},

	{"a shadow limit counts failures too", func(s *script) {
		shadow := core.FixedWindow(2, time.Minute).Shadow()
		a := s.of(core.FixedWindow(5, time.Minute), shadow)
		s.f.slots(s, []core.Limit{core.InFlight(1)})
		a = a.with(core.OnlyFailures{})
		for range 3 {
			a.release(a.taken(1))
		}
		a.failed(2)
		d := a.taken(1)
		if d.Reason != core.ReasonShadowed {
			s.Errorf("%s; want it shadowed", show(d))
		}
		a.release(d)
	}},

	{"beside a limit that counts all attempts", func(s *script) {
		s.f.slots(s, []core.Limit{core.InFlight(1)})
		perName := s.of(core.FixedWindow(5, time.Minute)).with(core.OnlyFailures{})
		perAddress := s.of(core.FixedWindow(7, time.Minute))
		for i := range 8 {
			d, err := core.All(s.Context(), perName.l.For("alice", "login"), perAddress.l.For("203.0.113.9", "login-address"))
			if err != nil || d.Allowed != (i < 7) {
				s.Fatalf("attempt %d: %s, %v", i, show(d), err)
			}
			perName.release(d)
		}
		if left := perName.as("alice", "login").left(); left != 5 {
			s.Errorf("%d failures remain, not 5", left)
		}
	}},

	{"no limit that a program names has the slots of attempts", func(s *script) {
		s.f.slots(s, []core.Limit{core.InFlight(1)})
		logins := s.of(core.FixedWindow(5, time.Minute), core.InFlight(1).Named("checking").Shadow()).with(core.OnlyFailures{})
		own := s.of(core.InFlight(1).Named("checking"))
		if logins.l.For("alice", "login").SharesState(own.l.For("alice", "login")) {
			s.Error("the subjects share a state")
		}
		own.taken(1)
		for range 5 {
			logins.taken(1)
		}
		logins.refused(core.ReasonInFlight)
	}},

	{"given twice it is given once", func(s *script) {
		s.f.slots(s, []core.Limit{core.InFlight(1)})
		a := s.of(core.FixedWindow(5, time.Minute)).with(core.OnlyFailures{}).with(core.OnlyFailures{})
		if got := a.l.Limits(); len(got) != 2 || got[1].Name() != "+checking" || got[1].Quota() != 5 {
			s.Errorf("%v", got)
		}
		a.release(a.taken(5))
	}},

	{"with a limit PerUser the attempts of all actions share the slots", func(s *script) {
		s.f.slots(s, []core.Limit{core.InFlight(1)})
		a := s.of(core.FixedWindow(2, time.Minute).PerUser()).with(core.OnlyFailures{})
		a.taken(1)
		a.as("alice", "another").taken(1)
		a.refused(core.ReasonInFlight)
	}},
}
