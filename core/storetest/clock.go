package storetest

// Clocks that step back.

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

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
