package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// The promises of what a Status says was used.

// uses is the actor's first limit in a Status.
func (a *actor) uses(used, remaining int) core.LimitStatus {
	a.s.Helper()
	st, err := a.l.Status(a.s.Context(), a.user, a.action)
	if err != nil {
		a.s.Fatal(err)
	}
	got := st.Limits[0]
	if got.Used != used || got.Remaining != remaining {
		a.s.Errorf("at %v: %d used and %d remain, want %d and %d", a.s.now, got.Used, got.Remaining, used, remaining)
	}
	return got
}

var usageRules = []promise{
	{"what was used and what remains are the quota", ofEach(func(s *script, a *actor, _ core.Limit) {
		for range 4 {
			d, err := a.l.Peek(s.Context(), a.user, a.action)
			if err != nil {
				s.Fatal(err)
			}
			a.uses(5-d.Remaining, d.Remaining)
			if _, err := a.l.Allow(s.Context(), a.user, a.action); err != nil {
				s.Fatal(err)
			}
		}
	})},

	{"a window of a smaller quota counts what was used before", func(s *script) {
		for _, larger := range rateKinds(50, time.Minute) {
			if slices.Contains([]string{"bucket", "funnel"}, larger.Kind()) {
				continue // one of other numbers is another
			}
			s.Run(larger.String(), func(t *testing.T) {
				s.f.dated(t, larger)
				s.f.toMinute()
				s := &script{T: t, f: s.f}
				a := s.of(larger).as(larger.Kind(), "export")
				a.taken(35)
				for _, l := range rateKinds(20, time.Minute) {
					if l.Kind() == larger.Kind() {
						s.of(l).as(larger.Kind(), "export").uses(35, 0)
					}
				}
			})
		}
	}},

	{"a part of a unit counts as a whole one", func(s *script) {
		s.f.stands(s)
		a := s.of(core.Funnel(5, core.Every(10*sec)))
		a.taken(2)
		s.at(usec)
		a.uses(2, 3)
		s.at(10 * sec)
		a.uses(1, 4)
		s.at(10*sec + usec)
		a.uses(1, 4)
		s.at(20 * sec)
		a.uses(0, 5)
	}},

	{"what is owed counts", func(s *script) {
		s.f.refunds(s)
		a := s.of(core.FixedWindow(5, time.Hour)).with(core.Refundable{})
		d := a.taken(1)
		a.settle(d, 8)
		a.uses(8, 0)
	}},

	{"a calendar window tells the end of its period, also if nothing was used", func(s *script) {
		limit := core.CalendarWindow(5, core.Minute, nil)
		s.f.stands(s)
		s.f.dated(s, limit)
		s.f.toMinute()
		a := s.of(limit, core.FixedWindow(5, time.Minute))
		ends := func(want time.Duration) {
			s.Helper()
			st, err := a.l.Status(s.Context(), a.user, a.action)
			if err != nil {
				s.Fatal(err)
			}
			if got := st.Limits[0].EndsAfter; got != want || st.Limits[1].EndsAfter != 0 {
				s.Errorf("it ends after %s, want %s; the other after %s", got, want, st.Limits[1].EndsAfter)
			}
		}
		ends(time.Minute)
		s.at(50 * sec)
		ends(10 * sec)
		a.taken(1)
		ends(10 * sec)
		s.at(60 * sec)
		ends(time.Minute)
	}},
}
