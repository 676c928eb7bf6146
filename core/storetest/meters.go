package storetest

// Buckets and funnels: by their capacity and rate.

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

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
