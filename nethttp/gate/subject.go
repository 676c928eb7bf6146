package gate

// Whom and what a middleware limits, and the key functions that say so.

import (
	"fmt"
	"path"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A Subject is a limiter, and the functions of whom and what it limits. The adapters' function By makes it.
type Subject[C any] struct {
	Limiter *core.Limiter
	User    keyfuncs.UserOf[C]
	Action  keyfuncs.ActionOf[C]
	Guests  bool // set by Optional; an adapter that makes a Subject of another C copies it
}

// Optional returns the subject for requests that may have no user: of these the other subjects decide. If
// no subject has a user, the request is answered 400.
func (s Subject[C]) Optional() Subject[C] {
	s.Guests = true
	return s
}

// Action is an adapter's function Action: see keyfuncs.Action.
//
//go:noinline
func Action[C any](name string) keyfuncs.ActionOf[C] {
	keyfuncs.Action(name) // which panics if name is empty
	return func(C) (string, error) { return name, nil }
}

// NotSwapped is for an adapter's Limit. It panics if key, given as the "user" or the "action", is one
// of the functions for the other. The types [keyfuncs.UserOf] and [keyfuncs.ActionOf] do not tell, if
// the function is declared, as Route is.
func NotSwapped[C any](adapter, given string, key func(C) (string, error), others ...func(C) (string, error)) {
	for _, other := range others {
		if same(key, other) {
			name := path.Base(runtime.FuncForPC(reflect.ValueOf(key).Pointer()).Name())
			panic(adapter + ": " + name + " is given as the " + given + "; give Limit first the user and then the action")
		}
	}
}

// NotEqual is for an adapter's LimitAll. It panics if two subjects are equal: they have one user, and their
// limiters share a state, so no request could be decided. Two key functions count as one if they are the same
// function value, or if Action made both with one name.
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

// alike reports whether two key functions are one function, or those of one Action.
func alike[C any, F ~func(C) (string, error)](a, b F) bool {
	if *(*unsafe.Pointer)(unsafe.Pointer(&a)) == *(*unsafe.Pointer)(unsafe.Pointer(&b)) {
		return true
	}
	key := constant(a)
	return key != "" && key == constant(b)
}

// constant is the key of a function that Action has made, or "". No other function is called without a request.
// Action is not inlined: its functions are told by their code.
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
