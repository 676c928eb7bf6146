package core

// Store, and how package core looks into stores that wrap others.

import (
	"context"
	"errors"
	"reflect"
)

// A Store decides charges atomically and owns the clock. A [Limiter] calls it with a
// context that is not done and a charge that is valid.
//
// Take decides one charge: all of its limits agree and are charged, or none is. The answer
// is that of [Charge.Check] and [Charge.Commit] on the states that the store keeps, in one
// atomic step at one instant of the store's clock. Read the clock inside the lock or the
// transaction. Every instant is positive, in microseconds.
//
// Lock everything of the user. Limiters may share only some limits, or name them in another
// order: locks of an action or of one limit admit too much, and locks of one row after the
// other can deadlock. A [Joiner] also takes charges of several users, [Charge.And], and locks everything
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
// More methods are optional: [Accepter], [Dated], [Unwrapper], [Partitioned], [Joiner], [Amender],
// [Sized], [Leaser], [Breaker], [Pair] and [WaitWatcher]. A line such as this one makes the compiler
// check their signatures:
//
//	var _ core.Amender = (*Store)(nil)
//
// Package core/machine has the states and their arithmetic. Package core/storetest tests an
// implementation.
type Store interface {
	Take(ctx context.Context, c Charge) (Decision, error)
	Reset(ctx context.Context, user, action string, limits []Limit) error
}

// ErrKey matches a store's error that concerns only the keys of one charge, such as a key
// that holds a foreign value. [Fallback], [FailOpen] and [Shadow] decide that charge as they
// do after any error. They do not count the error as a failure of the store.
var ErrKey = errors.New("core: the store has no answer for this key")

// accept asks a store, or else the one that it wraps, whether it can serve a limiter.
func accept(store Store, limits []Limit) error {
	if takeSlots(limits) && !every[Amender](store) {
		return errors.New("core: InFlight needs a store that can free a slot: give the store a method Amend, or the decorator around it a method Unwrap")
	}
	if s, ok := find[Accepter](store); ok {
		return s.Accept(limits)
	}
	return nil
}

// down reports whether a breaker in the store, or in a store that it wraps, is open for the
// user.
func down(store Store, user string) bool {
	s, ok := find[interface{ down(user string) bool }](store)
	return ok && s.down(user)
}

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

// every reports whether a store, or else each one that it wraps, is a T.
func every[T any](store Store) bool {
	switch s := store.(type) {
	case T:
		return true
	case Pair:
		return every[T](s.Unwrap()) && every[T](s.Other())
	case Unwrapper:
		return every[T](s.Unwrap())
	}
	return false
}

// mustStore panics if a decorator's store is nil.
func mustStore(s Store, where string) Store {
	if isNil(s) {
		panic("core: " + where + ": the store is nil; use memorystore.New(nil) or redisstore.New")
	}
	return s
}

// isNil reports whether a store is nil, or a nil pointer in an interface.
func isNil(s Store) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
}
