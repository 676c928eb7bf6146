package gate

// This file has the subjects of a middleware, what checks their key functions, and what their first
// requests have shown.

import (
	"fmt"
	"hash/maphash"
	"path"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A Subject is a limiter, a function that reads the user, and a function that reads the action. An
// adapter's function By makes a Subject.
type Subject[C any] struct {
	Limiter *core.Limiter
	User    keyfuncs.UserOf[C]
	Action  keyfuncs.ActionOf[C]
	Guests  bool // Optional sets it; an adapter that makes a Subject of another C copies it
}

// Optional returns the subject for requests that may have no user. If a request has no user for
// this subject, the other subjects decide. If none of the subjects has a user for the request, the
// answer is 400.
func (s Subject[C]) Optional() Subject[C] {
	s.Guests = true
	return s
}

// A mounted is a Subject of a gate, with what its first requests have shown.
type mounted[C any] struct {
	Subject[C]
	userless, actionless, ported notice.Never
	actions                      actions
}

// actions counts the different actions of a subject. It stops counting when there are more than
// manyActions, or after enoughActions requests. It keeps hashes and only one action, because a
// client may choose long paths.
type actions struct {
	over     atomic.Bool
	latest   atomic.Pointer[string] // the latest new action; most subjects have only one action
	mu       sync.Mutex
	seen     map[uint64]struct{}
	requests int
}

const (
	manyActions   = 1000
	enoughActions = 100_000
)

var actionSeed = maphash.MakeSeed()

// knows reports whether note need not be called for an action.
func (a *actions) knows(action string) bool {
	latest := a.latest.Load()
	return latest != nil && *latest == action || a.over.Load()
}

// note counts an action. It reports true once: when there are more than manyActions.
func (a *actions) note(action string) bool {
	h := maphash.String(actionSeed, action)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.seen[h]; !known {
		if a.seen == nil {
			a.seen = map[uint64]struct{}{}
		}
		a.seen[h] = struct{}{}
		latest := action
		a.latest.Store(&latest)
	}
	a.requests++
	many := len(a.seen) > manyActions
	if many || a.requests >= enoughActions {
		a.seen = nil
		return !a.over.Swap(true) && many
	}
	return false
}

// Action implements the function Action of an adapter: see keyfuncs.Action.
//
//go:noinline
func Action[C any](name string) keyfuncs.ActionOf[C] {
	keyfuncs.Action(name) // it panics if name is empty
	return func(C) (string, error) { return name, nil }
}

// NotSwapped panics if a function for the action was given as the user, or the reverse. It is for
// an adapter's By. key is the function that was given, and given is "user" or "action". The
// argument others has the adapter's functions of the opposite kind, and NotSwapped recognizes only
// these. If a function has the type [keyfuncs.UserOf] or [keyfuncs.ActionOf], the compiler notices
// the mistake. keyfuncs.Route, for example, is a plain function, so only NotSwapped notices it.
func NotSwapped[C any](adapter, given string, key func(C) (string, error), others ...func(C) (string, error)) {
	for _, other := range others {
		if same(key, other) {
			name := path.Base(runtime.FuncForPC(reflect.ValueOf(key).Pointer()).Name())
			panic(adapter + ": " + name + " is given as the " + given + "; give Limit first the user and then the action")
		}
	}
}

// NotEqual is for an adapter's LimitAll. It panics if two subjects are equal, which means that they
// have the same user and their limiters share a state. No request could be decided then. NotEqual
// takes two key functions for the same one if they are the same function value, or if Action made
// both with the same name.
func NotEqual[C any](adapter string, subjects []Subject[C]) {
	for i, s := range subjects {
		for j, o := range subjects[:i] {
			if s.User == nil || o.User == nil || !s.Limiter.SharesStore(o.Limiter) || !alike(s.User, o.User) {
				continue
			}
			action := "the same"
			if s.Action != nil && o.Action != nil && !alike(s.Action, o.Action) {
				action = "another"
			}
			if s.Limiter.For("user", "the same").SharesState(o.Limiter.For("user", action)) {
				panic(fmt.Sprintf("%s: LimitAll: subjects %d and %d are equal: they have one user and share a state; leave one out, or give it another action, or tell the limits apart with Named", adapter, j, i))
			}
		}
	}
}

// alike reports whether two key functions are the same function, or were made by Action with the
// same name.
func alike[C any, F ~func(C) (string, error)](a, b F) bool {
	if *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b)) {
		return true
	}
	key := constant(a)
	return key != "" && key == constant(b)
}

// constant returns the key of a function that Action has made, and "" for other functions. It does
// not call other functions, because it has no request. It recognizes Action's functions by their
// code, so Action must not be inlined.
func constant[C any, F ~func(C) (string, error)](f F) string {
	code := reflect.ValueOf(f).Pointer()
	if code != reflect.ValueOf(keyfuncs.Action("any")).Pointer() && code != reflect.ValueOf(Action[C]("any")).Pointer() {
		return ""
	}
	var none C
	key, _ := f(none)
	return key
}

func same[C any](a, b func(C) (string, error)) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
