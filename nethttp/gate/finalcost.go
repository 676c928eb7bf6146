package gate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/tailcut/tailcut/core"
)

// Run runs the handler of a request whose Outcome says FinalCost. Afterwards it charges
// or refunds the difference between the final cost and the cost charged on entry.
//
// The handler serves the request that it is given: r, or if r has a body, a copy whose Body is
// watched. answered returns the response's status and whether it has begun, as that of
// [Watch]. If the framework answers an error of the handler only after its middleware has
// returned, answered must return the status of that answer: that of Watch returns 200. A panic
// of the handler goes on. If no response has begun, it counts as 500.
func (g *Gate[C]) Run(c C, r *http.Request, o *Outcome, handler func(*http.Request), answered func() (status int, begun bool)) {
	returned := false
	inner, body := watchBody(r)
	defer func() {
		v := recover()
		Return(r, inner)
		status, begun := answered()
		if !returned && !begun {
			status = http.StatusInternalServerError
		}
		if status != 0 {
			left := errors.Is(r.Context().Err(), context.Canceled) || v == http.ErrAbortHandler || body != nil && body.cut()
			g.chargeFinal(c, r, o, status, left)
		}
		if v != nil {
			panic(v)
		}
	}()
	handler(inner)
	returned = true
}

// A watchedBody records whether the body could not be read to its end. A client can cause that
// at will, and net/http does not always cancel the context then: with HTTP/2 a client can end its
// stream too early, and with both protocols it can be silent until ReadTimeout, or until the
// handler gives up.
type watchedBody struct {
	io.ReadCloser
	closed, failed atomic.Bool
	reads          atomic.Int32 // under way
}

// cut reports whether a read has failed, or has not returned.
func (b *watchedBody) cut() bool { return b.failed.Load() || b.reads.Load() > 0 }

// watchBody returns r, or if r has a body, a copy of r with a watchedBody. It is a copy
// because net/http looks for the type of its own Body in its own request.
func watchBody(r *http.Request) (*http.Request, *watchedBody) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	b := &watchedBody{ReadCloser: r.Body}
	inner := r.WithContext(r.Context())
	inner.Body = b
	return inner, b
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.reads.Add(1)
	defer b.reads.Add(-1)
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.failed.Store(true)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.closed.Store(true) // a read that fails from now on is not the client's fault
	return b.ReadCloser.Close()
}

// chargeFinal charges or refunds the difference to the final cost. It refunds nothing to a
// client that has left: otherwise clients would disconnect to get refunds.
func (g *Gate[C]) chargeFinal(c C, r *http.Request, o *Outcome, status int, left bool) {
	var err error
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
		if err != nil && g.uncharged.now() {
			slog.Default().Error(g.adapter+": the final cost of a request cannot be charged; it stays as charged on entry", "error", err)
		}
	}()
	ctx := context.WithoutCancel(r.Context())
	ch, final := &o.charge, g.rules.FinalCost(c, status)
	switch {
	case final < 0:
		err = core.ErrCost
	case final > ch.cost:
		_, err = ch.limiter.Surcharge(ctx, ch.user, ch.action, final-ch.cost)
	case final < ch.cost && !left:
		err = ch.limiter.RefundN(ctx, o.Decision, ch.cost-final)
	}
}
