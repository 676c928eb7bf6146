package storetest

// Turns that are reserved ahead.

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

// ahead is an action that may wait so long for its turn.
func (a *actor) ahead(by time.Duration, want core.Decision) core.Decision {
	a.s.Helper()
	l := core.Must(core.New(&eager{a.s.f.Store, by.Microseconds()}, a.limits...))
	got, err := l.Allow(a.s.Context(), a.user, a.action)
	a.check("ahead", got, err, want)
	return got
}

// whole is the ResetAfter after that many units, for a limit of 5 a minute.
func (a *actor) whole(units int) time.Duration {
	if k := a.l.Limits()[0].Kind(); k == "bucket" || k == "funnel" {
		return time.Duration(units) * 12 * sec
	}
	return time.Minute
}

// later is the ResetAfter if a full limit is surcharged again a second later. A meter has leaked
// a twelfth of a unit by then, and takes that much.
func (a *actor) later() time.Duration {
	if k := a.l.Limits()[0].Kind(); k == "bucket" || k == "funnel" {
		return time.Minute
	}
	return 59 * sec
}

var turnRules = []promise{
	{"a charge ahead reserves a turn behind all others, and a caller that does not wait is refused", func(s *script) {
		s.f.stands(s)
		for _, l := range []core.Limit{
			core.Funnel(2, core.Every(10*sec)), core.TokenBucket(2, core.Every(10*sec)), core.TokenBucket(2, core.Every(10*sec)).Initial(2).Named("i"),
		} {
			s.at(0)
			a := s.of(l).as("waits for "+l.String(), "like")
			a.allow(2, pass(2, 0, 20*sec))
			a.ahead(10*sec-usec, stop(2, 0, 10*sec, 20*sec))
			a.ahead(10*sec, pass(2, 0, 30*sec))
			a.ahead(20*sec-usec, stop(2, 0, 20*sec, 30*sec))
			a.ahead(20*sec, pass(2, 0, 40*sec))
			a.allow(1, stop(2, 0, 30*sec, 40*sec))
			s.at(30*sec - usec)
			a.allow(1, stop(2, 0, usec, 10*sec+usec))
			s.at(30 * sec)
			a.allow(1, pass(2, 0, 20*sec))
			s.at(50 * sec)
			a.peek(pass(2, 2, 0))
			a.reset()
		}
	}},

	{"a bucket with Initial whose turns move back with the clock is forgotten as long after the last turn", func(s *script) {
		a := s.of(core.TokenBucket(2, core.Every(10*sec)).Initial(1).ForgetAfter(25 * sec))
		s.at(1000 * sec)
		a.allow(1, pass(2, 0, 20*sec))
		a.ahead(time.Minute, pass(2, 0, 30*sec))
		s.at(500 * sec)
		a.allow(1, stop(2, 0, 20*sec, 30*sec))
		s.at(535*sec - usec)
		a.peek(pass(2, 2, 0))
		s.at(535 * sec)
		a.peek(pass(2, 1, 10*sec))
	}},
}
