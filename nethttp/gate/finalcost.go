package gate

// FinalCost and OnlyFailures: what a request has cost in the end.

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/tailcut/tailcut/core"
)

// run runs the handlers of the request r with a FinalCost or OnlyFailures. Afterwards it charges or refunds the
// difference between the final cost and the cost charged on entry. A panic of a handler goes on. If
// no response has begun, it counts as 500.
func (g *Gate[C]) run(c C, r *http.Request, a *attempt, next func(C) error) (err error) {
	ctx, answers := r.Context(), watch(r)
	c, w := g.framework.Watch(g.framework.WithRequest(c, r), answers)
	defer w.Restore()
	returned := false
	defer func() {
		v := recover()
		status, begun := w.Result(err)
		if !returned && !begun {
			status = http.StatusInternalServerError
		}
		if status != 0 {
			left := ctx.Err() != nil || v == http.ErrAbortHandler || answers.body.cut()
			untold := left && (answers.late || !begun && !w.Answered() || status >= http.StatusBadRequest)
			g.chargeFinal(c, context.WithoutCancel(ctx), a, status, left, untold)
		}
		if v != nil {
			panic(v)
		}
	}()
	err = next(c)
	returned = true
	return err
}

// An Answering notes whether the client has left when the response gets its status. Nil notes nothing.
type Answering struct {
	body watchedBody
	ctx  context.Context
	late bool
}

// Now is called before the response gets its status.
func (a *Answering) Now() {
	if a != nil {
		a.late = a.ctx.Err() != nil || a.body.failed.Load()
	}
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

// cut reports whether a read has failed, or has not returned. It looks at the reads under way first:
// one that ends meanwhile has set failed.
func (b *watchedBody) cut() bool { return b.reads.Load() > 0 || b.failed.Load() }

// watch has r read its body, if it has one, through a watchedBody. r is the copy with the mark:
// in the server's own request net/http looks for the type of its own Body.
func watch(r *http.Request) *Answering {
	a := &Answering{body: watchedBody{ReadCloser: r.Body}, ctx: r.Context()}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &a.body
	}
	return a
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
	b.closed.Store(true)    // a read that begins from now on fails, and the client is not at fault
	if b.reads.Load() > 0 { // the handler has given up waiting for the client
		b.failed.Store(true)
	}
	return b.ReadCloser.Close()
}

// statusClientLeft is the status that FinalCost gets if the client was told neither success nor its own
// mistake. nginx has named it.
const statusClientLeft = 499

// chargeFinal charges or refunds the difference to the final cost. It refunds nothing to a
// client that has left: otherwise clients would disconnect to get refunds. With OnlyFailures nothing was
// charged on entry. A client that has left untold, which is before it was told of a success, has failed.
func (g *Gate[C]) chargeFinal(c C, ctx context.Context, a *attempt, status int, left, untold bool) {
	charged, final, err := a.cost, 0, error(nil)
	defer g.uncharged.log(g.name, ": the final cost of a request cannot be charged; it stays as charged on entry", "final-cost-lost", &err)
	switch failed := g.config.OnlyFailures; {
	case failed != nil && failed(c, status):
		g.right.clear(manyRight)
		charged, final = 0, a.cost
	case failed != nil && untold:
		charged, final = 0, a.cost
	case failed != nil:
		charged = 0
		g.noteRight(c, a, status)
	case untold && (status < 400 || status > 499):
		final = g.config.FinalCost(c, statusClientLeft)
	default:
		final = g.config.FinalCost(c, status)
	}
	switch {
	case final < 0:
		err = core.ErrCost
	case final > charged:
		for _, s := range a.subjects() {
			_, failed := s.limiter.Surcharge(ctx, s.user, s.action, final-charged)
			err = cmp.Or(err, failed)
		}
	case final < charged && !left:
		err = a.limiter.RefundN(ctx, a.decision, charged-final)
	}
}
