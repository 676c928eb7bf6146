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
// never pass) and a problem+json body; its type tells a user who is banned (see
// core.BanPolicy) from one who is limited. A request that does not say who or what is
// 400. A store without an answer is 503 with a short Retry-After; see core.Fallback
// for what is better. An error of a key, cost or picker function, or a panic of it or
// of an observer, is 500 and in the log. In none of these does the handler run.
//
// CORS preflights pass uncounted, and anybody can send one: mount a limit on patterns
// that have a method, or let the handler do no work for OPTIONS. With several limits
// around one handler the tightest decision shows in the headers; better is one limiter
// of several limits, which is all or nothing.
//
// # Warnings
//
// What is set up wrong in a way that no error shows is said once, by slog.Default(),
// with one of these codes:
//
//	forwarded-untrusted    a header that tells the client's address, and nobody trusts it
//	trusted-never-matches  1,000 such headers, and never a peer of the trusted prefixes
//	never-a-user           100 requests without a user and never one; or 1,000 to a keyfuncs.First whose first function found none
//	charged-twice          one request, charged twice for the same by the same limiter
//	limiter-per-request    limiters that are built for requests, and dropped
//	redis-evicts           a Redis that may evict limits
//
// # Where to mount it
//
// Inside recovery, logging and CORS, so that refusals are logged and can be read by
// browsers; inside authentication, if the user comes from it; and inside the mux,
// if the action is keyfuncs.Route. The ResponseWriter is wrapped only if there is a
// FinalCost. Around a httputil.ReverseProxy whose servers limit too, its ModifyResponse
// deletes their X-RateLimit headers, or the client gets two of each.
package nethttp

import (
	"net/http"
	"time"

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

	// MaxWait holds a request that may not pass yet, for at most so long, until it may:
	// a funnel or bucket then smooths instead of cutting, in the order of arrival. What
	// cannot pass within MaxWait is refused at once. Windows have no turns: who is held
	// asks again when there may be room, and where attempts count, as for a BanPolicy,
	// that is one more. MaxWait is less than the server's WriteTimeout. A held request
	// ends with its client's connection, and gives its turn back if there is none
	// behind it; of HTTP/1.1 the server notices that only when the body has been read,
	// so one that has a body may be held for nothing, and then its handler runs.
	MaxWait time.Duration

	// MaxWaiting is how many requests are held or being decided at once, by this
	// middleware; 0 is 1000. What is beyond is decided at once, as without MaxWait.
	MaxWaiting int

	// FinalCost says what a request that passed has cost in the end, by the status of its
	// response: 0 gives back what was charged, less a part of it, and more than that is
	// charged in addition. The charge stands while the handler runs, and the headers
	// tell that. A connection that was taken over (http.Hijacker) stays as charged. A
	// panic of the handler is 500, and that of FinalCost leaves the charge as it is.
	// nil settles nothing; if it is not nil the handler's ResponseWriter is wrapped.
	//
	// What failed costs nothing:
	//
	//	func(_ *http.Request, status int) int {
	//		if status >= 500 || status == http.StatusNotModified {
	//			return 0
	//		}
	//		return 1
	//	}
	//
	// A wrong password costs 5, a right one nothing:
	//
	//	func(_ *http.Request, status int) int {
	//		if status == http.StatusUnauthorized {
	//			return 5
	//		}
	//		return 0
	//	}
	FinalCost func(r *http.Request, status int) int

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
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, FinalCost: cfg.FinalCost,
		Keep: cfg.Keep, ResetDelta: cfg.ResetDelta, IETF: cfg.IETF,
	})
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("nethttp: Limit: the handler is nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var o Outcome
			gate.Enter(&o, r, r, w.Header())
			kept := r
			if o.kept != nil {
				o.kept.Context = r.Context()
				kept = r.WithContext(o.kept)
				// The server removes the files of an upload that it finds here.
				defer func() { r.MultipartForm = kept.MultipartForm }()
			}
			switch {
			case o.FinalCost:
				w, status := Watch(w)
				gate.Run(kept, kept, &o, func() { next.ServeHTTP(w, kept) }, status)
			case o.Pass:
				next.ServeHTTP(w, kept)
			case o.Failure != nil:
				answer(w, r, o.Problem(), cfg.Fail != nil, func(w http.ResponseWriter) { cfg.Fail(w, r, o.Failure) })
			default:
				answer(w, r, o.Problem(), cfg.Deny != nil, func(w http.ResponseWriter) { cfg.Deny(w, r, o.Decision) })
			}
		})
	}
}

// answer lets the hook, if there is one, answer, and does it itself if nothing came.
func answer(w http.ResponseWriter, r *http.Request, p Problem, hooked bool, hook func(http.ResponseWriter)) {
	if hooked {
		watched := &watched{ResponseWriter: w}
		if hook(watched); watched.answered() {
			return
		}
	}
	p.Write(w, r)
}

// Allow is for a handler that knows only then what its request costs, or who or what
// it is for: by the size of a payload, the number of items in a batch, a key in the
// body. It charges cost and writes the headers as Limit does, of several decisions
// those of the tightest. If the action may not pass, or that cannot be decided, it
// answers and returns false, and the handler returns:
//
//	if !nethttp.Allow(w, r, uploads, user, "upload", len(batch.Items)) {
//		return
//	}
//
// Call it before the handler writes. An empty user or action is answered 400, as a
// missing key is.
func Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) bool {
	o := Charge("nethttp", r, w.Header(), limiter, user, action, cost)
	if !o.Pass {
		o.Problem().Write(w, r)
	}
	return o.Pass
}

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep; of several the innermost.
func Decision(r *http.Request) (core.Decision, bool) {
	if k, ok := r.Context().Value(keptKey{}).(*kept); ok {
		return k.decision, true
	}
	return core.Decision{}, false
}

type keptKey struct{}
