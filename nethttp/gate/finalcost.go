package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// Run runs the handler of a request whose Outcome says FinalCost. Afterwards it charges
// or refunds the difference between the final cost and the cost charged on entry.
//
// answered returns the response's status and whether it has begun, as that of [Watch]. A
// panic of the handler goes on. If no response has begun, it counts as 500.
func (g *Gate[C]) Run(c C, r *http.Request, o *Outcome, handler func(), answered func() (status int, begun bool)) {
	returned := false
	defer func() {
		v := recover()
		status, begun := answered()
		if !returned && !begun {
			status = http.StatusInternalServerError
		}
		if status != 0 {
			// net/http cancels the context too if the client sends only a part of its body.
			left := errors.Is(r.Context().Err(), context.Canceled) || v == http.ErrAbortHandler
			g.chargeFinal(c, r, o, status, left)
		}
		if v != nil {
			panic(v)
		}
	}()
	handler()
	returned = true
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
