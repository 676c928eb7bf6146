package storetest

// Which limits share a state, and how much one may hold.

import (
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
)

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
