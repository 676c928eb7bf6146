package core

// The decorators: stores that wrap a store.

import (
	"context"
	"errors"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// FailOpen allows an action if store has no answer. The decision then has the first
// limit's full quota and [SourceNone]. In an outage it limits nothing: use it if
// refusing users is worse than not limiting them. [Fallback] avoids both.
//
// After three failures in a row store is not asked, so that an outage does not cost every
// action the timeout. Failures of calls that overlap count as one. One call every 250 ms
// still asks as a probe. When a probe is answered, store decides again. The log says once
// that store fails (code "store-fails") and once that it answers again ("store-answers"),
// and [Observe] shows it. An [ErrKey] does not count as a failure.
//
// The caller's own cancellation stays an error and does not count: a client that disconnects
// is not an outage, and its request is not let through. The end of the caller's deadline stays an
// error too, because a client may choose it, as in gRPC. It counts only if store has had a second
// to answer. So store needs a timeout shorter than its callers' deadlines, as redisstore has:
// otherwise every call waits until its deadline while store hangs.
//
// A probe may take a second, even if its caller leaves before. Reset always asks store and returns
// its error.
//
// If store is spread over several servers, as redisstore on a Cluster is, all this holds
// for each server. If one fails, only its users are affected.
func FailOpen(store Store) Store {
	return &failOpen{newBreaker(store, "FailOpen", "core: the store fails; actions pass unlimited until it answers")}
}

type failOpen struct{ breaker }

func (s *failOpen) Take(ctx context.Context, c Charge) (Decision, error) {
	d, ok, err := s.take(ctx, c)
	switch {
	case ok:
		return d, err
	case ctx.Err() != nil:
		return Decision{}, ctx.Err()
	}
	return c.untouched(), nil
}

// Fallback asks other if store has no answer. The decision then has [SourceFallback]. It is
// the recommended way to run on a shared store, with a memorystore as other: a route is then
// neither unprotected nor down.
//
// When store is asked, and what counts as a failure, is as for [FailOpen]. If the caller's deadline
// ends before store answers, other decides too. Reset resets both stores.
//
// Each store keeps the limit for itself. So a user may do at most the sum of what the stores
// allow: the limit once for store, once for each of n processes, and once more whenever one of
// them loses its data. With [Divide] the n processes together allow the limit once, rounded up. A
// call that timed out may have been charged in store and is decided by other too. Store may then
// refuse earlier, but never later. A ban made in one store does not hold in the other.
func Fallback(store, other Store) Store {
	return &fallback{newBreaker(store, "Fallback", "core: the store fails; its fallback decides until it answers"), mustStore(other, "Fallback")}
}

// afterDeadline is the time that the second store has if the caller's own deadline has ended.
const afterDeadline = 50 * time.Millisecond

type fallback struct {
	breaker
	other Store
}

func (s *fallback) down(user string) bool { return s.breaker.down(user) || down(s.other, user) }

// Other shows the second store to package metrics.
func (s *fallback) Other() Store { return s.other }

// Joins asks both stores: either may decide.
func (s *fallback) Joins(a, b string) bool { return joins(s.store, a, b) && joins(s.other, a, b) }

func (s *fallback) Accept(limits []Limit) error {
	return errors.Join(accept(s.store, limits), accept(s.other, limits))
}

func (s *fallback) Take(ctx context.Context, c Charge) (Decision, error) {
	d, ok, err := s.take(ctx, c)
	if ok {
		return d, err
	}
	if ctx.Err() == context.DeadlineExceeded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), afterDeadline)
		defer cancel()
	}
	if d, err = s.other.Take(ctx, c); err == nil && d.Source != SourceNone {
		d.Source = SourceFallback
	}
	return d, err
}

func (s *fallback) Reset(ctx context.Context, user, action string, limits []Limit) error {
	return errors.Join(s.store.Reset(ctx, user, action, limits), s.other.Reset(ctx, user, action, limits))
}

// Shadow is a dry run of every limit: it decides and reports, and never refuses or makes
// [Limiter.Wait] wait. An action that store refuses is allowed with [ReasonShadowed]. If
// store has no answer, the action is allowed as by [FailOpen]. The decision's numbers are those
// of the shadow limits, so clients see them in headers: with [Limit.Shadow] they do not. Put
// [Observe] around it to see what would be refused.
func Shadow(store Store) Store {
	return &shadow{failOpen{newBreaker(store, "Shadow", "core: the store fails; the dry run sees nothing until it answers")}}
}

type shadow struct{ failOpen }

func (s *shadow) Take(ctx context.Context, c Charge) (Decision, error) {
	c.Ahead = 0 // a dry run makes no caller wait
	d, err := s.failOpen.Take(ctx, c)
	if err == nil && !d.Allowed && c.Ban == 0 {
		d.Allowed, d.RetryAfter, d.Reason = true, 0, ReasonShadowed
	}
	return d, err
}

// An Observation is a decision as [Observe] shows it. It does not name the user. A call of
// [Limiter.Ban] shows as one with the ban policy's limit alone. A call of [Limiter.Wait] shows
// each time it asks the store. A call of [All] whose subjects are decided one after the other shows as
// one for each that is asked. Refund, Settle, Release, Renew and Reset do not show.
type Observation struct {
	Action    string        // of a call of All: of the subject that the decision is about
	Limits    []Limit       // the enforced ones, the shadow ones, the ban policy's; do not change them
	Cost      int64         // units
	Ban       time.Duration // of a call of Ban; else 0
	Peek      bool
	Surcharge bool
	Decision  Decision // zero if Err is not nil
	Err       error
	Took      time.Duration // by the store

	// Subjects are the Action, Limits and Cost of each subject of a call of [All]; nil if there is one.
	Subjects []Observation

	// Down reports whether a [Fallback], [FailOpen] or [Shadow] inside has stopped asking
	// its store for this user, because it failed.
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

func (s *observe) Take(ctx context.Context, c Charge) (Decision, error) {
	begun := time.Now()
	d, err := s.Store.Take(ctx, c)
	if err != nil {
		d = Decision{}
	}
	var all []Observation
	if c.And != nil {
		for i := range 1 + len(c.And) {
			o := c.subject(i)
			all = append(all, Observation{Action: o.Action, Limits: o.Limits, Cost: o.Cost})
		}
	}
	o := c.subject(d.Subject)
	s.see(ctx, Observation{
		Action: o.Action, Limits: o.Limits, Cost: o.Cost, Ban: micros(c.Ban),
		Peek: c.Mode == machine.Peek, Surcharge: c.Mode == machine.Force,
		Decision: d, Err: err, Took: time.Since(begun), Subjects: all, Down: down(s.Store, c.User),
	})
	return d, err
}
