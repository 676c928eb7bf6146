package gate

// This file has the reasons why a request gets no decision, and logs them.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A Failure says why a request got no decision. Config.Fail gets it as its error.
type Failure struct {
	// Status is the status of the default answer:
	//
	//   - 400 if the request does not say who acts, what the action is or what it costs, or says it
	//     in a way that cannot be read
	//   - 503 if the store gives no answer
	//   - 500 if the program is at fault, such as a function that was given to the middleware
	Status int
	Err    error

	adapter, asking string
}

// Error returns the adapter's name, a word and the text of Err. The word says what failed: user,
// action, limiter, cost, skip, headers or store.
func (f *Failure) Error() string { return f.adapter + ": " + f.asking + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// down reports whether the store gave no answer.
func (f *Failure) down() bool { return f.Status == http.StatusServiceUnavailable }

// statusOf returns 400 if the request is at fault, and 500 if the server is.
func statusOf(err error) int {
	if errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func panicked(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }

// log logs a failure, unless the request is at fault or the client has disconnected.
func (f *Failure) log(ctx context.Context, l *failureLog) {
	due, text, code := interface{ Due() bool }(&l.broken), ": a request cannot be limited", "not-limited"
	switch {
	case f.Status == http.StatusBadRequest, f.down() && ctx.Err() != nil:
		return
	case errors.Is(f, keyfuncs.ErrNoRoute):
		due = &l.unrouted
	case f.down():
		due, text, code = &l.down, ": the store has no answer; requests are answered 503", "no-answer"
	}
	if due.Due() {
		slog.Default().Error(f.adapter+text, "code", code, "error", f)
	}
}

// A failureLog remembers when failures were logged, because each kind is logged once, or at most
// once a minute.
type failureLog struct {
	unrouted     notice.Once // ErrNoRoute
	nothing      notice.Once // a refusal by core.Nothing
	down, broken rarely
}

// handlers is the failureLog of Allow, which has no gate.
var handlers failureLog

// rarely logs errors, at most one a minute.
type rarely struct{ notice.Rarely }

// log is deferred. It logs *err, and a panic as an error. It does not log that a lease has ended,
// because that is not a failure.
func (r *rarely) log(adapter, text, code string, err *error) {
	if v := recover(); v != nil {
		*err = panicked(v)
	}
	if *err != nil && !errors.Is(*err, core.ErrLeaseEnded) && r.Due() {
		slog.Default().Error(adapter+text, "code", code, "error", *err)
	}
}
