package memorystore

// What a limiter asks of the store. Each is one atomic step: see step.go.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// Take decides a charge in one atomic step. For a known key it allocates only if a trail
// grows, and for a receipt.
func (s *Store) Take(_ context.Context, c core.Charge) (d core.Decision, err error) {
	st := s.begin(&c)
	defer s.end(st)
	if c.Check(st.states, st.now) && !st.known {
		if lacks, wait := s.makeRoom(st, &c); lacks != nil {
			if c.Mode == machine.ModePeek {
				c.Commit(&d, st.states, st.now) // a Status has the numbers of every limit
			}
			return full(&c, lacks, wait), nil
		}
	}
	c.Commit(&d, st.states, st.now)
	until := int64(0)
	if !d.Allowed && d.RetryAfter != core.Never {
		// Another limiter, or a smaller cost, might have room. The key is protected
		// nonetheless: to drop it would give the user a full quota.
		until = st.now + int64(d.RetryAfter/time.Microsecond)
	}
	if lacks := s.saveAll(st, until); lacks != nil {
		return full(&c, lacks, longestWait), nil
	}
	d.Issue(s)
	return d, nil
}

// full is the refusal of a charge if there is no room for the key of a place.
func full(c *core.Charge, lacks *place, wait int64) core.Decision {
	limits, d := c.Limits, time.Duration(wait)*time.Microsecond
	if lacks.subject > 0 {
		limits = c.And[lacks.subject-1].Limits
	}
	return core.Decision{Limit: limits[0].Quota(), RetryAfter: d, ResetAfter: d, Reason: core.ReasonFull, Source: core.SourceStore, Subject: lacks.subject}
}

// Amend refunds, releases or renews a charge, in one atomic step.
func (s *Store) Amend(_ context.Context, r *core.Receipt, a machine.Amendment) (done bool, err error) {
	st := s.begin(&core.Charge{User: r.User, Action: r.Action, Limits: r.Limits})
	defer s.end(st)
	done = r.Amend(st.states, st.now, a)
	for i := range st.places {
		switch p, state := &st.places[i], &st.states[i]; {
		case !p.found || !state.Dirty:
		case state.Exists:
			st.save(i, 0)
		default:
			s.remove(p)
		}
	}
	return done, nil
}

// Reset removes the states of the limits for that user and action.
func (s *Store) Reset(_ context.Context, user, action string, limits []core.Limit) error {
	st := s.begin(&core.Charge{User: user, Action: action, Limits: limits})
	defer s.end(st)
	for i := range st.places {
		if p := &st.places[i]; p.found {
			s.remove(p)
		}
	}
	return nil
}
