package storetest

// Shadow limits, and surcharges.

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

func (a *actor) surcharge(n int, want core.Decision) {
	a.s.Helper()
	got, err := a.l.Surcharge(a.s.Context(), a.user, a.action, n)
	a.check("Surcharge", got, err, want)
}

// because gives a decision its reason. A shadow limit that it is about is the second limit.
func because(r core.Reason, d core.Decision) core.Decision {
	if d.Reason = r; r == core.ReasonNear || r == core.ReasonShadowed {
		d.Shadow = 1
	}
	return d
}

var shadowRules = []promise{
	{"a shadow limit never refuses, and says what it would have done", func(s *script) {
		a := s.of(core.FixedWindow(100, time.Hour), core.FixedWindow(5, time.Minute).Shadow())
		for i, why := range []core.Reason{"", "", "", core.ReasonNear, core.ReasonNear, core.ReasonShadowed, core.ReasonShadowed} {
			a.allow(1, because(why, pass(100, 99-i, time.Hour)))
		}
		a.peek(because(core.ReasonShadowed, pass(100, 93, time.Hour)))
		s.at(time.Minute)
		a.peek(pass(100, 93, time.Hour-time.Minute))
	}},

	{"a shadow limit and the same enforced limit have separate states", func(s *script) {
		l := core.FixedWindow(2, time.Minute)
		a := s.of(core.FixedWindow(100, time.Hour), l.Shadow())
		a.allow(2, because(core.ReasonNear, pass(100, 98, time.Hour)))
		s.of(l).peek(pass(2, 2, 0))
		a.reset()
		a.peek(pass(100, 100, 0))
	}},

	{"a refused action is not charged to shadow limits", func(s *script) {
		a := s.of(core.FixedWindow(1, time.Hour), core.FixedWindow(2, year).Shadow())
		a.allow(1, pass(1, 0, time.Hour))
		a.allow(1, stop(1, 0, time.Hour, time.Hour))
		s.at(time.Hour)
		a.allow(1, because(core.ReasonNear, pass(1, 0, time.Hour)))
	}},

	{"Shadow names the first shadow limit that would refuse, and none if a ban refuses", func(s *script) {
		a := s.of(core.FixedWindow(100, time.Hour), core.FixedWindow(1, year).Shadow(), core.FixedWindow(1, year).Named("b").Shadow()).with(steps)
		allow := func(why core.Reason, shadow int) {
			s.Helper()
			if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || d.Reason != why || d.Shadow != shadow {
				s.Errorf("%s, shadow %d, %v; want %s, shadow %d", show(d), d.Shadow, err, why, shadow)
			}
		}
		allow(core.ReasonNear, 1)
		allow(core.ReasonShadowed, 1)
		a.ban(20 * sec)
		allow(core.ReasonBanned, 0)
	}},
}

var surchargeRules = []promise{
	{"a surcharge takes what there is room for, and always passes", func(s *script) {
		for _, l := range s.f.exact(rateKinds(5, time.Minute)) {
			s.at(0)
			a := s.of(l).as("surcharge of "+l.String(), "login")
			a.allow(1, pass(5, 4, a.whole(1)))
			a.surcharge(2, pass(5, 2, a.whole(3)))
			a.surcharge(4, pass(5, 0, time.Minute))
			s.at(1 * sec)
			a.surcharge(1, pass(5, 0, a.later()))
		}
	}},

	{"a surcharge ignores bans and does not count as a refusal", func(s *script) {
		a := s.of(core.FixedWindow(5, time.Hour)).with(steps)
		a.ban(10 * sec)
		a.surcharge(5, pass(5, 0, time.Hour))
		a.surcharge(1, pass(5, 0, time.Hour))
		a.unban()
		a.standing(core.BanStatus{})
	}},
}
