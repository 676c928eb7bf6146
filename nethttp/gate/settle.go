package gate

import (
	"context"
	"errors"

	"github.com/tailcut/tailcut/core"
)

// A settlement is the charge of a Limit with Settle. Its decision is zero if the request passed
// without one.
type settlement struct {
	limiter  *core.Limiter
	decision core.Decision
}

// Settle is an adapter's function Settle: see nethttp.Settle.
func Settle[C any](f Framework[C], c C, actual int) error {
	r := f.Request(c)
	ctx, err, found := context.WithoutCancel(r.Context()), error(nil), false
	for m := around[C](r); m != nil; m = m.outer {
		if s := m.settles; s != nil {
			err, found = errors.Join(err, s.limiter.Settle(ctx, s.decision, actual)), true
		}
	}
	if !found {
		return errors.New(f.Name() + ": Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate")
	}
	return err
}
