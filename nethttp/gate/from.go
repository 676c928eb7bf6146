package gate

// Key functions of a framework.

import (
	"path"
	"reflect"
	"runtime"

	"github.com/tailcut/tailcut/keyfuncs"
)

// From is an adapter's function From: it makes a key function of the framework. It panics if key is
// nil, or is keyfuncs.Route, which does not know the framework's routes.
func From[C any](f Framework[C], key keyfuncs.Func) func(C) (string, error) {
	switch {
	case key == nil:
		panic(f.Name() + ": From: the key function is nil; give one of package keyfuncs")
	case same(key, keyfuncs.Route):
		panic(f.Name() + ": keyfuncs.Route knows only the routes of net/http; use " + f.Name() + ".Route")
	}
	return func(c C) (string, error) { return key(f.Request(c)) }
}

// Action is an adapter's function Action: see keyfuncs.Action.
func Action[C any](name string) keyfuncs.ActionOf[C] {
	action := keyfuncs.Action(name)
	return func(C) (string, error) { return action(nil) }
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

func same[C any](a, b func(C) (string, error)) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
