package keyfuncs

// Keys from values that the program has stored: strings and integers.

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
)

// ContextValue returns a function that reads a value from the request's context. Your login
// middleware has stored the value there under key. The value is the user's ID, a string or an
// integer. [Value] describes how the value becomes the user's key, and the errors.
//
// ContextValue panics if key is nil or not comparable, because a context cannot have such a key.
func ContextValue(key any) UserOf[*http.Request] {
	if key == nil || !reflect.TypeOf(key).Comparable() {
		panic(fmt.Sprintf("keyfuncs: ContextValue needs the comparable key that the value was stored under, not a %T", key))
	}
	return Value("the context value "+contextKey(key), func(r *http.Request) any { return r.Context().Value(key) })
}

// contextKey formats a key for an error, so that a reader can find it in the program's source.
func contextKey(key any) string {
	if t := reflect.TypeOf(key); t.PkgPath() != "" && t.Kind() != reflect.Struct {
		return fmt.Sprintf("%v(%#v)", t, key)
	}
	return fmt.Sprintf("%#v", key) // %#v of a struct has the type, and a predeclared type needs no name
}

// Value is for adapters of frameworks: [ContextValue], ginlimit.Value and echolimit.Value use it.
// It returns a function whose key is the value that get returns. The argument what names the value
// in errors and logs, such as "the session's tenant".
//
// A string is the key itself. The key of an integer is its decimal digits, so the number 7 and the
// string "7" have the same key. The number 0 has the key "0". Named types whose underlying type is
// a string or an integer work too.
//
// If the value is nil or "", the error is [ErrNoKey]. A value of any other type is a mistake in the
// program. Its error names the type, and matches neither ErrNoKey nor [ErrBadKey]. Value panics if
// get is nil.
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
