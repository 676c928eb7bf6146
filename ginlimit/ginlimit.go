// Package ginlimit limits Gin routes.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	r := gin.New()
//	r.Use(gin.Recovery(), auth) // auth does c.Set("user", id)
//	r.POST("/posts/:id/replies",
//		ginlimit.Limit(replies, ginlimit.Value("user"), ginlimit.Action("reply")), reply)
//
// You name the user and the action for every route. [Value] reads the user that an earlier
// middleware has stored in the context. [From] adapts a function of package keyfuncs, whose
// documentation says when to use which function. The action is a fixed name, [Action], or the
// route's template, [Route].
//
// A refused request is answered 429, and its chain is aborted. If only the handler knows the user
// or the cost, it calls [Allow].
//
// Package nethttp documents the responses, the fields of [Config], the warnings in the log, and
// where to mount a limit.
//
// This package never takes an address from c.ClientIP(), which by default believes the
// X-Forwarded-For of every client. Use ginlimit.From(keyfuncs.RemoteIP). Behind proxies, use
// keyfuncs.ForwardedIP with the proxies that you trust.
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

// A KeyFunc returns a key of a request: the user who acts, or the action. If the request has no
// key, the error is keyfuncs.ErrNoKey. If the key cannot be read, the error is keyfuncs.ErrBadKey.
// Both are answered 400, and any other error is answered 500.
type KeyFunc = func(*gin.Context) (string, error)

// From makes a KeyFunc of f. It panics if f is nil, or if f is keyfuncs.Route, which does not know
// the routes of Gin: use [Route].
func From(f keyfuncs.Func) KeyFunc { return gate.From(framework{}, f) }

// Value returns a KeyFunc that reads a value from the context. An earlier middleware has stored the
// value, a string or an integer, with c.Set. If there is no value, or it is "", the error is
// keyfuncs.ErrNoKey. A value of another type is answered 500.
func Value(key string) keyfuncs.UserOf[*gin.Context] {
	return keyfuncs.Value("the Gin value "+strconv.Quote(key), func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Action returns a KeyFunc that returns name for every request. It panics if name is empty.
func Action(name string) keyfuncs.ActionOf[*gin.Context] { return gate.Action[*gin.Context](name) }

// Route is a KeyFunc that returns the method and the route's template, such as "POST
// /posts/:id/likes". It returns GET for HEAD, and OTHER for unusual methods such as PROPFIND. All
// requests that no route matched share the action "unmatched".
//
// Gin's Any makes a route for each method, and so several actions with separate quotas. To limit
// them together, use [Action].
func Route(c *gin.Context) (string, error) {
	return keyfuncs.RouteTemplate(c.Request, c.FullPath()), nil
}

// PerIP makes middleware that limits each client address to max requests in any interval of length
// period. All IPv6 addresses of a /64 count as one. If you mount one such middleware on several
// routes, their requests count together. PerIP is [Limit] with a core.SlidingWindow, on a
// memorystore of its own.
//
//	r.POST("/replies", ginlimit.PerIP(5, time.Minute), reply)
//
// If proxies send the client's address in X-Forwarded-For or Forwarded, pass the prefixes of the
// proxies' addresses:
//
//	r.POST("/replies", ginlimit.PerIP(5, time.Minute, netip.MustParsePrefix("10.1.2.0/24")), reply)
//
// keyfuncs.ForwardedIP then reads the address. Without prefixes keyfuncs.RemoteIP reads it. Use
// Limit instead if users log in (Value), or if several processes share a limit (redisstore). PerIP
// panics if max or period is out of bounds, or if keyfuncs.ForwardedIP panics for a prefix.
func PerIP(max int, period time.Duration, proxies ...netip.Prefix) gin.HandlerFunc {
	limiter := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(max, period)))
	return Limit(limiter, From(keyfuncs.ClientIP("ginlimit.PerIP", proxies...)), Action("request"))
}

// Limit makes middleware. A request passes if limiter allows the action to the user. Limit panics
// if an argument is nil, or if core.New did not make limiter. It also panics if user is [Route]:
// user and action are swapped then.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gin.HandlerFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config has the settings of middleware. The middleware of a zero Config is that of the function
// [Limit]. The fields are those of nethttp.Config.
//
// The handlers behind the limit may get a copy of the request in c.Request. With a FinalCost or
// OnlyFailures, c.Writer and the Body of c.Request are wrapped.
//
// FinalCost and OnlyFailures get the status that was sent. If no status was sent, they get the last
// one that was set on c.Writer when the handlers behind the limit have returned. If that is the
// status of early hints, they get 200.
type Config struct {
	Cost             func(*gin.Context) (int, error)
	Limiter          func(*gin.Context) (*core.Limiter, error)
	Skip             func(*gin.Context) bool
	CountPreflights  bool
	MaxWait          time.Duration
	MaxWaiting       int
	FinalCost        func(c *gin.Context, status int) int
	OnlyFailures     func(c *gin.Context, status int) bool
	Settle           bool                              // see the function Settle
	Deny             func(*gin.Context, core.Decision) // is called after c.Abort; if it flushes early hints, the response ends with them
	Fail             func(*gin.Context, error)         // is called after c.Abort; the error is a *gate.Failure
	Keep             bool                              // see the function Decision
	Headers          gate.Headers
	SpreadRetryAfter bool
	Forbid           bool
}

// Limit makes middleware with the settings of cfg. It panics for the reasons of the function
// [Limit]. It also panics if two fields of cfg exclude each other, if a field is out of bounds, or
// if the limiter's store cannot do what cfg needs, such as OnlyFailures.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gin.HandlerFunc {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject of [LimitAll] from a limiter, a user and an action. It panics if user is
// [Route]: user and action are swapped then.
func By(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gate.Subject[*gin.Context] {
	gate.NotSwapped("ginlimit", "user", user, Route)
	return gate.Subject[*gin.Context]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware that asks several subjects about each request. The request passes if
// all of them allow it. nethttp.LimitAll says more, such as when LimitAll panics.
func LimitAll(subjects ...gate.Subject[*gin.Context]) gin.HandlerFunc {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the settings of cfg. Each subject is charged the whole
// cost. Config.Limiter picks a limiter only for the first subject. It is not called for a request
// that has no user for that subject.
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

// Allow limits an action for a handler: see nethttp.Allow. If the decision is not Allowed, Allow
// has answered the request and aborted the chain, and the handler returns.
//
// If a handler ignores the decision, its action runs although the client was answered 429. go vet
// reports this mistake with these flags:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/ginlimit.Allow ./...
func Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the Deny, Fail, Headers, SpreadRetryAfter and Forbid of cfg.
// It does not use the other fields. Behind a Limit, the Headers of the Limit's Config apply instead
// of those of cfg, even if the Limit has skipped the request, so that the headers of one response
// agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	lifted := cfg.lift()
	return gate.Allow(framework{}, c, &lifted, limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a Limit whose
// [Config] has Keep. If several such Limits surround the handler, Decision returns the decision of
// the innermost one. If no such Limit has decided the request, Decision returns false.
func Decision(c *gin.Context) (core.Decision, bool) { return gate.Decision[*gin.Context](c.Request) }

// Settle says what the request has cost, for a handler behind a Limit whose [Config] has Settle:
// see nethttp.Settle. For a goroutine that outlives the handler, make copied := c.Copy() before the
// goroutine starts, and call Settle(copied, actual) in the goroutine.
func Settle(c *gin.Context, actual int) error { return gate.Settle(framework{}, c, actual) }

// Hold keeps the request's slots of core.InFlight taken after the handler has returned, until
// release is called: see nethttp.Hold. A goroutine must not use c, so call Hold before the
// goroutine starts.
func Hold(c *gin.Context) (release func()) { return gate.Hold(c.Request) }
