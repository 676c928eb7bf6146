package gate

import (
	"fmt"
	"runtime/debug"
)

// A Failure says why a request got no decision. It is the error that Config.Fail gets.
type Failure struct {
	// Status is the status of the default answer: 400 if the request does not say who,
	// what or at what cost, 503 if the store has no answer, 500 if a function that was
	// given to the middleware failed.
	Status int
	Err    error

	adapter, asking string
}

// Error returns Err with what was asked: user, action, limiter, cost, skip or store.
func (f *Failure) Error() string { return f.adapter + ": " + f.asking + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

func panicked(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }
