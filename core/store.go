package core

// Store, the optional interfaces of stores and decorators, and functions that look into a store
// that wraps others.

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tailcut/tailcut/core/internal/stores"
	"github.com/tailcut/tailcut/core/machine"
)

// A Store decides charges atomically and owns the clock. A [Limiter] calls it with a context that
// is not done and a charge that is valid.
//
// Take decides one charge. If all of its limits have room, apart from shadow limits, Take charges
// them. Otherwise it charges none of them. Take does so in one atomic step, at one instant of the
// store's clock. The instant is a positive number of microseconds. Usually a store does this inside
// a lock or a transaction:
//  1. It reads the clock, and loads the states of the limits.
//  2. It calls [Charge.Check] and then [Charge.Commit].
//  3. It writes back the states that have changed.
//
// A store that decides in another way must ask [Charge.Writes] before it changes a state, and must
// make the answer with [Charge.Answer]. If a store returns no [Record], nothing can be given back,
// and [Limiter.Status] has only one limit.
//
// Lock all states of the user at once. Two limiters may share only some limits, or have them in
// another order. So a lock for each action or each limit would admit too much, and locking one row
// after the other can deadlock. A [Joiner] also takes charges of several users, in [Terms].More. It
// locks all states of all these users, in an order that does not depend on the charge.
//
// User and action are any bytes of any length, but not empty. The key of a state consists of the
// user, the action, and [Limit.Identity]. If [Limit.IsPerUser] is true, it has no action.
//
// Reset deletes the states of the limits for that user and action. [Limiter.Unban] calls Reset with
// only the ban policy's limit.
//
// If a store returns an error, there is no decision. So a store must not return a refusal in place
// of an error. An error that concerns only the keys of one charge must match [ErrKey]. Otherwise
// [Fallback] counts it as a failure of the store. If the store's server may hang, the store needs a
// timeout: see [FailOpen].
//
// More methods are optional. If a decorator is an [Unwrapper], the wrapped store is asked too:
//
//	interface    who asks                            without it
//	Accepter     New, Limiter.With                   the store serves any limiter
//	Amender      Refund, Settle, Release, Renew      nothing can be given back; New refuses InFlight
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

// An Accepter is for authors of stores. Accept returns an error if the store cannot serve a limiter
// with these limits. [New] and [Limiter.With] call it. If the limiter has a ban policy, the
// policy's limit is the last one.
type Accepter interface {
	Accept(limits []Limit) error
}

// An Amender is a [Store] that can amend a charge: refund units of it, or release or renew its
// slots of [InFlight]. A limiter with InFlight needs an Amender. [Limiter.Settle] calls Take if an
// action has cost more than its estimate.
type Amender interface {
	Store

	// Amend amends what a charge of one subject has taken, in one atomic step. [Record.Amend]
	// changes the states, and returns done.
	Amend(ctx context.Context, r *Record, a machine.Amendment) (done bool, err error)
}

// An Unwrapper is for authors of decorators. Unwrap returns the store that the decorator wraps. A
// decorator that changes the user, action, cost or limits of a charge must also change those of
// each [Part] in [Terms].More.
type Unwrapper interface {
	Unwrap() Store
}

// A WaitWatcher is for authors of decorators. Waiting is called when a call of [Limiter.Wait] joins
// the callers that wait, before it asks the store. Wait asks the store with the context that
// Waiting returns. When Wait returns, it calls end with the results of Wait.
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
	// If it returns true, a call of All that charges both users is one [Charge] with More. Joins
	// must not block.
	Joins(a, b string) bool
}

// A Partitioned store is spread over servers that can fail one by one. Part returns the name of the
// server that has the user's states. Part must not block.
type Partitioned interface {
	Part(user string) string
}

// A Sized store keeps its keys in process memory, at most maxKeys of them. Package metrics does not
// measure how long such a store takes to answer.
type Sized interface {
	Len() (keys, maxKeys int)
}

// A Leaser is a store that takes units of leased limits in advance: see [Limit.Leased]. Leases
// counts the units since the store was made: those that it has taken, those that it has given back,
// and those that were lost because it could not give them back.
type Leaser interface {
	Leases() (taken, returned, lost uint64)
}

// A Breaker stops asking a store that fails, and asks again from time to time.
type Breaker interface {
	// Failing reports whether the Breaker has stopped asking the store, or a part of the store, and
	// a call of that part has failed within the last minute. After a minute without a failure the
	// part no longer counts as down, because maybe no caller needs it any more.
	Failing() bool

	// Open reports whether the Breaker has stopped asking the store for that user.
	Open(user string) bool
}

// ErrKey matches an error of a store that concerns only the keys of one charge, such as a key with
// a foreign value. [Fallback], [FailOpen] and [Shadow] decide this charge as after any other error,
// but do not count the error as a failure of the store.
var ErrKey = errors.New("core: the store has no answer for this key")

// Stores returns store and all stores that it wraps, from the outside in. The stores that the first
// store of a [Fallback] wraps come before the second store.
func Stores(store Store) iter.Seq[Store] {
	return func(yield func(Store) bool) { walk(store, yield) }
}

// walk calls yield for each of Stores. It reports whether yield wants more.
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

// A pair is a decorator that wraps two stores, as [Fallback] does.
type pair interface{ second() Store }

// find returns the first T among a store and the stores that it wraps. If a store is a pair, find
// looks only into the first store of the pair.
func find[T any](store Store) (found T, ok bool) {
	if found, ok = store.(T); ok {
		return found, true
	}
	if w, wraps := store.(Unwrapper); wraps {
		return find[T](w.Unwrap())
	}
	return found, false
}

// every reports whether a store is a T for which holds returns true. If the store is not a T but
// wraps other stores, every reports this for all of the wrapped stores.
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

// accept returns an error if a store, or the one that it wraps, cannot serve a limiter with these
// limits.
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

// amends reports whether all charges of a store can be amended.
func amends(store Store) bool { return every(store, func(Amender) bool { return true }) }

// joins reports whether a store decides about the states of two users in one atomic step.
func joins(store Store, a, b string) bool {
	return every(store, func(s Joiner) bool { return s.Joins(a, b) })
}

// down reports whether a breaker in the store, or in a store that it wraps, is open for the user.
func down(store Store, user string) bool {
	for s := range Stores(store) {
		if b, ok := s.(Breaker); ok && b.Open(user) {
			return true
		}
	}
	return false
}

// mustStore returns the store. If it is nil, mustStore panics. where is the decorator's name.
func mustStore(s Store, where string) Store {
	if stores.IsNil(s) {
		panic("core: " + where + ": the store is nil; use memorystore.New(nil) or redisstore.New")
	}
	return s
}
