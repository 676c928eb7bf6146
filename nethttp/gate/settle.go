package gate

import (
	"context"
	"errors"
)

// Settle is an adapter's function Settle: see nethttp.Settle.
func Settle[C any](f Framework[C], c C, actual int) error {
	r := f.Request(c)
	ctx, err, found := context.WithoutCancel(r.Context()), error(nil), false
	for m := around[C](r); m != nil; m = m.outer {
		if m.config.Settle {
			err, found = errors.Join(err, m.limiter.Settle(ctx, m.decision, actual)), true
		}
	}
	if !found {
		return errors.New(f.Name() + ": Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate")
	}
	return err
}
