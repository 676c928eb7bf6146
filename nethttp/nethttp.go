package nethttp

// This file has the middleware, Allow and Config. Its end adapts net/http to package gate.

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// PerIP makes middleware that limits each client address to max requests in any interval of length
// period. All IPv6 addresses of a /64 count as one. If you mount the result of one call on several
// routes, their requests count together. PerIP is [Limit] with a core.SlidingWindow and a new
// memorystore.
//
//	mux.Handle("POST /replies", nethttp.PerIP(5, time.Minute)(reply))
//
// If proxies send the client's address in X-Forwarded-For or Forwarded, pass the prefixes of the
// proxies' addresses:
//
//	mux.Handle("POST /replies", nethttp.PerIP(5, time.Minute, netip.MustParsePrefix("10.1.2.0/24"))(reply))
//
// keyfuncs.ForwardedIP then reads the address. Without prefixes keyfuncs.RemoteIP reads it. Use
// Limit instead if users log in (keyfuncs.ContextValue), or if several processes share a limit
// (redisstore). PerIP panics if max or period is out of bounds, or if keyfuncs.ForwardedIP panics
// for a prefix.
func PerIP(max int, period time.Duration, proxies ...netip.Prefix) func(http.Handler) http.Handler {
	limiter := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(max, period)))
	return Limit(limiter, keyfuncs.ClientIP("nethttp.PerIP", proxies...), keyfuncs.Action("request"))
}

// Limit makes middleware. A request passes if limiter allows the action to the user. Limit panics
// if an argument is nil, or if core.New did not make limiter. It also panics if user is
// keyfuncs.Route, or if action is keyfuncs.RemoteIP or keyfuncs.Everyone: then the caller
// has swapped user and action.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[*http.Request], action keyfuncs.ActionOf[*http.Request]) func(http.Handler) http.Handler {
	return Config{}.Limit(limiter, user, action)
}

// Config has the settings of middleware. A zero Config makes the same middleware as the function
// [Limit].
type Config struct {
	// Cost returns what a request costs. If Cost is nil, a request costs 1.
	//
	// A request that costs 0 is not charged, and is refused only if its user is banned. So if Cost
	// counts the items of a batch, an empty batch is free. To charge an empty batch, return at
	// least 1, or an error.
	//
	// If the error is keyfuncs.ErrNoKey or keyfuncs.ErrBadKey, the answer is 400. If there is any
	// other error, or the cost is negative, the answer is 500.
	Cost func(*http.Request) (int, error)

	// Limiter picks a limiter for a request, for example by the user's plan. If Limiter is nil or
	// returns nil, the limiter that was given to Limit decides. If it returns an error, the answer
	// is 500.
	//
	// For a plan without a limit use Skip. If the requests of such a plan must be counted too, pick
	// a limiter with the highest max: see package core, "Plans and changed numbers". To change
	// numbers while the program runs, use package plans, or keep the limiter in an atomic.Pointer
	// that the function Limiter loads.
	Limiter func(*http.Request) (*core.Limiter, error)

	// If Skip returns true, the request passes without a decision, and this limit sets no headers.
	// For an allow-list of addresses see the example of keyfuncs.ForwardedAddr.
	Skip func(*http.Request) bool

	// If CountPreflights is set, CORS preflights are charged like other requests. Otherwise they
	// pass uncounted, and any client can send any number of them. An OPTIONS request with
	// Authorization, a Cookie or a body is not a preflight.
	CountPreflights bool

	// Deny answers a refused request. The limit has already set the rate limit headers. Deny writes
	// the Content-Type, the status and the body. If Deny writes nothing, the default answer is
	// sent. For the wait in whole seconds read the response's header Retry-After, because the
	// decision's RetryAfter is not rounded.
	Deny func(http.ResponseWriter, *http.Request, core.Decision)

	// Fail answers a request that got no decision, as Deny answers a refused one. The error is a
	// [*gate.Failure], whose Status is the status of the default answer. Do not send the error's
	// text to the client: after a panic it contains the stack.
	Fail func(http.ResponseWriter, *http.Request, error)

	// MaxWait is the longest time that a request may wait for its turn instead of being refused. If
	// MaxWait is 0, no request waits. See [core.Limiter.Wait].
	//
	// If the limiter has only one limit, and it is a funnel or bucket, the requests of a user and
	// action that wait in this process pass in the order of arrival. A request that cannot pass
	// within MaxWait is refused at once. Requests to other processes can delay the turn of a
	// waiting request. With any other limiter, or with several subjects, a waiting request asks
	// again when there may be room.
	//
	// MaxWait must be less than the server's WriteTimeout. MaxWait does not shorten the time that
	// the store may take to answer.
	//
	// If the client disconnects, its request stops waiting. The turn is given back, unless a later
	// turn depends on it. An HTTP/1.1 server notices that the client has disconnected only after it
	// has read the request's body. So a request with a body may wait, and its handler may run,
	// although the client is gone.
	MaxWait time.Duration

	// MaxWaiting is the number of places in this middleware for requests that wait or are being
	// decided, if MaxWait is set. If MaxWaiting is 0, the number is 1000. A request takes a place
	// only if more places are free than its user and action have taken already. A request without a
	// place does not wait: it passes or is refused at once. So one user and action take at most
	// half of the places, rounded up.
	MaxWaiting int

	// FinalCost returns what a request that passed has cost in the end. It gets the status of the
	// response. If the final cost is lower than the cost charged on entry, the difference is
	// refunded. If it is higher, the difference is charged as far as there is room. In this example
	// a request that failed costs nothing:
	//
	//	func(_ *http.Request, status int) int {
	//		if status >= 500 {
	//			return 0
	//		}
	//		return 1
	//	}
	//
	// If the client has left, nothing is refunded. FinalCost then gets the status 499, except in two
	// cases, in which it gets the handler's status: the handler answers 4xx, or it had answered with
	// a status below 400 before the client left. For 499, return what a request costs whose client
	// left before a success.
	//
	// The limiter does not need core.Refundable. The documentation of the package has all rules,
	// under "Costs known at the end".
	FinalCost func(r *http.Request, status int) int

	// OnlyFailures makes the limits count only failed requests. It is for attempts that may turn
	// out right, such as logins, codes and coupons. The function reports whether a request has
	// failed, from the status of its response:
	//
	//	func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }
	//
	// If a client leaves before the handler has answered with success, which is a status below 400,
	// the request has failed, whatever the function reports.
	//
	// All limiters of the middleware get [core.OnlyFailures], except core.Nothing. If OnlyFailures
	// is set, FinalCost and Settle must not be set. The documentation of the package has all rules,
	// under "Only failures".
	OnlyFailures func(r *http.Request, status int) (failed bool)

	// If Settle is set, the handler can call the function [Settle] when it knows what the request
	// has cost. Cost then returns an estimate. The estimate must be at least 1, because a request
	// that costs 0 cannot be settled. The limiter does not need core.Refundable. If Settle is set,
	// FinalCost and OnlyFailures must not be set.
	Settle bool

	// If Keep is set, the handler can read the decision with the function [Decision].
	Keep bool

	// Headers selects the headers that show a decision:
	//
	//   - gate.XRateLimit, the zero value
	//   - gate.XRateLimitDelta
	//   - gate.IETF: RateLimit-Policy and RateLimit, as in [draft 11] of May 2026
	//   - gate.XRateLimitAndIETF
	//   - gate.NoHeaders
	//
	// With each of these values, the answer to a refused request has Retry-After, unless the action
	// can never pass.
	//
	// With core.Divide, RateLimit-Policy shows for the binding limit the share that this replica
	// has. For the other limits it shows the undivided quotas.
	//
	// [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11
	Headers gate.Headers

	// SpreadRetryAfter makes the Retry-After of a refused response longer, by whole seconds and at
	// most by a tenth. So clients that were refused together do not all come back in the same
	// second. The clients of one user are spread too. A wait below ten seconds stays exact.
	//
	// If a client asks again early, its new Retry-After may name a later time than before, but at
	// most a tenth of the wait later than the exact time. X-RateLimit-Reset, RateLimit and the
	// problem agree with Retry-After. The decision that Deny and the handler get stays exact. The
	// added seconds do not reveal the user.
	SpreadRetryAfter bool

	// If Forbid is set, a refusal by core.Nothing is answered 403 instead of 429. Use Forbid
	// because some clients repeat a request after any 429. core.Nothing means that a plan does not
	// include the action, or that the action is switched off.
	Forbid bool
}

// Limit makes middleware with the settings of cfg. It panics in the same cases as the function
// [Limit]. It also panics if two fields of cfg exclude each other, if a field is out of bounds, or
// if the limiter or its store does not support a field that is set, such as OnlyFailures.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[*http.Request], action keyfuncs.ActionOf[*http.Request]) func(http.Handler) http.Handler {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject for [LimitAll] from a limiter, a user and an action. It panics if user is
// keyfuncs.Route, or if action is keyfuncs.RemoteIP or keyfuncs.Everyone: then the caller
// has swapped user and action.
func By(limiter *core.Limiter, user keyfuncs.UserOf[*http.Request], action keyfuncs.ActionOf[*http.Request]) gate.Subject[*http.Request] {
	gate.NotSwapped("nethttp", "user", user, keyfuncs.Route)
	gate.NotSwapped("nethttp", "action", action, keyfuncs.RemoteIP, keyfuncs.Everyone)
	return gate.Subject[*http.Request]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware with several subjects. [By] makes a subject. A request passes if the
// limiters of all subjects allow it. If one refuses, none is charged: see [core.All].
//
//	nethttp.LimitAll(
//		nethttp.By(perUser, user, keyfuncs.Action("post")),
//		nethttp.By(perOrg, org, keyfuncs.Action("org-post")))
//
// The actions differ here, because otherwise user 7 and organization 7 would share counts and bans.
//
// If a request has no user for a subject, the answer is 400. If the subject is Optional, the other
// subjects decide instead. In this example guests are limited by address, and users by address and
// by name:
//
//	nethttp.LimitAll(
//		nethttp.By(perUser, user, keyfuncs.Action("search")).Optional(),
//		nethttp.By(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("search-address")))
//
// The headers show the subject that binds. RateLimit-Policy shows the limits of all subjects that
// decided.
//
// LimitAll panics if there are no subjects, if two subjects are equal, if their limiters have
// different stores, or for the reasons of [Config.Limit]. If Config.Limiter picks a limiter of
// another store, the answer is 500.
func LimitAll(subjects ...gate.Subject[*http.Request]) func(http.Handler) http.Handler {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the settings of cfg. Each subject that decides is
// charged the whole cost. Config.Limiter picks a limiter only for the first subject. If a request
// has no user for the first subject, Config.Limiter is not called.
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

// Allow limits an action for a handler. Use Allow if only the handler knows the user, the action or
// the cost, such as the number of items in a batch. Allow charges the argument cost, and sets the
// headers as Limit does. If the action is refused, or if there is no decision because of an error,
// Allow answers the request, and returns a Decision that is not Allowed. The handler must then
// return:
//
//	d := nethttp.Allow(w, r, uploads, user, "upload", len(batch.Items))
//	if !d.Allowed {
//		return
//	}
//
// Call Allow before the handler writes the response. If the user or the action is empty, the answer
// is 400. If there is an error, Allow returns the zero Decision.
//
// With [core.InFlight], Allow takes a slot, and the handler must release the slot:
//
//	defer streams.Release(context.WithoutCancel(r.Context()), d)
//
// If a handler ignores a decision that is not Allowed, its action runs although the client got an
// error such as 429. What the handler writes follows that answer. The compiler does not notice this
// mistake. With these flags, go vet reports a call whose decision is not used:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/nethttp.Allow ./...
//
// Behind a Limit, Allow answers with the Deny, Fail, Headers, SpreadRetryAfter and Forbid of the
// innermost Limit's Config, even if that Limit skipped the request. Without a Limit, use
// [Config.Allow] to set these fields.
func Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, exchange{w, r}, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the fields Deny, Fail, Headers, SpreadRetryAfter and Forbid of
// cfg. It does not use the other fields. Behind a Limit, the field Headers of the Limit's Config
// replaces cfg.Headers, even if the Limit has skipped the request. So the headers of one response
// agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(w http.ResponseWriter, r *http.Request, limiter *core.Limiter, user, action string, cost int) core.Decision {
	lifted := cfg.lift()
	return gate.Allow(framework{}, exchange{w, r}, &lifted, limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a Limit whose
// [Config] sets Keep. If several such Limits surround the handler, Decision returns the decision of
// the innermost one. If no such Limit has decided the request, Decision returns false.
func Decision(r *http.Request) (core.Decision, bool) { return gate.Decision[exchange](r) }

// Settle replaces the estimate that was charged on entry with the request's cost, the argument
// actual. It is for a handler behind a Limit whose [Config] sets Settle. If actual is less than the
// estimate, the difference is given back. If actual is more, the difference is charged, even if the
// limit has no room for it. What exceeds the limit is a debt of at most one quota, and the user is
// refused until enough of it is paid off. [core.Limiter.Settle] says how each kind of limit pays
// off a debt.
//
//	limit := nethttp.Config{Cost: estimate, Settle: true}.Limit(tokens, user, keyfuncs.Action("chat"))
//	...
//	defer func() { err = nethttp.Settle(r, max(estimated, written)) }()
//
// Settle less than the estimate only if you know the cost, for example from the usage that an API
// has reported. If a client disconnects before the answer begins, its request has cost work all the
// same.
//
// Call Settle once, when the cost is known. Settle works after the response has begun and after the
// client has disconnected. A second call does nothing. A request that is never settled stays
// charged with its estimate. So use defer, which also runs after a panic. The headers show the
// decision on entry.
//
// If several Limits with Settle surround the handler, the call settles the charges of all of them.
// If the request passed without a decision, for example by Skip, Settle does nothing. r is the
// handler's request, or a request derived from it. The error is that of core.Limiter.Settle, or
// says that no Limit around the handler has Settle. Log the error, and do not call Settle again.
func Settle(r *http.Request, actual int) error {
	return gate.Settle(framework{}, exchange{r: r}, actual)
}

// Hold keeps the request's slots of [core.InFlight]. The handler may then return, and the slots
// stay taken until release is called. Hold is for a handler that takes over the connection
// (http.Hijacker), or that leaves the work to a goroutine:
//
//	release := nethttp.Hold(r)
//	go func() {
//		defer release()
//		serve(conn)
//	}()
//
// The slots are renewed until release is called. So a user has no more connections than slots,
// unless the slots cannot be renewed for a whole lease, or the store loses them.
//
// Call Hold before the handler returns. A later call keeps no slot, and is logged with the code
// hold-too-late. Call release in every case, even if the upgrade of the connection fails. A second
// call of release does nothing. If Hold was called several times, the slots stay taken until every
// release has been called.
//
// If several Limits surround the handler, Hold keeps the slots of all of them. Hold also keeps the
// slots that [core.OnlyFailures] takes. If the request has no slots, Hold does nothing. r is the
// handler's request, or a request derived from it. Hold does not keep slots that [Allow] has taken.
// The handler must release those itself.
func Hold(r *http.Request) (release func()) { return gate.Hold(r) }

// ExposedHeaders returns the names of the headers that a limit sets and that a browser hides from
// scripts of other origins, unless the server exposes them. Give the list to the CORS middleware,
// such as cors.Options{ExposedHeaders: nethttp.ExposedHeaders()} of rs/cors. Mount the CORS
// middleware outside of Limit, so that the headers of a refused response are exposed too. The list
// has the headers of all values of Config.Headers.
func ExposedHeaders() []string { return gate.ExposedHeaders() }

// An exchange is a request and its response, as a handler gets them.
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

// Finish does nothing, because it cannot replace the handler's variable w.
func (framework) Finish(exchange, error, func() error) {}

type watched func() (status int, begun bool)

func (w watched) Answered() bool           { _, begun := w(); return begun }
func (w watched) Result(error) (int, bool) { return w() }
func (w watched) Restore()                 {}

// lift makes a function of a request a function of an exchange.
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

// hook makes a Deny or a Fail a function of an exchange.
func hook[T any](f func(http.ResponseWriter, *http.Request, T)) func(exchange, T) error {
	if f == nil {
		return nil
	}
	return func(x exchange, v T) error { f(x.w, x.r, v); return nil }
}
