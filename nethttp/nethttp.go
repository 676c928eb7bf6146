package nethttp

// The middleware, Allow, and their settings.

import (
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// Limit makes middleware that lets a request pass if limiter allows its user its
// action. It panics if an argument is nil.
func Limit(limiter *core.Limiter, user, action keyfuncs.Func) func(http.Handler) http.Handler {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does.
type Config struct {
	// Cost returns what a request costs; nil is 1. A request of cost 0 is not charged,
	// and is refused only to a banned user. So if Cost counts the items of a batch, an empty
	// batch is free: return at least 1, or an error. An error is answered 400 if it is
	// keyfuncs.ErrNoKey or keyfuncs.ErrBadKey, otherwise 500. A negative cost is answered
	// 500.
	Cost func(*http.Request) (int, error)

	// Limiter picks a limiter for a request, by the user's plan for example. If it is
	// nil or returns nil, the limiter given to Limit decides. An error is answered 500.
	// For a plan without a limit use Skip. To change numbers while the program runs, keep the
	// limiter in an atomic.Pointer that this function loads.
	Limiter func(*http.Request) (*core.Limiter, error)

	// Skip lets a request pass without a decision and without headers.
	Skip func(*http.Request) bool

	// CountPreflights charges CORS preflights like any other request. Without it they
	// pass uncounted, and every client can send as many as it likes.
	CountPreflights bool

	// Deny answers a refusal. The headers are set already, and Deny writes status and body.
	// If it writes nothing, the default answer is sent.
	Deny func(http.ResponseWriter, *http.Request, core.Decision)

	// Fail answers a request that got no decision. Its error is a [*gate.Failure], whose
	// Status is that of the default answer. If Fail writes nothing, that answer is sent. Do
	// not send the error's text to the client: after a panic it contains the stack.
	Fail func(http.ResponseWriter, *http.Request, error)

	// MaxWait is how long a request may wait for its turn instead of being refused; 0
	// refuses at once. With one funnel or bucket, and within one process, a request that cannot
	// pass within MaxWait is refused at once too, and waiting requests pass in the order of
	// arrival; other processes can move a turn back. With any other limiter a waiting request
	// asks again when there may be room. See [core.Limiter.Wait].
	//
	// MaxWait must be less than the server's WriteTimeout. It does not cut a call of the
	// store short. If the client disconnects, the request ends, and its turn is refunded
	// unless a later one depends on it. An HTTP/1.1 server notices that only when the body
	// has been read, so a request with a body may wait, and its handler run, after its
	// client has disconnected.
	MaxWait time.Duration

	// MaxWaiting is how many requests of this middleware may wait or be decided at once;
	// 0 is 1000. Further requests do not wait.
	MaxWaiting int

	// FinalCost returns the final cost of a request that passed, by the status of its
	// response. The difference to the cost charged on entry is refunded or charged. The
	// headers show the decision on entry.
	//
	// Nothing is refunded to a client that has disconnected, if reading the request's body failed,
	// or if the handler panics with http.ErrAbortHandler. If the handler panics otherwise, the
	// status is 500 unless the response had begun. If the handler took over the connection
	// (http.Hijacker), if FinalCost panics or returns a negative cost, or if the store fails, the
	// cost charged on entry stays. The limiter need not be Refundable.
	//
	// With a FinalCost the handler's ResponseWriter and the request's Body are wrapped. The
	// wrapper has the method Hijack over HTTP/2 too, where it fails. Mount
	// http.MaxBytesHandler inside: ParseForm does not find it outside, and refuses forms of
	// more than 10 MB. Inside, it cannot close the connection, and the server may read up to
	// 256 KB more of a body that is too large.
	//
	// An action that failed costs nothing:
	//
	//	func(_ *http.Request, status int) int {
	//		if status >= 500 {
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
	//
	// Some final costs let a client send requests without limit. If 304 costs nothing, it
	// sends If-None-Match. If 4xx costs nothing, it sends invalid requests. If 5xx costs
	// nothing, it sends requests that make the handler fail.
	//
	// Mount http.TimeoutHandler inside of all limits, and do not call [Allow] in its handler. If
	// it is outside, the client gets 503, but FinalCost gets the status that the handler writes
	// later.
	FinalCost func(r *http.Request, status int) int

	// Keep lets the handler read the decision with [Decision].
	Keep bool

	// ResetDelta gives X-RateLimit-Reset in seconds from now instead of since 1970.
	ResetDelta bool

	// IETF adds the headers RateLimit-Policy and RateLimit, as
	// https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10 has them.
	// With core.Divide, RateLimit-Policy shows this replica's share of the binding limit
	// only, and the others undivided.
	IETF bool
}

// Limit makes middleware of the configuration. It panics if an argument is nil.
func (cfg Config) Limit(limiter *core.Limiter, user, action keyfuncs.Func) func(http.Handler) http.Handler {
	g := gate.New(framework{}, limiter, lift(user), lift(action), cfg.lift())
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("nethttp: Limit: the handler is nil")
		}
		serve := func(x exchange) error {
			next.ServeHTTP(x.w, x.r)
			return nil
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = g.Serve(exchange{w, r}, serve) })
	}
}

// Allow limits an action that only the handler knows: by a key in the body, the size of
// a payload, the number of items in a batch. It charges cost and sets the headers as
// Limit does. If the action is refused or cannot be decided, Allow answers the request and
// returns false. The handler then returns:
//
//	if !nethttp.Allow(w, r, uploads, user, "upload", len(batch.Items)) {
//		return
//	}
//
// Call it before the handler writes. An empty user or action is answered 400, as a
// missing key is.
//
// Behind a Limit, Allow answers with the Deny, Fail, ResetDelta and IETF of the innermost
// Limit's Config, even if that Limit skipped. Exception: if the outer Limit skipped and the
// inner one has no Deny, Fail or Keep, Allow uses the outer one's. Without
// a Limit, use [Config.Allow] to set them.
func Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) bool {
	return gate.Allow(framework{}, exchange{w, r}, nil, limiter, user, action, cost) == nil
}

// Allow is the function [Allow] with the Deny, Fail, ResetDelta and IETF of cfg. The
// other fields are not used. Behind a Limit, the Limit's ResetDelta and IETF apply instead,
// so that the headers of one response agree.
func (cfg Config) Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) bool {
	lifted := cfg.lift()
	return gate.Allow(framework{}, exchange{w, r}, &lifted, limiter, user, action, cost) == nil
}

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep. Behind several, it returns the decision of the innermost.
func Decision(r *http.Request) (core.Decision, bool) { return gate.Decision[exchange](r) }

// ExposedHeaders returns the headers that a browser must be allowed to read for a script
// of another origin to see its limits. Give them to the CORS middleware, such as
// cors.Options{ExposedHeaders: nethttp.ExposedHeaders()} of rs/cors, and mount that
// outside Limit, so that a refusal has its headers too.
func ExposedHeaders() []string {
	return []string{"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"}
}
