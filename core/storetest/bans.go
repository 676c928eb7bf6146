package storetest

// Ban policies.

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

func (a *actor) ban(d time.Duration) {
	a.s.Helper()
	if err := a.l.Ban(a.s.Context(), a.user, a.action, d); err != nil {
		a.s.Fatalf("at %v: Ban: %v", a.s.now, err)
	}
}

func (a *actor) unban() {
	a.s.Helper()
	if err := a.l.Unban(a.s.Context(), a.user, a.action); err != nil {
		a.s.Fatalf("at %v: Unban: %v", a.s.now, err)
	}
}

func (a *actor) standing(want core.BanStatus) {
	a.s.Helper()
	got, err := a.l.Status(a.s.Context(), a.user, a.action)
	if err != nil || !a.s.f.sameBan(got.Ban, want) {
		a.s.Errorf("at %v: Status: %+v, %v, want %+v", a.s.now, got.Ban, err, want)
	}
}

// banned is d of somebody who is banned for so long.
func banned(level int, d core.Decision) core.Decision {
	d.Reason, d.BanLevel = core.ReasonBanned, level
	return d
}

func level(n int, d core.Decision) core.Decision {
	d.BanLevel = n
	return d
}

// steps is a policy of two refusals within 10 s.
var steps = core.BanPolicy{Refusals: 2, Within: 10 * sec, Bans: []time.Duration{20 * sec, 60 * sec}, ForgetAfter: 100 * sec}

var banRules = []promise{
	{"the last of Refusals within Within starts a ban", func(s *script) {
		a := s.of(core.FixedWindow(1, 5*sec)).with(steps)
		a.allow(1, pass(1, 0, 5*sec))
		a.standing(core.BanStatus{})
		a.allow(1, stop(1, 0, 5*sec, 5*sec))
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 10 * sec})
		s.at(1 * sec)
		a.allow(1, banned(1, stop(1, 0, 20*sec, 20*sec)))
		a.standing(core.BanStatus{Banned: true, RetryAfter: 20 * sec, ForgetAfter: 120 * sec, Level: 1})
		s.at(21*sec - usec)
		a.peek(banned(1, stop(1, 0, usec, usec)))
		a.allow(1, banned(1, stop(1, 0, usec, usec)))
		s.at(21 * sec)
		a.standing(core.BanStatus{ForgetAfter: 100 * sec, Level: 1})
		a.allow(1, level(1, pass(1, 0, 5*sec)))
	}},

	{"bans in a row are counted, and the last length repeats", func(s *script) {
		a := s.of(core.FixedWindow(1, year)).with(steps)
		a.allow(1, pass(1, 0, year))
		at := time.Duration(0)
		for i, length := range []time.Duration{20 * sec, 60 * sec, 60 * sec} {
			s.at(at)
			a.allow(1, level(i, stop(1, 0, year-at, year-at)))
			a.allow(1, banned(i+1, stop(1, 0, year-at, year-at)))
			a.standing(core.BanStatus{Banned: true, RetryAfter: length, ForgetAfter: length + 100*sec, Level: i + 1})
			at += length
		}
	}},

	{"the level is forgotten after ForgetAfter, even if a refusal still counts", func(s *script) {
		a := s.of(core.FixedWindow(1, year)).with(core.BanPolicy{
			Refusals: 2, Within: 10 * sec, Bans: []time.Duration{sec, 7 * sec}, ForgetAfter: 5 * sec})
		a.allow(1, pass(1, 0, year))
		a.allow(1, stop(1, 0, year, year))
		a.allow(1, banned(1, stop(1, 0, year, year)))
		s.at(2 * sec)
		a.allow(1, level(1, stop(1, 0, year-2*sec, year-2*sec)))
		s.at(7*sec - usec)
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 5*sec + usec, Level: 1})
		s.at(7 * sec)
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 5 * sec})
		a.allow(1, banned(1, stop(1, 0, year-7*sec, year-7*sec)))
		a.standing(core.BanStatus{Banned: true, RetryAfter: sec, ForgetAfter: 6 * sec, Level: 1})
	}},

	{"a banned user is charged nothing, and further attempts do not lengthen the ban", func(s *script) {
		for _, l := range s.f.exact(everyKind(2, time.Minute)) {
			s.at(0)
			a := s.of(l).with(steps).as("banned from "+l.String(), "reply")
			a.allow(2, pass(2, 0, time.Minute))
			a.ban(12 * sec)
			for i := range 5 {
				s.at(time.Duration(i) * sec)
				wait := time.Minute - s.now
				retry := wait
				if l.Kind() == "bucket" || l.Kind() == "funnel" {
					retry = 30*sec - s.now
				}
				a.allow(1, banned(0, stop(2, 0, retry, wait)))
			}
			a.unban()
			s.at(time.Minute)
			a.peek(pass(2, 2, 0))
		}
	}},

	{"an attempt is one refusal whatever its cost; a Peek or an impossible cost is none", func(s *script) {
		a := s.of(core.FixedWindow(5, time.Hour)).with(steps)
		a.allow(3, pass(5, 2, time.Hour))
		a.allow(6, stop(5, 2, core.Never, time.Hour))
		a.peekN(3, stop(5, 2, time.Hour, time.Hour))
		a.standing(core.BanStatus{})
		a.allow(5, stop(5, 2, time.Hour, time.Hour))
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 10 * sec})
	}},

	{"a manual ban replaces any other and does not count as a level", func(s *script) {
		a := s.of(core.FixedWindow(1, time.Hour)).with(steps)
		a.ban(50 * sec)
		a.standing(core.BanStatus{Banned: true, RetryAfter: 50 * sec, ForgetAfter: 50 * sec})
		a.allow(1, banned(0, stop(1, 0, 50*sec, 50*sec)))
		s.at(1 * sec)
		a.ban(5 * sec)
		a.standing(core.BanStatus{Banned: true, RetryAfter: 5 * sec, ForgetAfter: 5 * sec})
		s.at(6*sec - usec)
		a.allow(1, banned(0, stop(1, 0, usec, usec)))
		s.at(6 * sec)
		a.allow(1, pass(1, 0, time.Hour))
	}},

	{"a zero policy bans by hand only, and counts no refusal", func(s *script) {
		a := s.of(core.FixedWindow(1, time.Hour)).with(core.BanPolicy{})
		a.allow(1, pass(1, 0, time.Hour))
		for range 3 {
			a.allow(1, stop(1, 0, time.Hour, time.Hour))
		}
		a.standing(core.BanStatus{})
		a.ban(2 * time.Hour)
		a.allow(1, banned(0, stop(1, 0, 2*time.Hour, 2*time.Hour)))
		a.standing(core.BanStatus{Banned: true, RetryAfter: 2 * time.Hour, ForgetAfter: 2 * time.Hour})
		a.unban()
		a.allow(1, stop(1, 0, time.Hour, time.Hour))
	}},

	{"Unban ends a ban and forgets the level, and leaves the limits as they are", func(s *script) {
		a := s.of(core.FixedWindow(1, time.Hour)).with(steps)
		a.allow(1, pass(1, 0, time.Hour))
		a.allow(1, stop(1, 0, time.Hour, time.Hour))
		a.allow(1, banned(1, stop(1, 0, time.Hour, time.Hour)))
		a.unban()
		a.standing(core.BanStatus{})
		a.peek(stop(1, 0, time.Hour, time.Hour))
		a.reset()
		a.allow(1, pass(1, 0, time.Hour))
	}},

	{"a policy with PerUser counts the refusals of all actions, and bans from all of them", func(s *script) {
		all := steps
		all.PerUser = true
		a := s.of(core.FixedWindow(1, 5*sec)).with(all)
		likes, another := a.as(a.user, "like"), a.as("another", "reply")
		a.allow(1, pass(1, 0, 5*sec))
		likes.allow(1, pass(1, 0, 5*sec))
		a.allow(1, stop(1, 0, 5*sec, 5*sec))
		likes.allow(1, banned(1, stop(1, 0, 20*sec, 20*sec)))
		a.allow(1, banned(1, stop(1, 0, 20*sec, 20*sec)))
		a.as(a.user, "follow").standing(core.BanStatus{Banned: true, RetryAfter: 20 * sec, ForgetAfter: 120 * sec, Level: 1})
		another.standing(core.BanStatus{})
		s.of(core.FixedWindow(1, 5*sec)).with(steps).standing(core.BanStatus{})
		a.reset()
		a.standing(core.BanStatus{Banned: true, RetryAfter: 20 * sec, ForgetAfter: 120 * sec, Level: 1})
	}},

	{"the largest policy has a hundred refusals and sixteen bans, of a year", func(s *script) {
		bans := make([]time.Duration, 16)
		for i := range bans {
			bans[i] = year - time.Duration(i)*sec
		}
		largest := core.BanPolicy{Refusals: 100, Within: year, Bans: bans, ForgetAfter: year}
		single := largest
		single.Refusals = 1
		a := s.of(core.FixedWindow(1, year)).with(largest)
		a.allow(1, pass(1, 0, year))
		for range 99 {
			a.allow(1, stop(1, 0, year, year))
		}
		a.standing(core.BanStatus{Refusals: 99, ForgetAfter: year})
		at, b := time.Duration(0), s.of(core.FixedWindow(1, year)).with(single)
		for i := range 17 {
			s.at(at)
			if i > 0 {
				b.allow(1, level(i, pass(1, 0, year)))
			}
			refused := b
			if i == 0 {
				refused = a
			}
			refused.allow(1, banned(i+1, stop(1, 0, year, year)))
			b.standing(core.BanStatus{Banned: true, RetryAfter: bans[min(i, 15)], ForgetAfter: bans[min(i, 15)] + year, Level: i + 1})
			at += year
		}
	}},
}
