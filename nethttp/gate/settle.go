package gate

import (
	"context"
	"errors"
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// A settlement is the charge of a Limit with Settle. Its decision is zero if the request passed
// without one.
type settlement struct {
	limiter  *core.Limiter
	decision core.Decision
}

var errNotSettled = errors.New("gate: Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate")

// Settle is an adapter's function Settle for its request type C: see nethttp.Settle.
func Settle[C any](r *http.Request, actual int) error {
	ctx, err, found := context.WithoutCancel(r.Context()), error(nil), false
	for m := around[C](r); m != nil; m = m.outer {
		if s := m.settles; s != nil {
			err, found = errors.Join(err, s.limiter.Settle(ctx, s.decision, actual)), true
		}
	}
	if !found {
		return errNotSettled
	}
	return err
}
