package core

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// FailOpen lets an action pass where store has no answer: the decision then bears
// the first limit's untouched quota and [SourceNone]. Use it where being down is
// worse than being unprotected; [Fallback] is neither.
//
// The caller's own cancellation or deadline stays an error, so that nobody passes
// uncounted by hanging up. Reset reports the store's error.
func FailOpen(store Store) Store { return &failOpen{mustStore(store, "FailOpen"), outage{}} }

type failOpen struct {
	Store
	outage outage
}

func (s *failOpen) Accept(limits []Limit) error { return accept(s.Store, limits) }

func (s *failOpen) Take(ctx context.Context, c Charge) (Decision, error) {
	d, err := s.Store.Take(ctx, c)
	if !s.outage.over(ctx, err, "core: the store fails; actions pass unlimited until it answers") {
		return d, err
	}
	return c.untouched(), nil
}

// Fallback asks other where store has no answer; the decision then has
// [SourceFallback]. It is the recommended way to run on a shared store, with one
// in process to fall back on: a limited route is then neither unprotected nor
// down.
//
// The caller's own cancellation or deadline stays an error. Reset resets both.
func Fallback(store, other Store) Store {
	return &fallback{mustStore(store, "Fallback"), mustStore(other, "Fallback"), outage{}}
}

type fallback struct {
	store, other Store
	outage       outage
}

func (s *fallback) Accept(limits []Limit) error {
	return errors.Join(accept(s.store, limits), accept(s.other, limits))
}

func (s *fallback) Take(ctx context.Context, c Charge) (Decision, error) {
	d, err := s.store.Take(ctx, c)
	if !s.outage.over(ctx, err, "core: the store fails; its fallback decides until it answers") {
		return d, err
	}
	if d, err = s.other.Take(ctx, c); err == nil && d.Source == SourceStore {
		d.Source = SourceFallback
	}
	return d, err
}

func (s *fallback) Reset(ctx context.Context, user, action string, limits []Limit) error {
	return errors.Join(s.store.Reset(ctx, user, action, limits), s.other.Reset(ctx, user, action, limits))
}

// An outage remembers whether a store fails, to say so once and not per request. It
// is over when there was no failure for a while, or a store that fails now and then
// would fill the log.
type outage struct {
	on   atomic.Bool
	last atomic.Int64 // the last failure, since start
}

var start = time.Now()

const calm = time.Second

// over reports whether err is the store's failure rather than the caller's own
// leaving, which is nobody's outage.
func (o *outage) over(ctx context.Context, err error, what string) bool {
	switch {
	case err == nil:
		if o.on.Load() && int64(time.Since(start))-o.last.Load() > int64(calm) && o.on.CompareAndSwap(true, false) {
			slog.Default().Info("core: the store answers again")
		}
		return false
	case ctx.Err() != nil:
		return false
	}
	o.last.Store(int64(time.Since(start)))
	if o.on.CompareAndSwap(false, true) {
		slog.Default().Warn(what, "error", err)
	}
	return true
}

// Shadow decides and reports, and never refuses: a decision that store refuses is
// allowed, with the reason [Shadowed], and one that it cannot make is allowed
// untouched. Put [Observe] around it to see what would have been refused.
func Shadow(store Store) Store { return &shadow{mustStore(store, "Shadow"), outage{}} }

type shadow struct {
	Store
	outage outage
}

func (s *shadow) Accept(limits []Limit) error { return accept(s.Store, limits) }

func (s *shadow) Take(ctx context.Context, c Charge) (Decision, error) {
	d, err := s.Store.Take(ctx, c)
	if s.outage.over(ctx, err, "core: the store fails; the rehearsal sees nothing until it answers") {
		d, err = c.untouched(), nil
	}
	if err == nil && !d.Allowed {
		d.Allowed, d.RetryAfter, d.Reason = true, 0, Shadowed
	}
	return d, err
}

// An Observation is a decision as [Observe] shows it. It holds no user.
type Observation struct {
	Action   string
	Limits   []Limit // not to be changed
	Cost     int64
	Peek     bool
	Decision Decision // the zero one if Err is not nil
	Err      error
}

// Observe shows every decision and error of store to see, in the goroutine that
// asked and before it has its answer, so see should be quick.
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

func (s *observe) Accept(limits []Limit) error { return accept(s.Store, limits) }

func (s *observe) Take(ctx context.Context, c Charge) (Decision, error) {
	d, err := s.Store.Take(ctx, c)
	s.see(ctx, Observation{c.Action, c.Limits, c.Cost, c.Peek, d, err})
	return d, err
}

func mustStore(s Store, where string) Store {
	if s == nil {
		panic("core: " + where + ": the store is nil; use memorystore.New(nil) or redisstore.New")
	}
	return s
}
