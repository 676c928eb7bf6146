package storetest

// Clocks that step back.

import (
	"fmt"
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
