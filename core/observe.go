package core

// Observe: a store that passes each decision of another store to a function.

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// An Observation is a decision, or an error of a store, as [Observe] shows it. User is personal
// data: log it only where you may, and do not make it a label of a metric.
//
//   - A call of [Limiter.Ban] is an Observation whose only limit is the ban policy's.
//   - A call of [Limiter.Wait] is an Observation for each time that it asks the store.
//   - A call of [All] is one Observation with Subjects. If the store decides about one subject
//     after the other, there is one Observation for each time that the store is asked: a Peek of
//     each subject, and then a charge of each subject until one is refused.
//   - Calls of Refund, Settle, Release, Renew and Reset are not shown.
type Observation struct {
	User      string        // for a call of All, the user of the subject that the decision is about
	Action    string        // for a call of All, the action of that subject
	Limits    []Limit       // enforced limits, then shadow limits, then the ban policy's; read only
	Cost      int64         // in units
	Ban       time.Duration // the length of the ban for a call of Ban, and otherwise 0
	Peek      bool          // the call is one that charges nothing, such as Peek or Status
	Surcharge bool          // the call is a Surcharge
	Decision  Decision      // zero if Err is not nil
	Err       error
	Took      time.Duration // how long the store took

	// Subjects has the User, Action, Limits and Cost of each subject of a call of [All]. It is nil
	// if the decision is about only one subject.
	Subjects []Observation

	// Down is true if a [Fallback], [FailOpen] or [Shadow] inside Observe does not ask its store
	// for this user now, because that store has failed.
	Down bool
}

// Observe returns a store that passes to see each decision of store, and each error in place of a
// decision. It calls see before the caller gets its decision, so see must be quick. Calls of see
// may overlap. Observe panics if store or see is nil.
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
