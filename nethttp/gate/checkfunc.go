package gate

import (
	"reflect"

	"github.com/tailcut/tailcut/keyfuncs"
)

// CheckFunc panics if f cannot serve a framework with a router of its own: if it is nil or
// keyfuncs.Route, which knows http.ServeMux only.
func CheckFunc(adapter string, f keyfuncs.Func) {
	if f == nil {
		panic(adapter + ": From: the key function is nil; give one of package keyfuncs")
	}
	if reflect.ValueOf(f).Pointer() == reflect.ValueOf(keyfuncs.Route).Pointer() {
		panic(adapter + ": From: keyfuncs.Route reads the pattern of an http.ServeMux; use " + adapter + ".Route")
	}
}
