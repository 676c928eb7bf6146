package gate

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
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

// A question is what a request asks a function or a store, which may fail or panic.
type question struct{ adapter, asking string }

func (q *question) failed(status int, err error) *Failure {
	return &Failure{Status: status, Err: err, adapter: q.adapter, asking: q.asking}
}

// key returns what is wrong with a key, or nil.
func (q *question) key(key string, err error) *Failure {
	if err == nil && key != "" {
		return nil
	}
	if err == nil {
		err = keyfuncs.ErrNoKey
	}
	return q.failed(statusOf(err), err)
}

// undecided distinguishes a limiter that core.New has not made from a store without an
// answer.
func (q *question) undecided(err error) *Failure {
	if errors.Is(err, core.ErrConfig) {
		q.asking = "limiter"
		return q.failed(http.StatusInternalServerError, err)
	}
	return q.failed(http.StatusServiceUnavailable, err)
}

// statusOf is 400 if the request is at fault, and 500 if the server is.
func statusOf(err error) int {
	if errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// caught is deferred and turns a panic into a failure.
func (q *question) caught(failure **Failure) {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		*failure = q.failed(http.StatusInternalServerError, panicked(v))
	}
}

func panicked(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }
