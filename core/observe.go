package core

// Observe: a store that shows every decision of the store that it wraps.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// An Observation is a decision as [Observe] shows it. User is personal data: log it only where you
// may, and do not make it a label of a metric.
//   - [Limiter.Ban] shows as a decision about the ban policy's limit alone.
//   - [Limiter.Wait] shows each time it asks the store.
//   - [All] shows as one decision with Subjects, or, if the subjects are decided one after the
//     other, as one decision for each that is asked.
//   - Refund, Settle, Release, Renew and Reset do not show.
type Observation struct {
	User      string        // of a call of All: of the subject that the decision is about
	Action    string        // as User
	Limits    []Limit       // the enforced ones, the shadow ones, the ban policy's; do not change them
	Cost      int64         // units
	Ban       time.Duration // of a call of Ban; else 0
	Peek      bool          // false for an action that can never pass
	Surcharge bool
	Decision  Decision // zero if Err is not nil
	Err       error
	Took      time.Duration // by the store

	// Subjects has the User, Action, Limits and Cost of each subject of a call of [All] about
	// several. It is nil if there is one subject.
	Subjects []Observation

	// Down reports whether a [Fallback], [FailOpen] or [Shadow] that Observe wraps does not ask its
	// store for this user at present, because the store failed.
	Down bool
}

// Observe shows every decision and error of store to see. It calls see in the caller's
// goroutine, before the caller has its answer, so see should be quick.
func Observe(store Store, see func(context.Context, Observation)) Store {
	if see == nil {
		panic("core: Observe: the function is nil; give one, or leave Observe out")
	}
	return &observe{mustStore(store, "Observe"), see}
}

type observe struct {
	Store
	see func(context.Context, Observation)
}

func (s *observe) Unwrap() Store { return s.Store }

func (s *observe) Take(ctx context.Context, c Charge) (Decision, *Record, error) {
	begun := time.Now()
	d, r, err := s.Store.Take(ctx, c)
	if err != nil {
		d = Decision{}
	}
	var all []Observation
	user, action, limits, cost := c.User, c.Action, c.Limits, c.Cost
	if len(c.More) > 0 {
		for i, p := range c.Parts() {
			all = append(all, Observation{User: p.User, Action: p.Action, Limits: p.Limits, Cost: p.Cost})
			if i == d.Subject {
				user, action, limits, cost = p.User, p.Action, p.Limits, p.Cost
			}
		}
	}
	s.see(ctx, Observation{
		User: user, Action: action, Limits: limits, Cost: cost, Ban: micros(c.Ban),
		Peek: c.Mode == machine.ModePeek, Surcharge: c.Mode == machine.ModeForce,
		Decision: d, Err: err, Took: time.Since(begun), Subjects: all, Down: down(s.Store, c.User),
	})
	return d, r, err
}
