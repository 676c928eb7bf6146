// Package echolimit limits Echo v5 routes. It has the same names as the package for Echo v4.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	e := echo.New()
//	e.Use(middleware.Recover(), auth) // auth does c.Set("user", id)
//	e.POST("/posts/:id/replies", reply,
//		echolimit.Limit(replies, echolimit.Value("user"), echolimit.Action("reply")))
//
// You name the user and the action for every route. [Value] reads the user that an earlier
// middleware has stored in the context. [From] adapts a function of package keyfuncs, whose
// documentation says when to use which function. The action is a fixed name, [Action], or the
// route's template, [Route].
//
// The error of a refusal goes to the central error handler, which by default answers 429. The error
// is a [*Problem]. If only the handler knows the user or the cost, it calls [Allow].
//
// Mount a limit with e.Use, on a group or on a route. Do not mount it with e.Pre, because Echo has
// not found the route then.
//
// Package nethttp documents the responses, the fields of [Config], the warnings in the log, and
// where to mount a limit.
//
// This package never takes an address from c.RealIP(), which by default believes the
// X-Forwarded-For of every client. Use echolimit.From(keyfuncs.RemoteIP). Behind proxies, use
// keyfuncs.ForwardedIP with the proxies that you trust.
package echolimit

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// The tests of this package are few: go test ./nethttp/gate tests all adapters by one table.

// A KeyFunc returns a key of a request: the user who acts, or the action. If the request has no
// key, the error is keyfuncs.ErrNoKey. If the key cannot be read, the error is keyfuncs.ErrBadKey.
// [Limit] answers 400 for these two errors, and 500 for any other error.
type KeyFunc = func(*echo.Context) (string, error)

// From returns a KeyFunc that calls f with the *http.Request. It panics if f is nil. It also panics
// if f is keyfuncs.Route, which does not know the routes of Echo. Use [Route] instead.
func From(f keyfuncs.Func) KeyFunc { return gate.From(framework{}, f) }

// Value returns a KeyFunc that reads a value from the context. An earlier middleware has stored the
// value, a string or an integer, with c.Set. If the value is missing, nil or "", the error is
// keyfuncs.ErrNoKey. For a value of another type, [Limit] answers 500.
func Value(key string) keyfuncs.UserOf[*echo.Context] {
	return keyfuncs.Value("the Echo value "+strconv.Quote(key), func(c *echo.Context) any { return c.Get(key) })
}

// Action returns a KeyFunc that returns name for every request. It panics if name is empty.
func Action(name string) keyfuncs.ActionOf[*echo.Context] { return gate.Action[*echo.Context](name) }

// PerIP makes middleware that limits each client address to max requests in any interval of length
// period. All IPv6 addresses of a /64 count as one. If you mount the result of one call on several
// routes, their requests count together. PerIP is [Limit] with a core.SlidingWindow and a new
// memorystore.
//
//	e.POST("/replies", reply, echolimit.PerIP(5, time.Minute))
//
// If proxies send the client's address in X-Forwarded-For or Forwarded, pass the prefixes of the
// proxies' addresses:
//
//	e.POST("/replies", reply, echolimit.PerIP(5, time.Minute, netip.MustParsePrefix("10.1.2.0/24")))
//
// keyfuncs.ForwardedIP then reads the address. Without prefixes keyfuncs.RemoteIP reads it. Use
// Limit instead if users log in (Value), or if several processes share a limit (redisstore). PerIP
// panics if max or period is out of bounds, or if keyfuncs.ForwardedIP panics for a prefix.
func PerIP(max int, period time.Duration, proxies ...netip.Prefix) echo.MiddlewareFunc {
	limiter := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(max, period)))
	return Limit(limiter, From(keyfuncs.ClientIP("echolimit.PerIP", proxies...)), Action("request"))
}

// Limit makes middleware. A request passes if limiter allows the action to the user. Limit panics
// if an argument is nil, or if core.New did not make limiter. It also panics if user is [Route]: in
// that case user and action are swapped.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[*echo.Context], action keyfuncs.ActionOf[*echo.Context]) echo.MiddlewareFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config has the settings of middleware. A zero Config makes the same middleware as the function
// [Limit]. The fields are those of nethttp.Config, for an *echo.Context. The errors of Deny and
// Fail go to the central error handler. Behind the limit, c.Request() may be a copy of the request.
//
// If FinalCost or OnlyFailures is set, the limit wraps the Body of c.Request() if there is one.
// While the handler runs, the limit also wraps the ResponseWriter of Echo's own Response. If
// another middleware has replaced c.Response(), the limit wraps the replacement instead.
//
// If the handler returns an error before the response has begun, FinalCost and OnlyFailures get the
// status with which Echo's own error handler answers this error. It is the result of
// echo.StatusCode, or 500 if the result is 0. If your error handler answers with another status,
// mount a middleware inside of the limit that answers the error itself.
type Config gate.Config[*echo.Context]

// Limit makes middleware with the settings of cfg. It panics in the same cases as the function
// [Limit]. It also panics if two fields of cfg exclude each other, if a field is out of bounds, or
// if the limiter or its store does not support a field that is set, such as OnlyFailures.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[*echo.Context], action keyfuncs.ActionOf[*echo.Context]) echo.MiddlewareFunc {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject for [LimitAll] from a limiter, a user and an action. It panics if user is
// [Route]: user and action are swapped then.
func By(limiter *core.Limiter, user keyfuncs.UserOf[*echo.Context], action keyfuncs.ActionOf[*echo.Context]) gate.Subject[*echo.Context] {
	gate.NotSwapped("echolimit", "user", user, Route)
	return gate.Subject[*echo.Context]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware with several subjects. [By] makes a subject. A request passes if the
// limiters of all subjects allow it. nethttp.LimitAll says more, for example when LimitAll panics.
func LimitAll(subjects ...gate.Subject[*echo.Context]) echo.MiddlewareFunc {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the settings of cfg. Each subject that decides is
// charged the whole cost. Config.Limiter picks a limiter only for the first subject. If a request
// has no user for the first subject, Config.Limiter is not called.
func (cfg Config) LimitAll(subjects ...gate.Subject[*echo.Context]) echo.MiddlewareFunc {
	gate.NotEqual("echolimit", subjects)
	g := gate.New(framework{}, gate.Config[*echo.Context](cfg), subjects...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return g.Serve(c, next) }
	}
}

// Allow limits an action for a handler: see nethttp.Allow. If the decision is not Allowed, Allow
// has answered the request. The handler must then return nil. If the answer is an error, as it is
// by default, Allow has passed the error to the central error handler.
//
// If a handler ignores a decision that is not Allowed, its action runs although the client got an
// error such as 429. What the handler writes is not sent, and the log says so once. With these
// flags, go vet reports a call whose decision is not used:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/echolimit/echov5.Allow ./...
func Allow(c *echo.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the fields Deny, Fail, Headers, SpreadRetryAfter and Forbid of
// cfg. It does not use the other fields. Behind a Limit, the field Headers of the Limit's Config
// replaces cfg.Headers, even if the Limit has skipped the request. So the headers of one response
// agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(c *echo.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, (*gate.Config[*echo.Context])(&cfg), limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a Limit whose
// [Config] sets Keep. If several such Limits surround the handler, Decision returns the decision of
// the innermost one. If no such Limit has decided the request, Decision returns false.
func Decision(c *echo.Context) (core.Decision, bool) {
	return gate.Decision[*echo.Context](c.Request())
}

// Settle replaces the estimate that was charged on entry with the request's cost. It is for a
// handler behind a Limit whose [Config] sets Settle: see nethttp.Settle. A goroutine that outlives
// the handler must not use c, so call Settle in the handler.
func Settle(c *echo.Context, actual int) error { return gate.Settle(framework{}, c, actual) }

// Hold keeps the request's slots of core.InFlight. The handler may then return, and the slots stay
// taken until release is called: see nethttp.Hold. A goroutine that outlives the handler must not
// use c, so call Hold before the goroutine starts.
func Hold(c *echo.Context) (release func()) { return gate.Hold(c.Request()) }
