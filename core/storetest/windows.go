package storetest

// The windows: by their max and period.

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

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
}
