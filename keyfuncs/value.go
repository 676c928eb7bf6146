package keyfuncs

// Keys from stored values: strings and integers.

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
)

// ContextValue returns a function that reads the value that an earlier handler has stored in
// the request's context under key: the user's id, a string or an integer. [Value] says
// how the value becomes a key, and which errors there are.
//
// ContextValue panics if key is nil or cannot be compared, and so cannot be the key of a
// context.
func ContextValue(key any) UserOf[*http.Request] {
	if key == nil || !reflect.TypeOf(key).Comparable() {
		panic(fmt.Sprintf("keyfuncs: ContextValue needs the comparable key that the value was stored under, not a %T", key))
	}
	return Value("the context value "+contextKey(key), func(r *http.Request) any { return r.Context().Value(key) })
}

// contextKey writes a key so that a reader finds it in the source.
func contextKey(key any) string {
	if t := reflect.TypeOf(key); t.PkgPath() != "" && t.Kind() != reflect.Struct {
		return fmt.Sprintf("%v(%#v)", t, key)
	}
	return fmt.Sprintf("%#v", key) // a struct's has its type; predeclared types need none
}

// Value is for adapters of other frameworks: [ContextValue], ginlimit.Value and echolimit.Value use
// it. It returns a function whose key is the value that get returns. what names the value in errors
// and logs, such as "the session's tenant".
//
// The key of a string is the string, and that of an integer its decimal digits. So the number 7 and
// the string "7" are one key. 0 is a key like any other. Types based on strings and integers work
// too.
//
// If the value is nil or "", the error is [ErrNoKey]. A value of any other type is a mistake in the
// program: the error names the type, and is neither ErrNoKey nor [ErrBadKey].
func Value[C any](what string, get func(C) any) UserOf[C] {
	if get == nil {
		panic("keyfuncs: Value needs a function that gets " + what)
	}
	missing := noKey(what + " is missing or empty")
	return func(c C) (key string, err error) {
		v := get(c)
		switch rv := reflect.ValueOf(v); {
		case v == nil:
		case rv.Kind() == reflect.String:
			key = rv.String()
		case rv.CanInt():
			key = strconv.FormatInt(rv.Int(), 10)
		case rv.CanUint():
			key = strconv.FormatUint(rv.Uint(), 10)
		default:
			return "", fmt.Errorf("keyfuncs: %s is a %T; store a string or an integer", what, v)
		}
		if key == "" {
			return "", missing
		}
		return key, nil
	}
}
