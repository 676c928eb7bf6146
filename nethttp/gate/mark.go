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
	limiter  *core.Limiter
	decision core.Decision // zero if the Limit has skipped the request
	outer    *mark[C]
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

// Decision is an adapter's function Decision for its request type C: see nethttp.Decision.
func Decision[C any](r *http.Request) (core.Decision, bool) {
	for m := around[C](r); m != nil; m = m.outer {
		if m.config.Keep && m.decision.Allowed {
			return m.decision, true
		}
	}
	return core.Decision{}, false
}
