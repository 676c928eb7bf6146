package gate

// Why a request got no decision, and what the log says of errors.

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

// A Failure says why a request got no decision. It is the error that Config.Fail gets.
type Failure struct {
	// Status is the status of the default answer: 400 if the request does not say who,
	// what or at what cost, 503 if the store has no answer, 500 if a function that was
	// given to the middleware failed.
	Status int
	Err    error

	adapter, asking string
}

// Error returns Err with what was asked: user, action, limiter, cost, skip,
// headers or store.
func (f *Failure) Error() string { return f.adapter + ": " + f.asking + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// down reports whether the store has no answer.
func (f *Failure) down() bool { return f.Status == http.StatusServiceUnavailable }

// statusOf is 400 if the request is at fault, and 500 if the server is.
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

// A failureLog remembers when failures were logged, so that the log has one line a minute.
type failureLog struct {
	unrouted     notice.Once // ErrNoRoute
	nothing      notice.Once // a refusal by core.Nothing
	down, broken rarely
}

// handlers logs the failures of Allow, which has no gate.
var handlers failureLog

// rarely logs errors.
type rarely struct{ notice.Rarely }

// log is deferred, and logs an error or a panic, which becomes the error. A lease that has ended is no
// failure.
func (r *rarely) log(adapter, text, code string, err *error) {
	if v := recover(); v != nil {
		*err = panicked(v)
	}
	if *err != nil && !errors.Is(*err, core.ErrLeaseEnded) && r.Due() {
		slog.Default().Error(adapter+text, "code", code, "error", *err)
	}
}
