package gate

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// ErrAnswered is the error of [Allow] if the action does not pass and the request is answered.
var ErrAnswered = errors.New("gate: the action does not pass, and the request is answered")

// Allow is an adapter's function Allow, or if cfg is not nil the method of its Config: see
// nethttp.Allow. It decides an action for a handler, and sets the headers. If the action does not
// pass, it answers the request as [Gate.Serve] does, and returns the error of Deny or Fail or of the
// Framework's Answer, or [ErrAnswered] if that is nil.
//
// If a limit further out has set headers, Allow sets the same ones, with X-RateLimit-Reset in the
// same unit, whatever cfg says: the headers of one response agree.
func Allow[C any](f Framework[C], c C, cfg *Config[C], limiter *core.Limiter, user, action string, cost int) error {
	r, h := f.Request(c), f.Header(c)
	outer := around[C](r)
	switch {
	case cfg == nil && outer != nil:
		cfg = outer.config
	case cfg == nil:
		cfg = &Config[C]{}
	}
	hs := headers{style: cfg.style()}
	if was, set := number(h[headerReset]); set {
		hs.style = styleOf(h, was)
	} else if outer != nil {
		hs.style = outer.config.style()
	}
	a := attempt{adapter: f.Name(), limiter: limiter, user: user, action: action, cost: cost}
	if a.allow(r); a.failure != nil {
		a.failure.log(r.Context(), &handlers)
		hs.fail(h, &a)
	} else if hs.write(h, h[headerRemaining], limiter, &a.decision); a.decision.Allowed {
		return nil
	}
	return cmp.Or(answer(f, cfg, c, &a), ErrAnswered)
}

func (a *attempt) allow(r *http.Request) {
	defer a.caught()
	a.asking = "user"
	if !a.key(a.user, nil) {
		return
	}
	a.asking = "action"
	if a.key(a.action, nil) {
		a.charge(r.Context(), 0)
	}
}
