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
// By default a refused request is answered 429. The chain of its handlers is aborted. If only the
// handler knows the user or the cost, it calls [Allow].
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
// [Limit] answers 400 for these two errors, and 500 for any other error.
type KeyFunc = func(*gin.Context) (string, error)

// From returns a KeyFunc that calls f with the *http.Request. It panics if f is nil. It also panics
// if f is keyfuncs.Route, which does not know the routes of Gin. Use [Route] instead.
func From(f keyfuncs.Func) KeyFunc { return gate.From(framework{}, f) }

// Value returns a KeyFunc that reads a value from the context. An earlier middleware has stored the
// value, a string or an integer, with c.Set. If the value is missing, nil or "", the error is
// keyfuncs.ErrNoKey. For a value of another type, [Limit] answers 500.
func Value(key string) keyfuncs.UserOf[*gin.Context] {
	return keyfuncs.Value("the Gin value "+strconv.Quote(key), func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Action returns a KeyFunc that returns name for every request. It panics if name is empty.
func Action(name string) keyfuncs.ActionOf[*gin.Context] { return gate.Action[*gin.Context](name) }

// Route is a KeyFunc that returns the method and the route's template, such as "POST
// /posts/:id/likes". HEAD counts as GET, and unusual methods such as PROPFIND count as OTHER. All
// requests that no route matched share the action "unmatched".
//
// Gin's Any makes a route for each method, and so several actions with separate quotas. To limit
// them together, use [Action].
func Route(c *gin.Context) (string, error) {
	return keyfuncs.RouteTemplate(c.Request, c.FullPath()), nil
}

// PerIP makes middleware that limits each client address to max requests in any interval of length
// period. All IPv6 addresses of a /64 count as one. If you mount the result of one call on several
// routes, their requests count together. PerIP is [Limit] with a core.SlidingWindow and a new
// memorystore.
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
// if an argument is nil, or if core.New did not make limiter. It also panics if user is [Route]: in
// that case user and action are swapped.
func Limit(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gin.HandlerFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config has the settings of middleware. A zero Config makes the same middleware as the function
// [Limit]. The fields are those of nethttp.Config, for a *gin.Context.
//
// Behind the limit, c.Request may be a copy of the request. If FinalCost or OnlyFailures is set,
// the limit wraps c.Writer, and the Body of c.Request if there is one.
//
// FinalCost and OnlyFailures get the status that was sent. If the handlers behind the limit return
// before a status is sent, FinalCost and OnlyFailures get the last status that was set on c.Writer.
// The status of early hints counts as 200.
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

// Limit makes middleware with the settings of cfg. It panics in the same cases as the function
// [Limit]. It also panics if two fields of cfg exclude each other, if a field is out of bounds, or
// if the limiter or its store does not support a field that is set, such as OnlyFailures.
func (cfg Config) Limit(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gin.HandlerFunc {
	return cfg.LimitAll(By(limiter, user, action))
}

// By makes a subject for [LimitAll] from a limiter, a user and an action. It panics if user is
// [Route]: user and action are swapped then.
func By(limiter *core.Limiter, user keyfuncs.UserOf[*gin.Context], action keyfuncs.ActionOf[*gin.Context]) gate.Subject[*gin.Context] {
	gate.NotSwapped("ginlimit", "user", user, Route)
	return gate.Subject[*gin.Context]{Limiter: limiter, User: user, Action: action}
}

// LimitAll makes middleware with several subjects. [By] makes a subject. A request passes if the
// limiters of all subjects allow it. nethttp.LimitAll says more, for example when LimitAll panics.
func LimitAll(subjects ...gate.Subject[*gin.Context]) gin.HandlerFunc {
	return Config{}.LimitAll(subjects...)
}

// LimitAll is the function [LimitAll] with the settings of cfg. Each subject that decides is
// charged the whole cost. Config.Limiter picks a limiter only for the first subject. If a request
// has no user for the first subject, Config.Limiter is not called.
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
// has answered the request and aborted the chain of handlers. The handler must then return.
//
// If a handler ignores a decision that is not Allowed, its action runs although the client got an
// error such as 429. With these flags, go vet reports a call whose decision is not used:
//
//	go vet -unusedresult -unusedresult.funcs=github.com/tailcut/tailcut/ginlimit.Allow ./...
func Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	return gate.Allow(framework{}, c, nil, limiter, user, action, cost)
}

// Allow is the function [Allow] with the fields Deny, Fail, Headers, SpreadRetryAfter and Forbid of
// cfg. It does not use the other fields. Behind a Limit, the field Headers of the Limit's Config
// replaces cfg.Headers, even if the Limit has skipped the request. So the headers of one response
// agree. If cfg.Headers is unknown, the answer is 500.
func (cfg Config) Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) core.Decision {
	lifted := cfg.lift()
	return gate.Allow(framework{}, c, &lifted, limiter, user, action, cost)
}

// Decision returns the decision that let the request pass, for a handler behind a Limit whose
// [Config] sets Keep. If several such Limits surround the handler, Decision returns the decision of
// the innermost one. If no such Limit has decided the request, Decision returns false.
func Decision(c *gin.Context) (core.Decision, bool) { return gate.Decision[*gin.Context](c.Request) }

// Settle replaces the estimate that was charged on entry with the request's cost. It is for a
// handler behind a Limit whose [Config] sets Settle: see nethttp.Settle. For a goroutine that
// outlives the handler, make copied := c.Copy() before the goroutine starts, and call
// Settle(copied, actual) in the goroutine.
func Settle(c *gin.Context, actual int) error { return gate.Settle(framework{}, c, actual) }

// Hold keeps the request's slots of core.InFlight. The handler may then return, and the slots stay
// taken until release is called: see nethttp.Hold. A goroutine that outlives the handler must not
// use c, so call Hold before the goroutine starts.
func Hold(c *gin.Context) (release func()) { return gate.Hold(c.Request) }
