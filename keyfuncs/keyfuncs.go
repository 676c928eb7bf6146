package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
)

// A Func reads a key from a request: the user who acts, or the action that the user performs. It
// must be safe for concurrent use.
//
// Keys are compared byte by byte. So "Alice" and "alice" are two users, and so are two Unicode
// forms of one name. If your login accepts two spellings of a user's name, the Func should return
// the same key for both spellings.
type Func = func(*http.Request) (string, error)

// A UserOf reads the user who acts from a request of type C, such as *http.Request or *gin.Context.
// An ActionOf reads the action. The two types differ, so a program that passes Action(...) as the
// user, or Header(...) as the action, does not compile. A function that you declare, or that
// [First] or [Join] returns, can be passed as either.
type (
	UserOf[C any]   func(C) (string, error)
	ActionOf[C any] func(C) (string, error)
)

// The errors of this package's functions, for [errors.Is].
var (
	// ErrNoKey means that the request has no key. For example, the header is missing, or the user
	// is not logged in. If a function of [First] returns ErrNoKey, First calls the next function.
	ErrNoKey = errors.New("keyfuncs: the request has no key")

	// ErrBadKey means that the request has a key, but the key is ambiguous or does not parse.
	ErrBadKey = errors.New("keyfuncs: the request has a bad key")

	// ErrNoRoute is the error of [Route] if the request has no pattern. It is a mistake in the
	// program, and not in the request.
	ErrNoRoute = errors.New("keyfuncs: the request has no route; mount the limit on a mux pattern, inside the mux, not around it (chi: With or Group, not Use); for Gin and Echo there are ginlimit.Route and echolimit.Route")
)

// noKey and badKey make an error when the program starts. So a request without a key allocates no
// error.
func noKey(why string) error  { return fmt.Errorf("%w: %s", ErrNoKey, why) }
func badKey(why string) error { return fmt.Errorf("%w: %s", ErrBadKey, why) }

// Everyone returns the key "~everyone" for every request, so that all users share one limit. It
// never returns an error. If users can choose their names, a user could be called ~everyone. To
// keep that user's requests apart, give the limit an action that no other limit has, or read users
// by [First]: no key of First is ~everyone.
func Everyone(*http.Request) (string, error) { return "~everyone", nil }

// Action returns a function that returns name for every request, and never an error. name is what
// the user does, such as "reply". Routes with the same limiter and the same name share one quota
// for each user. Action panics if name is empty.
//
//go:noinline
func Action(name string) ActionOf[*http.Request] {
	if name == "" {
		panic(`keyfuncs: Action needs a name, such as "reply"`)
	}
	return func(*http.Request) (string, error) { return name, nil }
}
