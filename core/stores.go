package core

// Stores that wrap others, and what package core asks of them.

import (
	"fmt"
	"iter"
	"reflect"

	"github.com/tailcut/tailcut/core/machine"
)

// Stores are store and all stores that it wraps, from the outside in. Those of the first store of a
// [Fallback] come before those of the second.
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
		case l.rule.Calendar != nil && !every(store, func(machine.Dated) bool { return true }):
			return fmt.Errorf("core: %s: the store does not know the time of day; use memorystore or redisstore, or see machine.Dated", l)
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
	return every(store, func(s machine.Joiner) bool { return s.Joins(a, b) })
}

// down reports whether a breaker in the store, or in a store that it wraps, is open for the
// user.
func down(store Store, user string) bool {
	for s := range Stores(store) {
		if b, ok := s.(machine.Breaker); ok && b.Open(user) {
			return true
		}
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
