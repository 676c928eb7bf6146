// Package ginlimit limits Gin routes.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	r := gin.New()
//	r.Use(gin.Recovery(), auth) // auth does c.Set("user", id)
//	r.POST("/posts/:id/replies",
//		ginlimit.Limit(replies, ginlimit.Value("user"), ginlimit.Action("reply")), reply)
//
// You name the user and the action for every route. [Value] reads the user that a middleware has
// stored in the context. [From] takes a function of package keyfuncs, whose page says which
// function fits which setup. The action is a name, [Action], or the route's template, [Route].
//
// A refused request is answered 429, and its chain is aborted. If only the handler knows the user
// or the cost, it calls [Allow]. Package nethttp documents the responses, the fields of [Config],
// the warnings in the log, and where to mount a limit.
//
// Addresses are never taken from c.ClientIP(), which by default believes every client's
// X-Forwarded-For. Use ginlimit.From(keyfuncs.RemoteIP), or keyfuncs.ForwardedIP with the proxies
// that you trust.
package ginlimit

import (
	"log/slog"
	"net/netip"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// The tests of this package are few: go test ./nethttp/gate tests all adapters by one table.

// KeyFunc returns a key: who acts, or what they do. If the request has no key, the error is
// keyfuncs.ErrNoKey. If the key cannot be read, it is keyfuncs.ErrBadKey.
type KeyFunc = func(*gin.Context) (string, error)

// From makes a KeyFunc of a keyfuncs.Func. It panics if f is nil, or is keyfuncs.Route: use [Route].
func From(f keyfuncs.Func) KeyFunc { return gate.From(framework{}, f) }

// Value returns a KeyFunc that reads the value that an earlier middleware has stored with
// c.Set: a string or an integer. If there is none, or it is "", the error is
// keyfuncs.ErrNoKey.
func Value(key string) keyfuncs.UserOf[*gin.Context] {
	return keyfuncs.Value("the Gin value "+strconv.Quote(key), func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Action returns a KeyFunc that always returns name.
func Action(name string) keyfuncs.ActionOf[*gin.Context] { return gate.Action[*gin.Context](name) }

// Route is a KeyFunc that returns the method (HEAD as GET) and the route's template, such as "POST
// /posts/:id/likes". All requests that no route matched share the action "unmatched". Gin's Any
// makes a route for each method, and each of these routes is an action with its own quota: name the
// action of such a limit with [Action].
func Route(c *gin.Context) (string, error) {
	return keyfuncs.RouteTemplate(c.Request, c.FullPath()), nil
}

// PerIP makes middleware that limits each address to max requests in any period. All routes that
// one such middleware is mounted on count together. It is [Limit] with a core.SlidingWindow on a
// memorystore that no other limiter has.
//
//	r.POST("/replies", ginlimit.PerIP(5, time.Minute), reply)
//
// Behind proxies that send the client's address in X-Forwarded-For or Forwarded, give the prefixes
// of the proxies' addresses:
//
//	r.POST("/replies", ginlimit.PerIP(5, time.Minute, netip.MustParsePrefix("10.1.2.0/24")), reply)
//
// The address is that of keyfuncs.ForwardedIP, or without proxies that of keyfuncs.RemoteIP. If
// there is a login (Value) or more than one process (redisstore), use Limit. PerIP panics if max or
// period is out of bounds, or if ForwardedIP does not take a prefix.
func PerIP(max int, period time.Duration, proxies ...netip.Prefix) gin.HandlerFunc {
	limiter := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(max, period)))
	return Limit(limiter, From(keyfuncs.ClientIP("ginlimit.PerIP", proxies...)), Action("request"))
}

// Limit makes middleware. A request passes if limiter allows its user its action. Limit panics if
// an argument is nil, or if functions of package keyfuncs for user and action are swapped.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gin.HandlerFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does. The fields are those of
// nethttp.Config. Handlers behind the limit may get a copy of c.Request. With a FinalCost or
// OnlyFailures, c.Writer and the Body of c.Request are wrapped. FinalCost and OnlyFailures get the
// status that was sent, or if none was sent, the last one set on c.Writer when the handlers after
// this one have returned. Early hints count as 200.
type Config struct {
	Cost             func(*gin.Context) (int, error)
	Limiter          func(*gin.Context) (*core.Limiter, error)
	Skip             func(*gin.Context) bool
	CountPreflights  bool
	MaxWait          time.Duration
	MaxWaiting       int
	FinalCost        func(c *gin.Context, status int) int
	OnlyFailures     func(c *gin.Context, status int) bool
	Settle           bool                              // see Settle
	Deny             func(*gin.Context, core.Decision) // called after c.Abort; flushing early hints ends the response
	Fail             func(*gin.Context, error)         // as Deny; the error is a *gate.Failure
	Keep             bool                              // see Decision
	Headers          gate.Headers
	SpreadRetryAfter bool
	Forbid           bool
}

// Limit makes middleware of the configuration. It panics for the reasons of the function [Limit],
// or if fields of cfg exclude each other or are out of bounds.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gin.HandlerFunc {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject of [LimitAll]: a limiter, a user and an action. It panics if functions of
// package keyfuncs for user and action are swapped.
func By(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gate.Subject[*gin.Context] {
	gate.NotSwapped("ginlimit", "user", user, Route)
	return gate.Subject[*gin.Context]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware that lets a request pass if all subjects allow it; see nethttp.LimitAll.
func LimitAll(subjects ...gate.Subject[*gin.Context]) gin.HandlerFunc {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the configuration. Each subject is charged the whole cost.
// Config.Limiter picks the limiter of the first subject only. It is not called for a request without that
// subject's user.
func (cfg Config) LimitAll(subjects ...gate.Subject[*gin.Context]) gin.HandlerFunc {
	gate.NotEqual("ginlimit", subjects)
	g := gate.New(framework{}, cfg.lift(), subjects...)
	var late notice.Once
	return func(c *gin.Context) {
		if c.Writer.Written() && final(c.Writer.Status()) && late.Due() {
			slog.Default().Warn("ginlimit: a response was written before its limit decided, so the limit limits nothing; give it before the handler, as in r.POST(path, limit, handler)",
				"code", "after-handler", "route", c.FullPath())
		}
		_ = g.Serve(c, func(c *gin.Context) error { c.Next(); return nil })
	}
}

// Allow limits an action that only the handler knows; see nethttp.Allow. If the decision is not
// Allowed, Allow has answered and aborted the chain, and the handler returns.
//
// If a handler does not use the decision, its action runs although the client was answered 429. Have go
// vet report it:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/ginlimit.Allow ./...
func Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the Deny, Fail, Headers, SpreadRetryAfter and Forbid of cfg. The
// other fields are not used. Behind a Limit, the Limit's Headers apply instead, even if it has skipped
// the request, so that the headers of one response agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	lifted := cfg.lift()
	return gate.Allow(framework{}, c, &lifted, limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a [Config] with
// Keep. If there are several such Configs, it is the decision of the innermost.
func Decision(c *gin.Context) (core.Decision, bool) { return gate.Decision[*gin.Context](c.Request) }

// Settle says what the request has cost, for a handler behind a [Config] with Settle; see
// nethttp.Settle. For a goroutine that outlives the handler, make copied := c.Copy() before it starts, and call
// Settle(copied, actual) in it.
func Settle(c *gin.Context, actual int) error { return gate.Settle(framework{}, c, actual) }

// Hold keeps the request's slots of core.InFlight after the handler has returned, until release is called;
// see nethttp.Hold. Call Hold before a goroutine starts, because a goroutine must not use c.
func Hold(c *gin.Context) (release func()) { return gate.Hold(c.Request) }
