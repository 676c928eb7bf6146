package gate

// This file has FinalCost and OnlyFailures, which say what a request has cost in the end.

import (
	"cmp"
	"context"
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// run runs the handlers of the request r, with a FinalCost or OnlyFailures. After that it charges
// or refunds the difference to the cost charged on entry. If the connection was taken over, run
// charges and refunds nothing. If a handler panics and no response has begun, the status counts as
// 500. run does not stop the panic.
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

// statusClientLeft is the status that FinalCost gets if the client has left and has not been told
// of a success. A status from 400 to 499 stays as it is. nginx uses this number.
const statusClientLeft = 499

// chargeFinal charges or refunds the difference between the final cost and the cost charged on
// entry. With OnlyFailures nothing was charged on entry.
//
// If left is set, the client has left, and nothing is refunded. Otherwise clients would disconnect
// to get refunds. If untold is set, the client has left, and has not been told of a success. With
// OnlyFailures the request then counts as failed, and is charged.
func (g *Gate[C]) chargeFinal(c C, ctx context.Context, a *attempt, status int, left, untold bool) {
	charged, final, err := a.cost, 0, error(nil)
	defer g.uncharged.log(g.name, ": the final cost of a request cannot be charged; it stays as charged on entry", "final-cost-lost", &err)
	switch failed := g.config.OnlyFailures; {
	case failed != nil && failed(c, status):
		g.right.Seen()
		charged, final = 0, a.cost
	case failed != nil && untold:
		charged, final = 0, a.cost
	case failed != nil:
		charged = 0
		noteRight(&g.right, g.framework.Request(c), a, status)
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
