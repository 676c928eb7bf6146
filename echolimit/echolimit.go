// Package echolimit limits Echo v4 routes. For Echo v5 there is package echolimit/echov5.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	e := echo.New()
//	e.Use(middleware.Recover(), auth) // auth does c.Set("user", id)
//	e.POST("/posts/:id/replies", reply,
//		echolimit.Limit(replies, echolimit.Value("user"), echolimit.Action("reply")))
//
// You name the user and the action for every route. [Value] reads the user that a middleware has
// stored in the context. [From] takes a function of package keyfuncs, whose page says which
// function fits which setup. The action is a name, [Action], or the route's template, [Route].
//
// A refused request is answered 429 by the central error handler, which gets the error that the
// limit returns: an *echo.HTTPError whose Message is a [*Problem]. If only the handler knows the
// user or the cost, it calls [Allow]. Mount a limit with e.Use, on a group or on a route, not with
// e.Pre, where no route is known. Package nethttp documents the responses, the fields of [Config],
// the warnings in the log, and where to mount a limit.
//
// Addresses are never taken from c.RealIP(), which by default believes every client's
// X-Forwarded-For. Use echolimit.From(keyfuncs.RemoteIP), or keyfuncs.ForwardedIP with the proxies
// that you trust.
package echolimit

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// The tests of this package are few: go test ./nethttp/gate tests all adapters by one table.

// KeyFunc returns a key: who acts, or what they do. If the request has no key, the error is
// keyfuncs.ErrNoKey. If the key cannot be read, it is keyfuncs.ErrBadKey.
type KeyFunc = func(echo.Context) (string, error)

// From makes a KeyFunc of a keyfuncs.Func. It panics if f is nil, or is keyfuncs.Route: use [Route].
func From(f keyfuncs.Func) KeyFunc { return gate.From(framework{}, f) }

// Value returns a KeyFunc that reads the value that an earlier middleware has stored with
// c.Set: a string or an integer. If there is none, or it is "", the error is
// keyfuncs.ErrNoKey.
func Value(key string) keyfuncs.UserOf[echo.Context] {
	return keyfuncs.Value("the Echo value "+strconv.Quote(key), func(c echo.Context) any { return c.Get(key) })
}

// Action returns a KeyFunc that always returns name.
func Action(name string) keyfuncs.ActionOf[echo.Context] { return gate.Action[echo.Context](name) }

// PerIP makes middleware that limits each address to max requests in any period. All routes that
// one such middleware is mounted on count together. It is [Limit] with a core.SlidingWindow on a
// memorystore that no other limiter has.
//
//	e.POST("/replies", reply, echolimit.PerIP(5, time.Minute))
//
// Behind proxies that send the client's address in X-Forwarded-For or Forwarded, give the prefixes
// of the proxies' addresses:
//
//	e.POST("/replies", reply, echolimit.PerIP(5, time.Minute, netip.MustParsePrefix("10.1.2.0/24")))
//
// The address is that of keyfuncs.ForwardedIP, or without proxies that of keyfuncs.RemoteIP. If
// there is a login (Value) or more than one process (redisstore), use Limit. PerIP panics if max or
// period is out of bounds, or if ForwardedIP does not take a prefix.
func PerIP(max int, period time.Duration, proxies ...netip.Prefix) echo.MiddlewareFunc {
	limiter := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(max, period)))
	return Limit(limiter, From(keyfuncs.ClientIP("echolimit.PerIP", proxies...)), Action("request"))
}

// Limit makes middleware. A request passes if limiter allows its user its action. Limit panics if
// an argument is nil, or if functions of package keyfuncs for user and action are swapped.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[echo.Context], action keyfuncs.ActionOf[echo.Context]) echo.MiddlewareFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does. The fields are those of
// nethttp.Config, for an echo.Context. Deny and Fail return an error, which goes to the central error
// handler. The handlers further in may get a copy of c.Request().
//
// With a FinalCost or OnlyFailures, the Writer of c.Response() and the Body of c.Request() are wrapped. If
// the handler returns an error, both get the status of Echo's own error handler: the Code of an
// *echo.HTTPError that is not wrapped, else 500. If your error handler answers with another status,
// mount a middleware inside that calls c.Error.
type Config gate.Config[echo.Context]

// Limit makes middleware of the configuration. It panics for the reasons of the function [Limit],
// or if fields of cfg exclude each other or are out of bounds.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[echo.Context], action keyfuncs.ActionOf[echo.Context]) echo.MiddlewareFunc {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject of [LimitAll]: a limiter, a user and an action. It panics if functions of
// package keyfuncs for user and action are swapped.
func By(limiter *core.Limiter, user keyfuncs.UserOf[echo.Context], action keyfuncs.ActionOf[echo.Context]) gate.Subject[echo.Context] {
	gate.NotSwapped("echolimit", "user", user, Route)
	return gate.Subject[echo.Context]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware that lets a request pass if all subjects allow it; see nethttp.LimitAll.
func LimitAll(subjects ...gate.Subject[echo.Context]) echo.MiddlewareFunc {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the configuration. Each subject is charged the whole cost.
// Config.Limiter picks the limiter of the first subject only. It is not called for a request without that
// subject's user.
func (cfg Config) LimitAll(subjects ...gate.Subject[echo.Context]) echo.MiddlewareFunc {
	gate.NotEqual("echolimit", subjects)
	g := gate.New(framework{}, gate.Config[echo.Context](cfg), subjects...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return g.Serve(c, next) }
	}
}

// Allow limits an action that only the handler knows; see nethttp.Allow. If the decision is not
// Allowed, Allow has answered, and the handler returns nil. The central error handler has then had
// the error that Limit returns.
//
// If a handler does not use the decision, its action runs although the client was answered 429. What it
// writes is not sent, and the log says so once. Have go vet report it:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/echolimit.Allow ./...
func Allow(c echo.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the Deny, Fail, Headers, SpreadRetryAfter and Forbid of cfg. The
// other fields are not used. Behind a Limit, the Limit's Headers apply instead, even if it has skipped
// the request, so that the headers of one response agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(c echo.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, (*gate.Config[echo.Context])(&cfg), limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a [Config] with
// Keep. If there are several such Configs, it is the decision of the innermost.
func Decision(c echo.Context) (core.Decision, bool) { return gate.Decision[echo.Context](c.Request()) }

// Settle says what the request has cost, for a handler behind a [Config] with Settle; see
// nethttp.Settle. A goroutine that outlives the handler must not use c: call Settle before.
func Settle(c echo.Context, actual int) error { return gate.Settle(framework{}, c, actual) }

// Hold keeps the request's slots of core.InFlight after the handler has returned, until release is called;
// see nethttp.Hold. Call Hold before a goroutine starts, because a goroutine must not use c.
func Hold(c echo.Context) (release func()) { return gate.Hold(c.Request()) }
