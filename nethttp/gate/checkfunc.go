package gate

import (
	"reflect"

	"github.com/tailcut/tailcut/keyfuncs"
)

// CheckFunc is for the function From of an adapter. It panics if f is nil, or is
// keyfuncs.Route, which only knows http.ServeMux.
func CheckFunc(adapter string, f keyfuncs.Func) {
	if f == nil {
		panic(adapter + ": From: the key function is nil; give one of package keyfuncs")
	}
	if reflect.ValueOf(f).Pointer() == reflect.ValueOf(keyfuncs.Route).Pointer() {
		panic(adapter + ": From: keyfuncs.Route reads the pattern of an http.ServeMux; use " + adapter + ".Route")
	}
}
