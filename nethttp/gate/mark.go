package gate

import (
	"context"
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// A mark is the context of a request inside a Limit, for Allow, Decision and Settle to find.
type mark[C any] struct {
	context.Context
	config   *Config[C]
	decision core.Decision // of the innermost Limit with Keep
	kept     bool          // whether there is one
	outer    *mark[C]
	settles  *settlement // of a Limit with Settle
}

type markKey[C any] struct{}

func (m *mark[C]) Value(key any) any {
	if key == (markKey[C]{}) {
		return m
	}
	return m.Context.Value(key)
}

// around returns the innermost mark, or nil.
func around[C any](r *http.Request) *mark[C] {
	m, _ := r.Context().Value(markKey[C]{}).(*mark[C])
	return m
}

// newMark makes the mark of a Limit inside of outer, which may be nil.
func newMark[C any](ctx context.Context, cfg *Config[C], outer *mark[C], a *attempt) *mark[C] {
	m := &mark[C]{Context: ctx, config: cfg, outer: outer}
	if cfg.Settle {
		m.settles = &settlement{a.limiter, a.decision}
	}
	if cfg.Keep && a.decision.Allowed {
		m.decision, m.kept = a.decision, true
	} else if outer != nil {
		m.decision, m.kept = outer.decision, outer.kept
	}
	return m
}

// Decision is an adapter's function Decision for its request type C: see nethttp.Decision.
func Decision[C any](r *http.Request) (core.Decision, bool) {
	if m := around[C](r); m != nil {
		return m.decision, m.kept
	}
	return core.Decision{}, false
}
