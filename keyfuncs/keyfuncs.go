package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
)

// A Func reads a key from a request: who acts, or what they do. It must be safe for
// concurrent use.
//
// Keys are compared byte by byte: upper and lower case are different keys, and so are
// different Unicode forms of one name. If the login treats two spellings as one user, the
// Func should return the same key for both.
type Func = func(*http.Request) (string, error)

// A UserOf reads who acts from a request C, such as *http.Request or *gin.Context. An ActionOf
// reads what they do. They are different types, so a program that swaps functions of this package
// for the two does not compile. A function of your own can be either.
type (
	UserOf[C any]   func(C) (string, error)
	ActionOf[C any] func(C) (string, error)
)

// The errors of this package's functions, for [errors.Is].
var (
	// ErrNoKey means that the request has no key: the header is missing, or the user is
	// not logged in. It is the only error after which [First] asks its next function.
	ErrNoKey = errors.New("keyfuncs: the request has no key")

	// ErrBadKey means that the request has a key that cannot be used: it is ambiguous
	// or does not parse.
	ErrBadKey = errors.New("keyfuncs: the request has a bad key")

	// ErrNoRoute is the error of [Route] for a request without a pattern. The program
	// is wrong, not the request.
	ErrNoRoute = errors.New("keyfuncs: the request has no route; mount the limit on a mux pattern, inside the mux, not around it (chi: With or Group, not Use); for Gin and Echo there are ginlimit.Route and echolimit.Route")
)

// noKey and badKey make errors when the program starts, so that a request without a key does not
// allocate one.
func noKey(why string) error  { return fmt.Errorf("%w: %s", ErrNoKey, why) }
func badKey(why string) error { return fmt.Errorf("%w: %s", ErrBadKey, why) }

// Everyone returns the same key for every request, for one limit on all users together.
// It never fails. The key is "~everyone". If users can choose their names and [First] is
// not used, a user could take that name. Then give the limit its own action.
func Everyone(*http.Request) (string, error) { return "~everyone", nil }

// Action returns a function that always returns name, such as "reply". All routes with that
// Action share one limit per user. The function never fails. Action panics if name is empty.
//
//go:noinline
func Action(name string) ActionOf[*http.Request] {
	if name == "" {
		panic(`keyfuncs: Action needs a name, such as "reply"`)
	}
	return func(*http.Request) (string, error) { return name, nil }
}
