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

// log tells the server's owner. A request that is at fault itself is not logged, and
// neither is a client that has left.
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

// A failureLog remembers when failures were logged: they are logged rarely, not for each
// request.
type failureLog struct {
	unrouted     atomic.Bool // said that keyfuncs.Route found no pattern
	down, broken rarely
}

// handlers logs the failures of Decide, which has no gate.
var handlers failureLog

// rarely lets something be said once a minute.
type rarely struct{ said atomic.Int64 }

const sayAgain = time.Minute

func (r *rarely) now() bool {
	was, now := r.said.Load(), int64(time.Since(start))
	return (was == 0 || now-was > int64(sayAgain)) && r.said.CompareAndSwap(was, now)
}
