package core

// Store, what else a store or a decorator may implement, and how package core looks into stores that wrap others.

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tailcut/tailcut/core/internal/stores"
	"github.com/tailcut/tailcut/core/machine"
)

// A Store decides charges atomically and owns the clock. A [Limiter] calls it with a
// context that is not done and a charge that is valid.
//
// Take decides one charge: all of its limits agree and are charged, or none is. The answer
// is that of [Charge.Check] and [Charge.Commit] on the states that the store keeps, in one
// atomic step at one instant of the store's clock. Read the clock inside the lock or the
// transaction. Every instant is positive, in microseconds. A store that decides in another way asks
// [Charge.Writes] before it changes a state, and makes the answer with [Charge.Answer]. Without a [Record] of
// the charge nothing can be given back, and [Limiter.Status] knows one limit only.
//
// Lock everything of the user. Limiters may share only some limits, or name them in another
// order: locks of an action or of one limit admit too much, and locks of one row after the
// other can deadlock. A [Joiner] also takes charges of several users, [Terms].More, and locks everything
// of all of them, in an order that does not depend on the charge.
//
// User and action are any bytes of any length, but not empty. A state's key is the user, the
// action unless [Limit.IsPerUser] says otherwise, and [Limit.Identity].
//
// Reset forgets the states of the limits for that user and action. Unban is a Reset with only
// the ban policy's limit.
//
// If a store returns an error, there is no decision: a store never turns an error into a refusal.
// An error that concerns only the keys of one charge must match [ErrKey]. Otherwise [Fallback]
// counts it as a failure of the store. If its server may hang, a store needs a timeout: see [FailOpen].
//
// More methods are optional. Of a decorator with [Unwrapper] the wrapped store is asked too:
//
//	interface    who asks                            without it
//	Accepter     New, Limiter.With                   the store serves any limiter
//	Amender      Refund, Settle, Release, Renew      there are no receipts, and New refuses InFlight
//	Dated        New                                 New refuses a CalendarWindow
//	Joiner       All, WaitAll                        subjects are asked one after the other
//	Partitioned  Fallback, FailOpen, Shadow          if a part fails, all of the store counts as failed
//	Sized        Fallback, package metrics           the store may fail, and its answers are timed
//	Leaser       package metrics                     units of leased limits are not counted
//	Breaker      Observe, package metrics            calls that fail say whether the store is down
//	WaitWatcher  Wait, WaitN, WaitAll                nobody is told of their calls
//
// A line such as this one makes the compiler check their signatures:
//
//	var _ core.Amender = (*Store)(nil)
//
// Package core/machine has the states and their arithmetic. Package core/storetest tests an
// implementation.
type Store interface {
	Take(ctx context.Context, c Charge) (Decision, *Record, error)
	Reset(ctx context.Context, user, action string, limits []Limit) error
}

// An Accepter is for authors of stores. [New] asks it whether the store can serve a limiter.
// [Limiter.With] asks again. If the limiter has a ban policy, its limit comes last in the limits.
type Accepter interface {
	Accept(limits []Limit) error
}

// An Amender is a [Store] that can amend a charge: refund units of it, or release or renew its slots
// of [InFlight]. A limiter with InFlight needs one. [Limiter.Settle] calls Take for the units that an
// action has cost above its estimate.
type Amender interface {
	Store

	// Amend amends what a charge of one subject has taken, in one atomic step. [Record.Amend] does
	// the work, and returns done.
	Amend(ctx context.Context, r *Record, a machine.Amendment) (done bool, err error)
}

// An Unwrapper is for authors of decorators. Unwrap returns the store that the decorator wraps. A decorator
// that changes the user, action, cost or limits of a charge must also change those of each [Part] in [Terms].More.
type Unwrapper interface {
	Unwrap() Store
}

// A WaitWatcher is for authors of decorators. It is told of each call of [Limiter.Wait]. Wait asks
// the store with the context that Waiting returns, and in the end calls the function that Waiting
// returns, with the results of Wait.
type WaitWatcher interface {
	Waiting(ctx context.Context, c Charge) (watched context.Context, end func(Decision, error))
}

// A Dated store knows the time of day. If a limit is a CalendarWindow, the store sets Entry.Epoch
// before [Charge.Check]. [New] refuses a CalendarWindow on a store that is not Dated.
type Dated interface {
	Dated()
}

// A Joiner is a store that can decide about several subjects in one atomic step: see [All].
type Joiner interface {
	// Joins reports whether the store can decide about the states of two users in one atomic step.
	// If so, it gets each [Charge] about both, with More. Joins must not block.
	Joins(a, b string) bool
}

// A Partitioned store is spread over servers that can fail one by one. Part names the server that
// has the user's states. Part must not block.
type Partitioned interface {
	Part(user string) string
}

// A Sized store keeps a bounded number of keys in process memory. Package metrics does not measure
// how long such a store takes to answer.
type Sized interface {
	Len() (keys, maxKeys int)
}

// A Leaser is a store that takes units of leased limits in advance: see [Limit.Leased]. Leases
// returns how many units it has taken since it was made, how many it has given back, and how many
// were lost because it could not give them back.
type Leaser interface {
	Leases() (taken, returned, lost uint64)
}

// A Breaker stops asking a store that fails, and asks again from time to time.
type Breaker interface {
	// Failing reports whether the Breaker does not ask the store for some user, and a call for such
	// a user has failed within the last minute. Without the last condition a part of the store
	// would count as down for ever if no caller needs that part any more.
	Failing() bool

	// Open reports whether it has stopped for a user.
	Open(user string) bool
}

// ErrKey matches an error of a store that concerns only the keys of one charge, such as a key with
// a foreign value. [Fallback], [FailOpen] and [Shadow] decide this charge as after any other error,
// but do not count the error as a failure of the store.
var ErrKey = errors.New("core: the store has no answer for this key")

// Stores returns store and all stores that it wraps, from the outside in. What the first store of a
// [Fallback] wraps comes before the second store.
func Stores(store Store) iter.Seq[Store] {
	return func(yield func(Store) bool) { walk(store, yield) }
}

// walk is Stores, and reports whether yield wants more.
func walk(store Store, yield func(Store) bool) (more bool) {
	if store == nil || !yield(store) {
		return store == nil
	}
	if w, wraps := store.(Unwrapper); wraps && !walk(w.Unwrap(), yield) {
		return false
	}
	p, ok := store.(pair)
	return !ok || walk(p.second(), yield)
}

// A pair is a decorator that wraps two stores: a [Fallback].
type pair interface{ second() Store }

// find returns the first of a store and the stores that it wraps that is a T.
func find[T any](store Store) (found T, ok bool) {
	if found, ok = store.(T); ok {
		return found, true
	}
	if w, wraps := store.(Unwrapper); wraps {
		return find[T](w.Unwrap())
	}
	return found, false
}

// every reports whether a store, or else each one that it wraps, is a T for which holds is true.
func every[T any](store Store, holds func(T) bool) bool {
	switch s := store.(type) {
	case T:
		return holds(s)
	case Unwrapper:
		p, ok := s.(pair)
		return every(s.Unwrap(), holds) && (!ok || every(p.second(), holds))
	}
	return false
}

// accept asks a store, or else the one that it wraps, whether it can serve a limiter.
func accept(store Store, limits []Limit) error {
	for i := range limits {
		switch l := &limits[i]; {
		case l.rule.TakesSlots() && !amends(store):
			return fmt.Errorf("core: %s needs a store that can free a slot: give the store a method Amend, or the decorator around it a method Unwrap", l)
		case l.rule.Calendar != nil && !every(store, func(Dated) bool { return true }):
			return fmt.Errorf("core: %s: the store does not know the time of day; use memorystore or redisstore, or see core.Dated", l)
		}
	}
	if s, ok := find[Accepter](store); ok {
		return s.Accept(limits)
	}
	return nil
}

// amends reports whether all that a store charges can be amended.
func amends(store Store) bool { return every(store, func(Amender) bool { return true }) }

// joins reports whether a store decides the states of two users in one atomic step.
func joins(store Store, a, b string) bool {
	return every(store, func(s Joiner) bool { return s.Joins(a, b) })
}

// down reports whether, for the user, a breaker is open in the store or in a store that it wraps.
func down(store Store, user string) bool {
	for s := range Stores(store) {
		if b, ok := s.(Breaker); ok && b.Open(user) {
			return true
		}
	}
	return false
}

// mustStore panics if a decorator's store is nil.
func mustStore(s Store, where string) Store {
	if stores.IsNil(s) {
		panic("core: " + where + ": the store is nil; use memorystore.New(nil) or redisstore.New")
	}
	return s
}
