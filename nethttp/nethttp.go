package nethttp

// The middleware, Allow and their settings, and at the end what package gate needs to know of net/http.

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// PerIP makes middleware that limits each address to max requests in any period. All routes that
// one such middleware is mounted on count together. It is [Limit] with a core.SlidingWindow on a
// memorystore that no other limiter has.
//
//	mux.Handle("POST /replies", nethttp.PerIP(5, time.Minute)(reply))
//
// Behind proxies that send the client's address in X-Forwarded-For or Forwarded, give the prefixes
// of the proxies' addresses:
//
//	mux.Handle("POST /replies", nethttp.PerIP(5, time.Minute, netip.MustParsePrefix("10.1.2.0/24"))(reply))
//
// The address is that of keyfuncs.ForwardedIP, or without proxies that of keyfuncs.RemoteIP. If
// there is a login (keyfuncs.ContextValue) or more than one process (redisstore), use Limit. PerIP
// panics if max or period is out of bounds, or if ForwardedIP does not take a prefix.
func PerIP(max int, period time.Duration, proxies ...netip.Prefix) func(http.Handler) http.Handler {
	limiter := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(max, period)))
	return Limit(limiter, keyfuncs.ClientIP("nethttp.PerIP", proxies...), keyfuncs.Action("request"))
}

// Limit makes middleware. A request passes if limiter allows its user its action. Limit panics if
// an argument is nil, or if functions of package keyfuncs for user and action are swapped.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[*http.Request], action keyfuncs.ActionOf[*http.Request]) func(http.Handler) http.Handler {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does.
type Config struct {
	// Cost returns what a request costs. If it is nil, a request costs 1. A request that costs 0 is
	// not charged, and is refused only if its user is banned. So if Cost counts the items of a
	// batch, an empty batch is free: return at least 1, or an error. An error that is
	// keyfuncs.ErrNoKey or keyfuncs.ErrBadKey is answered 400. Any other error is answered 500, and
	// so is a negative cost.
	Cost func(*http.Request) (int, error)

	// Limiter picks a limiter for a request, for example by the user's plan. If it is nil or
	// returns nil, the limiter given to Limit decides. An error is answered 500. For a plan without
	// a limit use Skip. If such a plan must count all the same, use the highest max: see package
	// core, "Plans and changed numbers". To change numbers while the program runs, use package
	// plans, or keep the limiter in an atomic.Pointer that this function loads.
	Limiter func(*http.Request) (*core.Limiter, error)

	// Skip lets a request pass without a decision and without headers. For an allow-list of
	// addresses see the example of keyfuncs.ForwardedAddr.
	Skip func(*http.Request) bool

	// CountPreflights charges CORS preflights like any other request. Otherwise they pass
	// uncounted, and any client can send any number of them. OPTIONS with Authorization, a Cookie
	// or a body is no preflight.
	CountPreflights bool

	// Deny answers a refusal. The headers of the limit are set already. Deny writes the
	// Content-Type, the status and the body. If it needs whole seconds, it reads the header
	// Retry-After, because the decision's RetryAfter is not rounded up. If Deny writes nothing, the
	// default answer is sent.
	Deny func(http.ResponseWriter, *http.Request, core.Decision)

	// Fail answers a request that got no decision, in the same way as Deny. The error is a
	// [*gate.Failure], whose Status is that of the default answer. Do not send the error's text to
	// the client: after a panic it contains the stack.
	Fail func(http.ResponseWriter, *http.Request, error)

	// MaxWait is how long a request may wait for its turn instead of being refused. 0 refuses at
	// once. See [core.Limiter.Wait].
	//
	// If the limiter has one limit, and this is a funnel or bucket, requests of this process pass
	// in the order of arrival, and a request that cannot pass within MaxWait is refused at once.
	// Other processes can delay a turn. With any other limiter a waiting request asks again when
	// there may be room.
	//
	// MaxWait must be less than the server's WriteTimeout. It does not cut a call of the store
	// short. If the client disconnects, the request ends, and its turn is given back unless a later
	// turn depends on it. An HTTP/1.1 server notices the disconnection only when the request's body
	// has been read. So a request with a body may wait, and its handler may run, after the client
	// has disconnected.
	MaxWait time.Duration

	// MaxWaiting is the number of requests of this middleware that may wait or be decided at the
	// same time. 0 means 1000. A request beyond that is refused instead of waiting. No user and
	// action can take more than half of the places: a request waits only if more places are free
	// than its user and action have taken.
	MaxWaiting int

	// FinalCost returns the final cost of a request that passed, from the status of its response.
	// The difference to the cost that was charged on entry is refunded, or charged as far as there
	// is room. In this example an action that failed costs nothing:
	//
	//	func(_ *http.Request, status int) int {
	//		if status >= 500 {
	//			return 0
	//		}
	//		return 1
	//	}
	//
	// Nothing is refunded to a client that has left. If it left before the handler had answered
	// with success, status is 499, whatever the handler answers then, unless that is a status of
	// 4xx. So return for 499 what a failure of the client costs. The limiter need not be
	// Refundable. The documentation of the package has the rules, under "Costs known at the end".
	FinalCost func(r *http.Request, status int) int

	// OnlyFailures makes the limits count failures only. It is for attempts that may turn out
	// right, such as logins, codes and coupons. It reports whether a request has failed, from the
	// status of its response:
	//
	//	func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }
	//
	// If a client leaves before the handler has answered with success, which is a status below 400,
	// the request has failed, whatever the function reports. All limiters get [core.OnlyFailures].
	// FinalCost and Settle cannot be set too. The documentation of the package has the rules, under
	// "Only failures".
	OnlyFailures func(r *http.Request, status int) (failed bool)

	// Settle lets the handler call the function [Settle] when it knows what the request has cost.
	// Cost is then the estimate. It is at least 1, because a request that costs 0 cannot be
	// settled. The limiter need not be Refundable. FinalCost and OnlyFailures cannot be set too.
	Settle bool

	// Keep lets the handler read the decision with [Decision].
	Keep bool

	// Headers says which headers show a decision: gate.XRateLimit (the zero value),
	// gate.XRateLimitDelta, gate.IETF, gate.XRateLimitAndIETF or gate.NoHeaders. With each of them
	// a refusal has Retry-After, unless the action can never pass. The IETF's headers are
	// RateLimit-Policy and RateLimit, as in draft 11 of May 2026:
	// https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
	//
	// With core.Divide, RateLimit-Policy shows this replica's share of the binding limit, and all
	// other limits undivided.
	Headers gate.Headers

	// SpreadRetryAfter makes the Retry-After of a refusal longer, by whole seconds and at most a
	// tenth. So clients that were refused together do not all come back in the same second. The
	// workers of one user are spread too. A wait below ten seconds stays exact. If a client asks
	// again early, its Retry-After may name a later time than before, but at most a tenth after the
	// exact one. Other fields of the response agree with Retry-After. The decision that Deny and
	// the handler get stays exact. The seconds do not reveal the user.
	SpreadRetryAfter bool

	// Forbid answers 403 in place of 429 if the limit is core.Nothing: the user's plan does not include the action, or
	// it is switched off. Some clients repeat a request after any 429.
	Forbid bool
}

// Limit makes middleware of the configuration. It panics for the reasons of the function [Limit],
// or if fields of cfg exclude each other or are out of bounds.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[*http.Request], action keyfuncs.ActionOf[*http.Request]) func(http.Handler) http.Handler {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject of [LimitAll]: a limiter, a user and an action. It panics if functions of
// package keyfuncs for user and action are swapped.
func By(limiter *core.Limiter, user keyfuncs.UserOf[*http.Request], action keyfuncs.ActionOf[*http.Request]) gate.Subject[*http.Request] {
	gate.NotSwapped("nethttp", "user", user, keyfuncs.Route)
	gate.NotSwapped("nethttp", "action", action, keyfuncs.RemoteIP, keyfuncs.Everyone)
	return gate.Subject[*http.Request]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware. A request passes if all subjects allow it. If one refuses, no subject
// is charged: see [core.All].
//
//	nethttp.LimitAll(
//		nethttp.By(perUser, user, keyfuncs.Action("post")),
//		nethttp.By(perOrg, org, keyfuncs.Action("org-post")))
//
// If both had the same action, user 7 and organization 7 would share counts and bans.
//
// If the user of a subject is missing, the answer is 400. If the subject is Optional, the other
// subjects decide instead. In this example guests are limited by address, and users by address and
// name:
//
//	nethttp.LimitAll(
//		nethttp.By(perUser, user, keyfuncs.Action("search")).Optional(),
//		nethttp.By(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("search-address")))
//
// The headers show the subject that binds. RateLimit-Policy shows the limits of all subjects that
// decided. LimitAll panics if there are no subjects, if two are equal, if their limiters have
// different stores, or for the reasons of [Limit]. If Config.Limiter picks a limiter of another
// store, the answer is 500.
func LimitAll(subjects ...gate.Subject[*http.Request]) func(http.Handler) http.Handler {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the configuration. Each subject is charged the whole cost.
// Config.Limiter picks the limiter of the first subject only. It is not called for a request without that
// subject's user.
func (cfg Config) LimitAll(subjects ...gate.Subject[*http.Request]) func(http.Handler) http.Handler {
	gate.NotEqual("nethttp", subjects)
	var lifted []gate.Subject[exchange]
	for _, s := range subjects {
		lifted = append(lifted, gate.Subject[exchange]{Limiter: s.Limiter, User: lift(s.User), Action: lift(s.Action), Guests: s.Guests})
	}
	g := gate.New(framework{}, cfg.lift(), lifted...)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("nethttp: the handler to limit is nil")
		}
		serve := func(x exchange) error {
			next.ServeHTTP(x.w, x.r)
			return nil
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = g.Serve(exchange{w, r}, serve) })
	}
}

// Allow limits an action that only the handler knows: by a key in the body, the size of a payload,
// the number of items in a batch. It charges cost and sets the headers as Limit does. If the action
// is refused or cannot be decided, Allow answers the request, and returns a decision that is not
// Allowed. The handler then returns:
//
//	d := nethttp.Allow(w, r, uploads, user, "upload", len(batch.Items))
//	if !d.Allowed {
//		return
//	}
//
// With [core.InFlight], Allow takes a slot, and the handler releases it:
//
//	defer streams.Release(context.WithoutCancel(r.Context()), d)
//
// If a handler ignores the decision, its action runs although the client was answered 429, and what
// it writes follows the answer. The compiler does not notice. go vet does with these flags:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/nethttp.Allow ./...
//
// If there is no decision, because of an error, Allow returns the zero Decision. Call Allow before
// the handler writes. An empty user or action is answered 400, as a missing key is.
//
// Behind a Limit, Allow answers with the Deny, Fail, Headers, SpreadRetryAfter and Forbid of the
// innermost Limit's Config, even if that Limit skipped the request. Without a Limit, use
// [Config.Allow] to set them.
func Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, exchange{w, r}, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the Deny, Fail, Headers, SpreadRetryAfter and Forbid of cfg. The
// other fields are not used. Behind a Limit, the Limit's Headers apply instead, even if it has skipped
// the request, so that the headers of one response agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) core.Decision {
	lifted := cfg.lift()
	return gate.Allow(framework{}, exchange{w, r}, &lifted, limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a [Config] with
// Keep. If there are several such Configs, it is the decision of the innermost.
func Decision(r *http.Request) (core.Decision, bool) { return gate.Decision[exchange](r) }

// Settle replaces the estimate that was charged on entry with what the request has cost, for a
// handler behind a [Config] with Settle. The difference is given back, or charged in full. What
// does not fit is debt of up to one quota, and the user is refused until it is paid off. See
// [core.Limiter.Settle].
//
//	limit := nethttp.Config{Cost: estimate, Settle: true}.Limit(tokens, user, keyfuncs.Action("chat"))
//	...
//	defer func() { err = nethttp.Settle(r, max(estimated, written)) }()
//
// Settle less than the estimate only if you know the cost, for example from the usage that an API
// has reported. A client that disconnects before the answer begins has caused the work too.
//
// Call Settle once, when the cost is known, even if the response has begun or the client has
// disconnected: it does not end with the request's context. A second call does nothing. A request
// that is never settled stays charged with its estimate, so use defer, which also runs after a
// panic. The headers show the decision on entry.
//
// Behind several limits with Settle, it settles all of them. For a request that passed without a
// decision, for example by Skip, it does nothing. r is the handler's request, or one derived from
// it. The error is the store's, or says that no Limit has Settle. Log it, and do not retry.
func Settle(r *http.Request, actual int) error {
	return gate.Settle(framework{}, exchange{r: r}, actual)
}

// Hold keeps the request's slots of [core.InFlight] after the handler has returned, until release
// is called. It is for a handler that takes over the connection (http.Hijacker), or leaves the work
// to a goroutine:
//
//	release := nethttp.Hold(r)
//	go func() {
//		defer release()
//		serve(conn)
//	}()
//
// The slots are renewed until release is called. So a user never has more connections than slots,
// unless the store has no answer for a whole lease. Call Hold before the handler returns. A later
// call keeps nothing, and the log says so. Call release in every case, even if the upgrade fails. A
// second call of release does nothing. If Hold was called several times, the slots are free when
// all of these have been released.
//
// Behind several limits, Hold keeps the slots of all. Without InFlight, or for a request that a
// limit has skipped, it does nothing. r is the handler's request, or one derived from it. Slots
// that [Allow] has taken are not held: the handler releases them.
func Hold(r *http.Request) (release func()) { return gate.Hold(r) }

// ExposedHeaders returns the headers of a limit that a browser hides from a script of another
// origin, unless the server exposes them. Give them to the CORS middleware, such as
// cors.Options{ExposedHeaders: nethttp.ExposedHeaders()} of rs/cors. Mount that outside Limit, so
// that a refusal is exposed too. The list has the headers of every Config.Headers.
func ExposedHeaders() []string { return gate.ExposedHeaders() }

// An exchange is what a handler gets.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

type framework struct{}

func (framework) Name() string                     { return "nethttp" }
func (framework) Request(x exchange) *http.Request { return x.r }
func (framework) Header(x exchange) http.Header    { return x.w.Header() }

func (framework) WithRequest(x exchange, r *http.Request) exchange { return exchange{x.w, r} }

func (framework) Watch(x exchange, answers *gate.Answering) (exchange, gate.Watched) {
	w, answered := gate.Watch(x.w, answers)
	return exchange{w, x.r}, watched(answered)
}

func (framework) Answer(x exchange, p gate.Problem, _ error) error {
	gate.ClearBody(x.w)
	p.Write(x.w, x.r)
	return nil
}

// Finish does nothing, because the handler has its own copy of w.
func (framework) Finish(exchange, error, func() error) {}

type watched func() (status int, begun bool)

func (w watched) Answered() bool           { _, begun := w(); return begun }
func (w watched) Result(error) (int, bool) { return w() }
func (w watched) Restore()                 {}

// lift makes a function of a request one of an exchange.
func lift[T any](f func(*http.Request) (T, error)) func(exchange) (T, error) {
	if f == nil {
		return nil
	}
	return func(x exchange) (T, error) { return f(x.r) }
}

func (cfg Config) lift() gate.Config[exchange] {
	lifted := gate.Config[exchange]{
		Cost: lift(cfg.Cost), Limiter: lift(cfg.Limiter), CountPreflights: cfg.CountPreflights,
		MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, Settle: cfg.Settle,
		Deny: hook(cfg.Deny), Fail: hook(cfg.Fail),
		Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter, Forbid: cfg.Forbid,
	}
	if cfg.Skip != nil {
		lifted.Skip = func(x exchange) bool { return cfg.Skip(x.r) }
	}
	if cfg.FinalCost != nil {
		lifted.FinalCost = func(x exchange, status int) int { return cfg.FinalCost(x.r, status) }
	}
	if cfg.OnlyFailures != nil {
		lifted.OnlyFailures = func(x exchange, status int) bool { return cfg.OnlyFailures(x.r, status) }
	}
	return lifted
}

// hook makes a Deny or a Fail one of an exchange.
func hook[T any](f func(http.ResponseWriter, *http.Request, T)) func(exchange, T) error {
	if f == nil {
		return nil
	}
	return func(x exchange, v T) error { f(x.w, x.r, v); return nil }
}
