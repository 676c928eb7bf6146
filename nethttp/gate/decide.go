package gate

import (
	"context"
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// Decide decides an action for a handler, and sets the headers: see nethttp.Allow. If a
// limit further out has set headers, Decide sets the same ones, with X-RateLimit-Reset in
// the same unit, whatever style says: the headers of one response agree.
func Decide(adapter string, style Style, r *http.Request, h http.Header, limiter *core.Limiter, user, action string, cost int) Outcome {
	o := Outcome{charge: charge{limiter, user, action, cost}}
	o.Failure = o.decide(adapter, r.Context())
	if was, set := number(h[headerReset]); set {
		style = styleOf(h, was)
	}
	headers := headers{style: style}
	if o.Failure != nil {
		o.Failure.log(r.Context(), &handlers)
		headers.fail(h, limiter, o.Failure)
		return o
	}
	headers.write(h, h[headerRemaining], &o)
	o.Pass, o.Decided = o.Decision.Allowed, true
	return o
}

func (o *Outcome) decide(adapter string, ctx context.Context) (failure *Failure) {
	ch := &o.charge
	q := question{adapter, "user"}
	defer q.caught(&failure)
	if failure = q.key(ch.user, nil); failure != nil {
		return failure
	}
	q.asking = "action"
	if failure = q.key(ch.action, nil); failure != nil {
		return failure
	}
	q.asking = "cost"
	if ch.cost < 0 {
		return q.failed(http.StatusInternalServerError, core.ErrCost)
	}
	q.asking = "store"
	var err error
	if o.Decision, o.at, err = ch.allow(ctx); err != nil {
		return q.undecided(err)
	}
	return nil
}
