package core

// FailOpen, Fallback and Shadow: stores that wrap a store, and return a decision even if that store
// has no answer.

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// FailOpen returns a store that asks store, and allows an action if store has no answer. Such a
// decision has the first limit's full quota and [SourceNone]. Only an action that costs more than a
// quota is refused. During an outage no user is limited, so use FailOpen if refusing users is worse
// than not limiting them. [Fallback] avoids both.
//
// When store is asked:
//
//   - After three failures in a row, FailOpen stops asking store, so that actions do not wait for
//     store's timeout during an outage. Failures of calls that overlap count as one.
//   - About every 250 ms, one call still asks store, as a probe. If store answers a probe, store
//     decides again. A probe may take a second, even if its caller leaves earlier.
//   - If store consists of several servers, as redisstore on a Cluster does, FailOpen counts the
//     failures of each server separately. If one server fails, only its users are affected.
//   - Reset always asks store, and returns its error.
//
// In each outage the log says once that store fails (code "store-fails"), and once that it answers
// again ("store-answers"). [Observe] shows the Source of each decision.
//
// What counts as a failure:
//
//   - An error of store counts, unless it is an [ErrKey].
//   - If the caller's deadline ends, this is a failure only if store has had a second to answer,
//     because a client may choose the deadline, as in gRPC. The call returns the error.
//   - If the caller cancels, this is no failure of store, because a client that disconnects is not
//     an outage. The call returns the error, so the request does not pass.
//
// So store needs a timeout that is shorter than the deadlines of its callers, as redisstore has.
// Otherwise each call waits until its deadline while store hangs.
func FailOpen(store Store) Store {
	return &failOpen{newBreaker(store, "FailOpen", "core: the store fails; actions pass unlimited until it answers")}
}

type failOpen struct{ breaker }

func (s *failOpen) Take(ctx context.Context, c Charge) (Decision, *Record, error) {
	d, r, ok, err := s.ask(ctx, c)
	switch {
	case ok:
		return d, r, err
	case ctx.Err() != nil:
		return Decision{}, nil, ctx.Err()
	}
	d, r = untouched(&c)
	return d, r, nil
}

// untouched returns the decision if no store has an answer: allowed, with the first limit's full
// quota. If the cost is above a quota, the action is refused, unless it is a Surcharge or a Settle.
func untouched(c *Charge) (d Decision, r *Record) {
	n := 0 // the number of limits
	for i, p := range c.Parts() {
		if alone := p.whole(c.Mode); i == 0 || d.Allowed && !alone.Allowed {
			d = alone
			d.Subject = i
		}
		n += len(p.Limits)
	}
	if c.Receipt {
		r = &Record{Charge: *c, Readings: slices.Repeat([]machine.Reading{{Fits: true}}, n)}
	}
	return d, r
}

// whole is untouched for one subject.
func (p *Part) whole(mode machine.Mode) Decision {
	enforced := enforced(p.Limits)
	for i := range enforced {
		if quota := enforced[i].Quota(); p.Cost > int64(quota) && mode != machine.ModeForce && mode != machine.ModeOwe {
			return Decision{Limit: quota, Remaining: int(least(enforced)), Binding: i, RetryAfter: Never, Reason: limited(int64(quota))}
		}
	}
	return Decision{Allowed: true, Limit: p.Limits[0].Quota(), Remaining: p.Limits[0].Quota()}
}

// Fallback returns a store that asks store, and asks other if store has no answer. A decision of
// other has [SourceFallback], or [SourceNone] if other is a FailOpen that has no answer either.
// Fallback is the recommended way to use a shared store, with a memorystore as other. During an
// outage, routes stay limited and users are served.
//
// [FailOpen] describes when store is asked, and what counts as a failure. There is one difference:
// if the caller's deadline ends before store answers, other decides. Reset resets both stores.
//
// Each store counts separately. So a user may do at most the sum of what the stores allow: the
// limit once for store, once for each of n processes, and once more each time a store loses
// its data. With [Divide] the n processes together allow the limit once, rounded up. If a call has
// timed out, store may have charged it, and other decides about it too. Then store may refuse
// earlier, but never later. A ban in one store does not hold in the other.
//
// Pass the shared store first. If the first store always has an answer, as a memorystore has, other
// is never asked. For the stores of this module the log says so (code "fallback-unused").
func Fallback(store, other Store) Store {
	if answers(store) {
		slog.Default().Warn("core: Fallback: the first store always has an answer, so the second is never asked; give the shared store first, as in Fallback(redisstore.New(rdb, nil), memorystore.New(nil))",
			"code", "fallback-unused")
	}
	return &fallback{newBreaker(store, "Fallback", "core: the store fails; its fallback decides until it answers"), mustStore(other, "Fallback")}
}

// answers reports whether the store is known to have an answer at all times. A store in process
// memory is, and so is a store that allows actions during an outage.
func answers(store Store) bool {
	switch s := store.(type) {
	case Sized, *failOpen, *shadow:
		return true
	case *fallback:
		return answers(s.other)
	case *observe, *divide:
		return answers(s.(Unwrapper).Unwrap())
	}
	return false
}

// afterDeadline is the time that the second store has if the caller's deadline has ended.
const afterDeadline = 50 * time.Millisecond

type fallback struct {
	breaker
	other Store
}

func (s *fallback) second() Store { return s.other }

func (s *fallback) Accept(limits []Limit) error {
	return errors.Join(accept(s.store, limits), accept(s.other, limits))
}

func (s *fallback) Take(ctx context.Context, c Charge) (Decision, *Record, error) {
	d, r, ok, err := s.ask(ctx, c)
	if ok {
		return d, r, err
	}
	if ctx.Err() == context.DeadlineExceeded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), afterDeadline)
		defer cancel()
	}
	if d, r, err = s.other.Take(ctx, c); err == nil && d.Source != SourceNone {
		d.Source = SourceFallback
	}
	return d, r, err
}

func (s *fallback) Reset(ctx context.Context, user, action string, limits []Limit) error {
	return errors.Join(s.store.Reset(ctx, user, action, limits), s.other.Reset(ctx, user, action, limits))
}

// Shadow returns a store that makes a dry run of every limit on store: it decides and reports, but
// never refuses, and never makes [Limiter.Wait] wait. If store refuses an action, the action is
// allowed with [ReasonShadowed]. If store has no answer, the action is allowed as with [FailOpen].
// Put [Observe] around Shadow to see what would be refused.
//
// The numbers of a decision are those of store's limits, so clients see them in headers. If clients
// should not see them, use [Limit.Shadow].
func Shadow(store Store) Store {
	return &shadow{failOpen{newBreaker(store, "Shadow", "core: the store fails; the dry run sees nothing until it answers")}}
}

type shadow struct{ failOpen }

func (s *shadow) Take(ctx context.Context, c Charge) (Decision, *Record, error) {
	if c.Ahead > 0 { // without it, no caller waits
		t := *c.Terms
		t.Ahead = 0
		c.Terms = &t
	}
	d, r, err := s.failOpen.Take(ctx, c)
	if err == nil && !d.Allowed && c.Ban == 0 {
		d.Allowed, d.RetryAfter, d.Reason = true, 0, ReasonShadowed
	}
	return d, r, err
}
