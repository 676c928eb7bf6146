// Package nethttp limits net/http handlers, and everything else that is built of
// func(http.Handler) http.Handler: chi, alice, gorilla.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//	user := keyfuncs.Header("X-User-ID") // better: what your login has put in the context
//
//	mux := http.NewServeMux()
//	mux.Handle("POST /posts/{id}/replies",
//		nethttp.Limit(replies, user, keyfuncs.Action("reply"))(http.HandlerFunc(reply)))
//
// Who acts and what they do are required, so that every route says on purpose by
// whom and by what it limits. [Limit] is the short form; [Config] is the long one.
//
// # Responses
//
// Every response that a decision was made for has X-RateLimit-Limit,
// X-RateLimit-Remaining and X-RateLimit-Reset (seconds since 1970, rounded up). A
// refusal is 429 with Retry-After (whole seconds, rounded up; absent if it can
// never pass) and a problem+json body. A request that does not say who or what is
// 400. A store without an answer is 503 with a short Retry-After; see core.Fallback
// for what is better. An error of a key, cost or picker function, or a panic of it or
// of an observer, is 500 and in the log. In none of these does the handler run.
//
// CORS preflights pass uncounted. With several limits around one handler the
// tightest decision shows in the headers; better is one limiter of several limits,
// which is all or nothing.
//
// # Where to mount it
//
// Inside recovery, logging and CORS, so that refusals are logged and can be read by
// browsers; inside authentication, if the user comes from it; and inside the mux,
// if the action is keyfuncs.Route. The ResponseWriter is not wrapped.
package nethttp

import (
	"bufio"
	"context"
	"net"
	"net/http"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Limit makes middleware that lets a request pass if limiter allows its user its
// action. It panics if an argument is nil.
func Limit(limiter *core.Limiter, user, action keyfuncs.Func) func(http.Handler) http.Handler {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does.
type Config struct {
	// Cost is what a request costs; nil is 1. A cost of 0 is not charged. A
	// negative cost or an error is answered 500.
	Cost func(*http.Request) (int, error)

	// Limiter picks a limiter for a request, by the user's plan for example; nil,
	// or a nil result, is the one given to Limit.
	Limiter func(*http.Request) *core.Limiter

	// Skip lets a request pass undecided and without headers.
	Skip func(*http.Request) bool

	// Deny answers a refusal. The headers are set; Deny writes status and body. If
	// it writes nothing the answer is the default one.
	Deny func(http.ResponseWriter, *http.Request, core.Decision)

	// Fail answers a request that got no decision; its error is a [*Failure] with
	// the status that is due. If it writes nothing the answer is the default one.
	Fail func(http.ResponseWriter, *http.Request, error)

	// Keep lets the handler read the decision with [Decision].
	Keep bool

	// ResetDelta gives X-RateLimit-Reset in seconds from now instead of since 1970.
	ResetDelta bool

	// IETF adds the headers RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-10.
	IETF bool
}

// Limit makes middleware of the configuration. It panics if an argument is nil.
func (cfg Config) Limit(limiter *core.Limiter, user, action keyfuncs.Func) func(http.Handler) http.Handler {
	gate := NewGate("nethttp", limiter, user, action, Rules[*http.Request]{
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, ResetDelta: cfg.ResetDelta, IETF: cfg.IETF,
	})
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("nethttp: Limit: the handler is nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			o := gate.Enter(r, r, w.Header())
			switch {
			case o.Pass && o.Decided && cfg.Keep:
				next.ServeHTTP(w, r.WithContext(&kept{r.Context(), o.Decision}))
			case o.Pass:
				next.ServeHTTP(w, r)
			case o.Failure != nil:
				answer(w, r, o.Failure.Problem(), cfg.Fail != nil, func(w http.ResponseWriter) { cfg.Fail(w, r, o.Failure) })
			default:
				answer(w, r, Refusal(o.Decision), cfg.Deny != nil, func(w http.ResponseWriter) { cfg.Deny(w, r, o.Decision) })
			}
		})
	}
}

// answer lets the hook, if there is one, answer, and does it itself if nothing came.
func answer(w http.ResponseWriter, r *http.Request, p Problem, hooked bool, hook func(http.ResponseWriter)) {
	if hooked {
		watched := &watched{ResponseWriter: w}
		if hook(watched); watched.wrote {
			return
		}
	}
	p.Write(w, r)
}

// watched tells whether a hook has answered.
type watched struct {
	http.ResponseWriter
	wrote bool
}

func (w *watched) WriteHeader(status int) {
	w.wrote = w.wrote || status >= 200
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// FlushError and Hijack are for http.ResponseController, which finds the rest of
// what it does behind Unwrap.
func (w *watched) FlushError() error {
	w.wrote = true
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.wrote = w.wrote || err == nil // HTTP/2 has no connection to give
	return conn, rw, err
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep; of several the innermost.
func Decision(r *http.Request) (core.Decision, bool) {
	if k, ok := r.Context().Value(keptKey{}).(*kept); ok {
		return k.decision, true
	}
	return core.Decision{}, false
}

type keptKey struct{}

// kept is a context and the decision in one.
type kept struct {
	context.Context
	decision core.Decision
}

func (k *kept) Value(key any) any {
	if key == (keptKey{}) {
		return k
	}
	return k.Context.Value(key)
}
