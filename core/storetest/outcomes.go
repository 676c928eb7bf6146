package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
)

// with derives a limiter for the same user and action.
func (a *actor) with(options ...core.Option) *actor {
	a.s.Helper()
	l, err := a.l.With(options...)
	if err != nil {
		a.s.Fatal(err)
	}
	return &actor{a.s, l, a.limits, a.user, a.action}
}

func (a *actor) surcharge(n int, want core.Decision) {
	a.s.Helper()
	got, err := a.l.Surcharge(a.s.Context(), a.user, a.action, n)
	a.check("Surcharge", got, err, want)
}

// ahead is an action that may wait so long for its turn.
func (a *actor) ahead(by time.Duration, want core.Decision) core.Decision {
	a.s.Helper()
	l := core.Must(core.New(&eager{a.s.f.Store, by.Microseconds()}, a.limits...))
	got, err := l.Allow(a.s.Context(), a.user, a.action)
	a.check("ahead", got, err, want)
	return got
}

// paid is an action that can be given back.
func (a *actor) paid(n int) core.Decision {
	a.s.Helper()
	a.s.f.refunds(a.s)
	d, err := a.with(core.Refundable{}).l.AllowN(a.s.Context(), a.user, a.action, n)
	if err != nil || !d.Allowed {
		a.s.Fatalf("at %v: AllowN(%d): %s, %v; want it to pass", a.s.now, n, show(d), err)
	}
	return d
}

func (a *actor) refund(d core.Decision, n int) {
	a.s.Helper()
	if err := a.l.RefundN(a.s.Context(), d, n); err != nil {
		a.s.Fatalf("at %v: RefundN(%d): %v", a.s.now, n, err)
	}
}

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

// because gives a decision its reason. A shadow limit that it is about is the second limit.
func because(r core.Reason, d core.Decision) core.Decision {
	if d.Reason = r; r == core.ReasonNear || r == core.ReasonShadowed {
		d.Shadow = 1
	}
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

	{"a cost of 0 is refused while a ban lasts, and only then", func(s *script) {
		a := s.of(core.FixedWindow(1, 50*sec)).with(steps)
		a.allow(1, pass(1, 0, 50*sec))
		a.allow(1, stop(1, 0, 50*sec, 50*sec))
		a.allow(0, pass(1, 0, 50*sec))
		a.allow(1, banned(1, stop(1, 0, 50*sec, 50*sec)))
		a.allow(0, banned(1, stop(1, 0, 20*sec, 50*sec)))
		s.at(20*sec - usec)
		a.allow(0, banned(1, stop(1, 0, usec, 30*sec+usec)))
		s.at(20 * sec)
		a.allow(0, level(1, pass(1, 0, 30*sec)))
	}},

	{"a refusal counts for Within, and not at its end", func(s *script) {
		for _, tt := range []struct {
			user string
			at   time.Duration
			want core.Decision
		}{
			{"before", 10*sec - usec, banned(1, stop(1, 0, year-10*sec+usec, year-10*sec+usec))},
			{"after", 10 * sec, stop(1, 0, year-10*sec, year-10*sec)},
		} {
			a := s.of(core.FixedWindow(1, year)).with(steps).as(tt.user, "reply")
			s.at(0)
			a.allow(1, pass(1, 0, year))
			a.allow(1, stop(1, 0, year, year))
			s.at(tt.at)
			a.allow(1, tt.want)
		}
	}},

	{"each refusal counts for Within, and those after it go on counting", func(s *script) {
		three := steps
		three.Refusals = 3
		a := s.of(core.FixedWindow(1, year)).with(three)
		a.allow(1, pass(1, 0, year))
		a.allow(1, stop(1, 0, year, year))
		s.at(5 * sec)
		a.allow(1, stop(1, 0, year-5*sec, year-5*sec))
		s.at(10*sec - usec)
		a.standing(core.BanStatus{Refusals: 2, ForgetAfter: 5*sec + usec})
		s.at(10 * sec)
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 5 * sec})
		a.allow(1, stop(1, 0, year-10*sec, year-10*sec))
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

	{"a shorter policy on the same state goes on counting the bans in a row", func(s *script) {
		policy := func(bans ...time.Duration) core.BanPolicy {
			return core.BanPolicy{Refusals: 1, Within: 10 * sec, Bans: bans, ForgetAfter: 100 * sec}
		}
		limit := core.FixedWindow(1, year)
		long, short := s.of(limit).with(policy(sec, 2*sec, 3*sec, 4*sec)), s.of(limit).with(policy(9*sec))
		long.allow(1, pass(1, 0, year))
		at := time.Duration(0)
		for i, tt := range []struct {
			a   *actor
			ban time.Duration
		}{{long, sec}, {long, 2 * sec}, {short, 9 * sec}, {long, 4 * sec}, {short, 9 * sec}, {long, 4 * sec}} {
			s.at(at)
			tt.a.allow(1, banned(i+1, stop(1, 0, year-at, year-at)))
			for _, a := range []*actor{long, short} {
				a.standing(core.BanStatus{Banned: true, RetryAfter: tt.ban, ForgetAfter: tt.ban + 100*sec, Level: i + 1})
			}
			at += tt.ban
		}
	}},

	{"a user without refusals for ForgetAfter is back on the first level", func(s *script) {
		a := s.of(core.FixedWindow(1, year)).with(steps)
		a.allow(1, pass(1, 0, year))
		a.allow(1, stop(1, 0, year, year))
		a.allow(1, banned(1, stop(1, 0, year, year)))
		s.at(120*sec - usec)
		a.standing(core.BanStatus{ForgetAfter: usec, Level: 1})
		s.at(120 * sec)
		a.standing(core.BanStatus{})
		a.allow(1, stop(1, 0, year-120*sec, year-120*sec))
		a.allow(1, banned(1, stop(1, 0, year-120*sec, year-120*sec)))
		a.standing(core.BanStatus{Banned: true, RetryAfter: 20 * sec, ForgetAfter: 120 * sec, Level: 1})
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

	{"a policy with a shorter ForgetAfter changes nothing for others while it writes nothing", func(s *script) {
		policy := core.BanPolicy{Refusals: 1, Within: sec, Bans: []time.Duration{sec}, ForgetAfter: sec}
		long := s.of(core.FixedWindow(1, sec)).with(policy)
		policy.ForgetAfter = 10 * ms
		short := s.of(core.FixedWindow(1, year)).with(policy)
		long.allow(1, pass(1, 0, sec))
		long.allow(1, banned(1, stop(1, 0, sec, sec)))
		s.at(1500 * ms)
		short.allow(1, pass(1, 0, year))
		long.standing(core.BanStatus{ForgetAfter: 500 * ms, Level: 1})
	}},

	{"a refusal restarts ForgetAfter", func(s *script) {
		a := s.of(core.FixedWindow(1, year)).with(steps)
		a.allow(1, pass(1, 0, year))
		a.allow(1, stop(1, 0, year, year))
		a.allow(1, banned(1, stop(1, 0, year, year)))
		s.at(119 * sec)
		a.allow(1, level(1, stop(1, 0, year-119*sec, year-119*sec)))
		s.at(219*sec - usec)
		a.standing(core.BanStatus{ForgetAfter: usec, Level: 1})
		s.at(219 * sec)
		a.standing(core.BanStatus{})
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

	{"during a ban the limit with the least Remaining binds, as if the action were allowed", func(s *script) {
		a := s.of(core.FixedWindow(5, time.Hour), core.FixedWindow(3, time.Minute)).with(steps)
		a.allow(1, by(1, pass(3, 2, time.Minute)))
		a.ban(10 * sec)
		a.peek(by(1, banned(0, stop(3, 0, 10*sec, time.Minute))))
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

	{"limiters of one user and action share the policy's state, each with its own numbers", func(s *script) {
		replies := s.of(core.FixedWindow(1, time.Hour)).with(steps)
		strict := steps
		strict.Refusals, strict.Bans = 1, []time.Duration{sec}
		others := s.of(core.FixedWindow(1, year)).with(strict)
		replies.allow(1, pass(1, 0, time.Hour))
		replies.allow(1, stop(1, 0, time.Hour, time.Hour))
		others.standing(core.BanStatus{Refusals: 1, ForgetAfter: 10 * sec})
		others.allow(1, pass(1, 0, year))
		others.allow(1, banned(1, stop(1, 0, year, year)))
		replies.standing(core.BanStatus{Banned: true, RetryAfter: sec, ForgetAfter: 101 * sec, Level: 1})
		replies.as("another", "reply").standing(core.BanStatus{})
		replies.as(replies.user, "like").standing(core.BanStatus{})
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

	{"a refusal in the future is corrected by an action that passes, and not by a Peek", func(s *script) {
		a := s.of(core.FixedWindow(2, 5*sec)).with(steps)
		s.at(1000 * sec)
		a.allow(1, pass(2, 1, 5*sec))
		a.allow(2, stop(2, 1, 5*sec, 5*sec))
		s.at(500 * sec)
		a.peek(pass(2, 1, 5*sec))
		s.at(504 * sec)
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 10 * sec})
		a.allow(1, pass(2, 0, 5*sec))
		s.at(508 * sec)
		a.standing(core.BanStatus{Refusals: 1, ForgetAfter: 6 * sec})
	}},

	{"a clock that steps back shifts a ban, so that it lasts no longer", func(s *script) {
		a := s.of(core.FixedWindow(1, time.Hour)).with(steps)
		s.at(1000 * sec)
		a.ban(20 * sec)
		s.at(500 * sec)
		a.peek(banned(0, stop(1, 0, 20*sec, 20*sec)))
		a.standing(core.BanStatus{Banned: true, RetryAfter: 20 * sec, ForgetAfter: 20 * sec})
		s.at(510 * sec)
		a.standing(core.BanStatus{Banned: true, RetryAfter: 20 * sec, ForgetAfter: 20 * sec}) // to look writes nothing
		a.allow(1, banned(0, stop(1, 0, 20*sec, 20*sec)))
		s.at(530*sec - usec)
		a.standing(core.BanStatus{Banned: true, RetryAfter: usec, ForgetAfter: usec})
		s.at(530 * sec)
		a.allow(1, pass(1, 0, time.Hour))
	}},
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

	{"several shadow limits are charged all or none", func(s *script) {
		a := s.of(core.FixedWindow(100, time.Hour), core.FixedWindow(1, year).Shadow(), core.FixedWindow(3, year).Named("b").Shadow())
		a.allow(1, because(core.ReasonNear, pass(100, 99, time.Hour)))
		a.allow(1, because(core.ReasonShadowed, pass(100, 98, time.Hour)))
		only := s.of(core.FixedWindow(1000, time.Hour), core.FixedWindow(3, year).Named("b").Shadow())
		only.allow(1, pass(1000, 997, time.Hour)) // it would be near, had it been charged twice
	}},

	{"a shadow limit records what it would refuse, as its kind does", func(s *script) {
		a := s.of(core.FixedWindow(100, time.Hour), core.ElasticWindow(1, 10*sec).Shadow())
		a.allow(1, because(core.ReasonNear, pass(100, 99, time.Hour)))
		s.at(6 * sec)
		a.allow(1, because(core.ReasonShadowed, pass(100, 98, time.Hour-6*sec)))
		s.at(12 * sec)
		a.peek(because(core.ReasonShadowed, pass(100, 98, time.Hour-12*sec)))
		s.at(16 * sec)
		a.peek(pass(100, 98, time.Hour-16*sec))
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

	{"a shadow limit's refusal does not count for the policy", func(s *script) {
		a := s.of(core.FixedWindow(100, time.Hour), core.FixedWindow(1, year).Shadow()).with(steps)
		a.allow(1, because(core.ReasonNear, pass(100, 99, time.Hour)))
		a.allow(1, because(core.ReasonShadowed, pass(100, 98, time.Hour)))
		a.standing(core.BanStatus{})
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

	{"a surcharge of any size takes all that is left", func(s *script) {
		s.f.stands(s)
		for _, n := range []int{6, 1e9, math.MaxInt} {
			for _, l := range append(s.f.exact(rateKinds(5, time.Minute)), core.TokenBucket(5, core.Every(12*sec)).Initial(3)) {
				a := s.of(l).as(fmt.Sprint("surcharge of ", n, " ", l), "login")
				a.surcharge(n, pass(5, 0, time.Minute))
				a.surcharge(n, pass(5, 0, time.Minute))
			}
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

	{"a shadow meter reserves no turns", func(s *script) {
		s.f.stands(s)
		shadow := core.Funnel(1, core.Every(time.Hour))
		a := s.of(core.Funnel(10, core.Every(10*sec)), shadow.Shadow())
		a.ahead(time.Hour, because(core.ReasonNear, pass(10, 9, 10*sec)))
		a.ahead(time.Hour, because(core.ReasonShadowed, pass(10, 8, 20*sec)))
		a.ahead(time.Hour, because(core.ReasonShadowed, pass(10, 7, 30*sec)))
		s.at(time.Hour)
		a.allow(1, because(core.ReasonNear, pass(10, 9, 10*sec)))
	}},

	{"a turn that is a part of a microsecond ahead is reserved", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(7, core.Per(7, 2*sec)))
		a.allow(3, pass(7, 4, 857_143*usec))
		s.at(857_142 * usec) // 6/7 us of the debt are left
		a.allow(6, pass(7, 0, 1_714_287*usec))
		a.allow(1, stop(7, 0, usec, 1_714_287*usec))
		a.ahead(usec, pass(7, 0, 2_000_001*usec))
		a.allow(1, stop(7, 0, 285_716*usec, 2_000_001*usec))
	}},

	{"a bucket with Initial is forgotten ForgetAfter after the last turn", func(s *script) {
		s.f.stands(s)
		a := s.of(core.TokenBucket(2, core.Per(7, sec)).Initial(1).ForgetAfter(sec))
		a.allow(1, pass(2, 0, 285_715*usec))
		a.ahead(sec, pass(2, 0, 428_572*usec)) // in 142,857 1/7 us
		a.allow(1, stop(2, 0, 285_715*usec, 428_572*usec))
		s.at(1_142_858*usec - usec)
		a.peek(pass(2, 2, 0))
		s.at(1_142_858 * usec)
		a.peek(pass(2, 1, 142_858*usec))
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

	{"reserved turns stay as far off as they were if the clock steps back", func(s *script) {
		a := s.of(core.Funnel(2, core.Every(10*sec)))
		s.at(1000 * sec)
		a.allow(2, pass(2, 0, 20*sec))
		a.ahead(time.Minute, pass(2, 0, 30*sec))
		s.at(500 * sec)
		a.peek(stop(2, 0, 20*sec, 30*sec))
		a.allow(1, stop(2, 0, 20*sec, 30*sec))
		s.at(520 * sec)
		a.allow(1, pass(2, 0, 20*sec))
	}},
}

var refundRules = []promise{
	{"a charge that is refunded at once leaves no trace", func(s *script) {
		for _, limits := range append(single(s.f.exact(rateKinds(5, time.Minute))),
			[]core.Limit{core.TokenBucket(5, core.Per(7, 10*sec))},
			[]core.Limit{core.FixedWindow(5, 50*sec).Named("a"), core.Funnel(5, core.Every(10*sec)).Named("a"), core.MovingWindow(5, 5*sec).Shadow()},
		) {
			a := s.of(limits...).as("refund of "+limits[0].String(), "post")
			d := a.paid(3)
			a.refund(d, 3)
			a.peek(pass(5, 5, 0))
			d = a.paid(3)
			a.refund(d, 3)
			a.refund(d, 3) // once more does nothing
			a.refund(d, 1)
			a.peek(pass(5, 5, 0))
		}
	}},

	{"a refund of 0 uses up the receipt", each(func(s *script, m maker) {
		a := s.of(m.make(5, 50*sec))
		d := a.paid(5)
		a.refund(d, 0)
		a.refund(d, 5)
		if got, err := a.l.Peek(s.Context(), a.user, a.action); err != nil || got.Remaining != 0 {
			s.Errorf("%s, %v; want nothing to remain", show(got), err)
		}
	}, fixedWindow, elasticWindow, slidingWindow, movingWindow, refusedWindow)},

	{"a part can be refunded, once", each(func(s *script, m maker) {
		a := s.of(m.make(5, 50*sec))
		d := a.paid(3)
		a.refund(d, 2)
		a.refund(d, 1)
		a.peek(pass(5, 4, 50*sec))
	}, fixedWindow, elasticWindow, slidingWindow, movingWindow, refusedWindow)},

	{"more than was charged cannot be refunded", func(s *script) {
		a := s.of(core.FixedWindow(5, time.Hour))
		d := a.paid(2)
		if err := a.l.RefundN(s.Context(), d, -1); !errors.Is(err, core.ErrCost) {
			s.Errorf("RefundN(-1): %v", err)
		}
		if err := a.l.RefundN(s.Context(), d, 3); err == nil || err.Error() != "core: RefundN: 3 units are more than the 2 that were charged" {
			s.Errorf("RefundN(3): %v", err)
		}
		a.refund(d, 2)
		a.peek(pass(5, 5, 0))
	}},

	{"a meter refunds no more than is left of the debt after the action", func(s *script) {
		a := s.of(core.Funnel(3, core.Every(10*sec)))
		d := a.paid(1)
		s.at(4 * sec)
		a.allow(1, pass(3, 1, 16*sec))
		a.refund(d, 1) // 6 s are left of it; without it there would be 10 s
		a.peek(pass(3, 2, 10*sec))
		s.at(20 * sec)
		d = a.paid(1)
		s.at(30 * sec)
		a.allow(1, pass(3, 2, 10*sec))
		a.refund(d, 1) // it has drained by itself
		a.peek(pass(3, 2, 10*sec))
	}},

	{"a meter's actions that are refunded at once, in any order, leave no trace", func(s *script) {
		s.f.stands(s)
		for name, order := range map[string][]int{"first to last": {0, 1, 2, 3, 4}, "last to first": {4, 3, 2, 1, 0}, "mixed": {2, 0, 4, 1, 3}} {
			a := s.of(core.TokenBucket(5, core.Per(7, 10*sec))).as(name, "post")
			var made [5]core.Decision
			for range 3 {
				for i := range made {
					made[i] = a.paid(1)
				}
				for _, i := range order {
					a.refund(made[i], 1)
				}
				a.peek(pass(5, 5, 0))
			}
		}
	}},

	{"overlapping refunds of a meter give no more than if its actions had never happened", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(10, core.Every(6*sec)))
		var first, held [10]core.Decision
		for i := range first {
			first[i] = a.paid(1)
		}
		for i := range held {
			a.refund(first[i], 1)
			held[i] = a.paid(1)
		}
		s.at(54 * sec)
		a.allow(9, pass(10, 0, 60*sec))
		for _, d := range held {
			a.refund(d, 1)
		}
		a.peek(pass(10, 1, 54*sec))
	}},

	{"a meter that is full again after a refund remembers it until the earlier debt would have drained", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(2, core.Every(10*sec)))
		first, second := a.paid(1), a.paid(1)
		a.refund(first, 1)
		s.at(10 * sec)
		a.peek(pass(2, 2, 0))
		s.at(12 * sec)
		a.allow(1, pass(2, 1, 10*sec))
		a.refund(second, 1) // without both it would be the same
		a.peek(pass(2, 1, 10*sec))
	}},

	{"a meter remembers eight refunds, and refunds less rather than more where they overlap", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(100, core.Per(3, sec)))
		var made []core.Decision
		for i := range 12 {
			s.at(time.Duration(i*i) * 50 * time.Millisecond)
			first := a.paid(20 - i)
			made = append(made, a.paid(i+1), a.paid(2))
			a.refund(first, 20-i)
		}
		s.at(10 * sec)
		for _, d := range slices.Backward(made) {
			a.refund(d, 1)
		}
		a.peek(pass(100, 40, 20*sec)) // with nine it would be 42
	}},

	{"the action that opened a fixed window is not refunded once the window has others", func(s *script) {
		a := s.of(core.FixedWindow(3, 10*sec))
		first := a.paid(1)
		s.at(1 * sec)
		second := a.paid(1)
		a.refund(first, 1)
		a.peek(pass(3, 1, 9*sec))
		a.refund(second, 1)
		a.peek(pass(3, 2, 9*sec))
		s.at(10 * sec)
		first = a.paid(1)
		a.refund(first, 1)
		a.peek(pass(3, 3, 0))
		s.at(11 * sec)
		a.allow(1, pass(3, 2, 10*sec)) // a new window opens
	}},

	{"an action of a window that has ended is not refunded to the next window", each(func(s *script, m maker) {
		a := s.of(m.make(3, 10*sec))
		d := a.paid(1)
		s.at(10 * sec)
		a.allow(1, pass(3, 2, 10*sec))
		a.refund(d, 1)
		a.peek(pass(3, 2, 10*sec))
	}, fixedWindow, elasticWindow, slidingWindow, movingWindow, refusedWindow)},

	{"an elastic window keeps its end, and an action older than its period", func(s *script) {
		a := s.of(core.ElasticWindow(3, 10*sec))
		first := a.paid(1)
		s.at(6 * sec)
		second := a.paid(1)
		s.at(9 * sec)
		a.refund(second, 1)
		a.peek(pass(3, 2, 7*sec))
		s.at(10 * sec)
		a.refund(first, 1)
		a.peek(pass(3, 2, 6*sec))
	}},

	{"an elastic window without actions has its full quota", func(s *script) {
		a := s.of(core.ElasticWindow(1, 10*sec))
		d := a.paid(1)
		s.at(1 * sec)
		a.allow(1, stop(1, 0, 10*sec, 10*sec))
		a.refund(d, 1)
		a.peek(pass(1, 1, 0))
	}},

	{"an action that a lower max dropped for a refusal of the same instant is refunded with it", func(s *script) {
		s.f.stands(s)
		a, lower := s.of(countRefused(2, 10*sec)), s.of(countRefused(1, 10*sec))
		d := a.paid(1)
		lower.allow(1, stop(1, 0, 10*sec, 10*sec))
		s.at(1 * sec)
		a.refund(d, 1)
		a.peek(pass(2, 2, 0))
	}},
	{"CountRefused keeps an action in a full queue", func(s *script) {
		a := s.of(countRefused(2, 10*sec))
		a.allow(1, pass(2, 1, 10*sec))
		s.at(1 * sec)
		d := a.paid(1)
		s.at(2 * sec)
		a.allow(1, stop(2, 0, 9*sec, 10*sec))
		a.refund(d, 1)
		a.peek(stop(2, 0, 9*sec, 10*sec))
		s.at(12 * sec)
		d = a.paid(2)
		a.refund(d, 1)
		a.peek(stop(2, 0, 10*sec, 10*sec))
		s.at(22 * sec)
		d = a.paid(1)
		a.refund(d, 1)
		a.peek(pass(2, 2, 0))
	}},

	{"any action of a long queue can be refunded", func(s *script) {
		s.f.stands(s)
		const quota, cost, steps = 8000, 20, 700
		a := s.of(core.MovingWindow(quota, 300*sec))
		var made [steps]core.Decision
		var left [steps]int
		var spent [steps]bool
		for i := range steps {
			s.at(time.Duration(i) * sec)
			made[i], left[i] = a.paid(cost), cost
			if i%10 == 0 { // of one of the last 250 actions, or of one that no longer counts
				j, n := max(0, i-i*7%310), i%(cost+1)
				a.refund(made[j], n)
				if !spent[j] && i-j < 300 { // else it does not count
					left[j] -= n
				}
				spent[j] = true
			}
			live := 0
			for j := max(0, i-299); j <= i; j++ {
				live += left[j]
			}
			a.peek(pass(quota, quota-live, 300*sec))
		}
		s.at((steps - 1 + 300) * sec)
		a.peek(pass(quota, quota, 0))
	}},

	{"a refund does nothing if the clock has stepped back before its action", each(func(s *script, m maker) {
		a := s.of(m.make(3, 10*sec))
		s.at(100 * sec)
		d := a.paid(1)
		s.at(99 * sec)
		a.refund(d, 1)
		s.at(100 * sec)
		a.peek(pass(3, 2, 10*sec))
	}, fixedWindow, elasticWindow, slidingWindow, movingWindow, refusedWindow)},

	{"an action of a moving window is refunded whole, or not at all if more than 65,536 were admitted since", func(s *script) {
		a := s.of(core.MovingWindow(100_000, time.Hour))
		for _, since := range []int{65_536, 65_537} {
			d := a.paid(100)
			s.at(s.now + sec)
			a.allow(since, pass(100_000, 100_000-since-100, time.Hour))
			a.refund(d, 100)
			left := 100_000 - since
			if since > 65_536 {
				left -= 100
			}
			a.peek(pass(100_000, left, time.Hour))
			s.at(s.now + time.Hour)
		}
	}},

	{"the opener of a fixed window is given back whole once the others have been", func(s *script) {
		a := s.of(core.FixedWindow(2, time.Hour)).with(core.Refundable{})
		first, second := a.paid(1), a.paid(1)
		a.refund(second, 1)
		a.refund(first, 1)
		a.peek(pass(2, 2, 0))
	}},

	{"a Peek has no receipt", func(s *script) {
		a := s.of(core.FixedWindow(2, time.Hour)).with(core.Refundable{})
		asks := core.Must(core.New(&eager{s.f.Store, 1}, a.limits...)) // for a record
		d, err := asks.Peek(s.Context(), a.user, a.action)
		a.check("Peek", d, err, pass(2, 2, 0))
		if err := a.l.Refund(s.Context(), d); err != core.ErrNoReceipt {
			s.Errorf("Refund: %v", err)
		}
	}},

	{"an action is not refunded while another waits for a part of a microsecond", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(7, core.Per(7, 2*sec)))
		a.allow(3, pass(7, 4, 857_143*usec))
		s.at(857_142 * usec)
		d := a.paid(6)
		a.ahead(usec, pass(7, 0, 2_000_001*usec))
		a.refund(d, 6)
		a.allow(1, stop(7, 0, 285_716*usec, 2_000_001*usec))
	}},

	{"the last turn is free once it is refunded", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(1, core.Every(10*sec)))
		a.paid(1)
		first := a.ahead(time.Minute, pass(1, 0, 20*sec))
		second := a.ahead(time.Minute, pass(1, 0, 30*sec))
		a.refund(second, 1)
		a.peek(stop(1, 0, 20*sec, 20*sec))
		a.refund(first, 1)
		a.peek(stop(1, 0, 10*sec, 10*sec))
		a.ahead(10*sec, pass(1, 0, 20*sec))
	}},

	{"a turn stays taken while there is one behind it, with which a newcomer would pass", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(1, core.Every(10*sec)))
		a.paid(1)
		first := a.ahead(time.Minute, pass(1, 0, 20*sec))
		a.ahead(time.Minute, pass(1, 0, 30*sec))
		a.refund(first, 1)
		a.ahead(30*sec-usec, stop(1, 0, 30*sec, 30*sec))
		a.ahead(30*sec, pass(1, 0, 40*sec))
	}},

	{"an action is not refunded while another waits, and is once nobody waits", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(2, core.Every(10*sec)))
		first, second := a.paid(1), a.paid(1)
		a.ahead(time.Minute, pass(2, 0, 30*sec))
		s.at(5 * sec)
		a.refund(first, 1)
		a.peek(stop(2, 0, 15*sec, 25*sec))
		s.at(10 * sec)
		a.refund(second, 1)
		a.peek(pass(2, 1, 10*sec))
	}},
}
