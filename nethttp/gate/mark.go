package gate

// What a Limit leaves in the request for the functions that a handler calls.

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tailcut/tailcut/core"
)

// A mark is the context of a request inside a Limit, for Allow, Decision and Settle to find. It is one
// allocation, with what else such a request needs.
type mark[C any] struct {
	context.Context
	config   *Config[C]
	limiter  *core.Limiter
	decision core.Decision // zero if the Limit has skipped the request
	request  http.Request  // the copy that has this context
	values   values        // of the headers
}

type markKey[C any] struct{}

func (m *mark[C]) Value(key any) any {
	if key == (markKey[C]{}) {
		return m
	}
	return m.Context.Value(key)
}

// around returns the innermost mark around ctx, or nil. The next one is around the mark's Context.
func around[C any](ctx context.Context) *mark[C] {
	m, _ := ctx.Value(markKey[C]{}).(*mark[C])
	return m
}

// Decision is an adapter's function Decision for its request type C: see nethttp.Decision.
func Decision[C any](r *http.Request) (core.Decision, bool) {
	for m := around[C](r.Context()); m != nil; m = around[C](m.Context) {
		if m.config.Keep && m.decision.Allowed {
			return m.decision, true
		}
	}
	return core.Decision{}, false
}

// Settle is an adapter's function Settle: see nethttp.Settle.
func Settle[C any](f Framework[C], c C, actual int) error {
	r := f.Request(c)
	ctx, err, found := context.WithoutCancel(r.Context()), error(nil), false
	for m := around[C](r.Context()); m != nil; m = around[C](m.Context) {
		if m.config.Settle {
			err, found = errors.Join(err, m.limiter.Settle(ctx, m.decision, actual)), true
		}
	}
	if !found {
		return errors.New(f.Name() + ": Settle: no Limit around the request has Settle; set it in the Config of the Limit whose Cost is the estimate")
	}
	return err
}

// giveBack gives r what the handler has found out about its copy inner: a middleware outside may read
// the pattern of a mux inside, and the server removes the uploaded files that it finds in r. It
// writes nothing else, since a middleware outside may read r in another goroutine.
func giveBack(r, inner *http.Request) {
	if r.Pattern != inner.Pattern {
		r.Pattern = inner.Pattern
		for part := range strings.SplitSeq(r.Pattern, "{") {
			if name, _, wild := strings.Cut(part, "}"); wild && name != "$" {
				name = strings.TrimSuffix(name, "...")
				r.SetPathValue(name, inner.PathValue(name))
			}
		}
	}
	if r.MultipartForm != inner.MultipartForm {
		r.MultipartForm = inner.MultipartForm
	}
	if r.Form == nil && inner.Form != nil {
		r.Form, r.PostForm = inner.Form, inner.PostForm
	}
}
