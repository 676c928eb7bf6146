package storetest

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

var nothingRules = []promise{
	{"Nothing refuses every action for ever, and keeps no state", func(s *script) {
		never := stop(0, 0, core.Never, 0)
		never.Reason = core.ReasonNothing
		for _, l := range []core.Limit{core.Nothing(), core.Nothing().Named("off"), core.Nothing().PerUser()} {
			a := s.of(l)
			a.peek(never)
			for cost := 1; cost <= 3; cost++ {
				a.allow(cost, never)
			}
			if st, err := a.l.Status(s.Context(), a.user, a.action); err != nil || len(st.Limits) != 1 || st.Limits[0].Remaining != 0 || st.Limits[0].RetryAfter != core.Never || st.Limits[0].ResetAfter != 0 {
				s.Errorf("Status: %+v, %v", st, err)
			}
			s.at(s.now + time.Hour)
			a.allow(1, never)
		}
	}},

	{"a shadow Nothing says of every action that it would be refused", func(s *script) {
		a := s.of(core.SlidingWindow(2, time.Minute), core.Nothing().Shadow())
		for range 2 {
			if d, err := a.l.Allow(s.Context(), a.user, a.action); err != nil || !d.Allowed || d.Reason != core.ReasonShadowed || d.Shadow != 1 {
				s.Errorf("%s, %v", show(d), err)
			}
		}
		a.allow(1, stop(2, 0, time.Minute, time.Minute))
	}},
}
