package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/keyfuncs"
)

// log logs a failure, unless the request is at fault or the client has left.
func (f *Failure) log(ctx context.Context, l *failureLog) {
	switch {
	case f.Status == http.StatusBadRequest:
	case errors.Is(f, keyfuncs.ErrNoRoute):
		if l.unrouted.CompareAndSwap(false, true) {
			slog.Default().Error(f.adapter+": a request cannot be limited", "error", f)
		}
	case f.Status == http.StatusServiceUnavailable:
		if ctx.Err() == nil && l.down.now() {
			slog.Default().Error(f.adapter+": the store has no answer; requests are answered 503", "error", f)
		}
	default:
		if l.broken.now() {
			slog.Default().Error(f.adapter+": a request cannot be limited", "error", f)
		}
	}
}

// A failureLog remembers when failures were logged, so that the log has one line a minute.
type failureLog struct {
	unrouted     atomic.Bool // whether ErrNoRoute was logged
	down, broken rarely
}

// handlers logs the failures of Decide, which has no gate.
var handlers failureLog

// rarely allows a log line once a minute.
type rarely struct{ last atomic.Int64 }

const logAgain = time.Minute

var start = time.Now()

func (r *rarely) now() bool {
	was, now := r.last.Load(), int64(time.Since(start))
	return (was == 0 || now-was > int64(logAgain)) && r.last.CompareAndSwap(was, now)
}
