// Package ginlimit limits Gin routes.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	r := gin.New()
//	r.Use(gin.Recovery(), auth) // auth does c.Set("user", id)
//	r.POST("/posts/:id/replies",
//		ginlimit.Limit(replies, ginlimit.Value("user"), ginlimit.Action("reply")), reply)
//
// Package nethttp documents the responses, the warnings and where to mount a limit. A
// refusal aborts the chain.
//
// Addresses are never taken from c.ClientIP(), which by default believes every client's
// X-Forwarded-For. Use ginlimit.From(keyfuncs.RemoteIP), or keyfuncs.ForwardedIP with the
// proxies that you trust.
package ginlimit

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// The tests of this package are few: go test ./nethttp/gate tests all adapters by one table.

// KeyFunc returns a key: who acts, or what they do. If the request has no key, the error is
// keyfuncs.ErrNoKey. If the key cannot be read, it is keyfuncs.ErrBadKey.
type KeyFunc = func(*gin.Context) (string, error)

// From makes a KeyFunc of a keyfuncs.Func. It panics if f is nil or keyfuncs.Route,
// which does not know Gin's routes: use [Route].
func From(f keyfuncs.Func) KeyFunc {
	gate.CheckFunc("ginlimit", f)
	return func(c *gin.Context) (string, error) { return f(c.Request) }
}

// Value returns a KeyFunc that reads the value that an earlier middleware has stored with
// c.Set: a string or an integer. If there is none, or it is "", the error is
// keyfuncs.ErrNoKey.
func Value(key string) KeyFunc {
	return keyfuncs.Value("the Gin value "+strconv.Quote(key), func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Action returns a KeyFunc that always returns name.
func Action(name string) KeyFunc { return From(keyfuncs.Action(name)) }

// Route is a KeyFunc that returns the method (HEAD as GET) and the route's template, such as
// "POST /posts/:id/likes". All requests that no route matched share the action
// "unmatched".
func Route(c *gin.Context) (string, error) {
	return keyfuncs.RouteTemplate(c.Request, c.FullPath()), nil
}

// Limit makes middleware that lets a request pass if limiter allows its user its
// action. It panics if an argument is nil.
func Limit(limiter *core.Limiter, user, action KeyFunc) gin.HandlerFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does. The fields
// are those of nethttp.Config. With a FinalCost, c.Writer and the Body of c.Request are
// wrapped. FinalCost gets the status that was sent, or if none was, the one last set on
// c.Writer when the handlers after this one have returned. Early hints count as 200.
type Config struct {
	Cost            func(*gin.Context) (int, error)
	Limiter         func(*gin.Context) (*core.Limiter, error)
	Skip            func(*gin.Context) bool
	CountPreflights bool
	MaxWait         time.Duration
	MaxWaiting      int
	FinalCost       func(c *gin.Context, status int) int
	Deny            func(*gin.Context, core.Decision) // called after c.Abort; flushing early hints ends the response
	Fail            func(*gin.Context, error)         // as Deny; the error is a *gate.Failure
	Keep            bool                              // see Decision
	ResetDelta      bool
	IETF            bool
}

// Limit makes middleware of the configuration. It panics if an argument is nil.
func (cfg Config) Limit(limiter *core.Limiter, user, action KeyFunc) gin.HandlerFunc {
	g := gate.New("ginlimit", limiter, user, action, gate.Rules[*gin.Context]{
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, CountPreflights: cfg.CountPreflights,
		MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, FinalCost: cfg.FinalCost, Style: cfg.style(),
	})
	marks := cfg.Deny != nil || cfg.Fail != nil
	return func(c *gin.Context) {
		var o gate.Outcome
		if cfg.Keep {
			o.Kept = new(gate.Kept)
		}
		g.Enter(&o, c, c.Request, c.Writer.Header())
		if !o.Pass {
			cfg.answer(c, &o)
			return
		}
		if marks || o.Stacked && around(c) != nil || !o.Decided && (cfg.IETF || cfg.ResetDelta || around(c) != nil) {
			c.Set(configKey{}, &cfg)
		}
		if o.Kept != nil && o.Decided {
			c.Set(decisionKey{}, &o.Kept.Decision)
		}
		if o.FinalCost {
			run(c, g, &o)
		}
	}
}

func run(c *gin.Context, g *gate.Gate[*gin.Context], o *gate.Outcome) {
	w := watch(c)
	defer w.restore(c)
	g.Run(c, c.Request, o, func(r *http.Request) { c.Request = r; c.Next() }, w.answered)
}

// Allow limits an action that only the handler knows; see nethttp.Allow. If it returns
// false, it has answered and aborted the chain, and the handler returns.
func Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) bool {
	if cfg := around(c); cfg != nil {
		return cfg.Allow(c, limiter, user, action, cost)
	}
	return Config{}.Allow(c, limiter, user, action, cost)
}

// Allow is the function [Allow] with the Deny, Fail, ResetDelta and IETF of cfg. The
// other fields are not used. Behind a Limit, the Limit's ResetDelta and IETF apply instead,
// so that the headers of one response agree.
func (cfg Config) Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) bool {
	style := cfg.style()
	if outer := around(c); outer != nil {
		style = outer.style()
	}
	o := gate.Decide("ginlimit", style, c.Request, c.Writer.Header(), limiter, user, action, cost)
	if !o.Pass {
		cfg.answer(c, &o)
	}
	return o.Pass
}

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep. Behind several, it returns the decision of the innermost.
func Decision(c *gin.Context) (core.Decision, bool) {
	v, _ := c.Get(decisionKey{})
	if d, ok := v.(*core.Decision); ok {
		return *d, true
	}
	return core.Decision{}, false
}

func (cfg *Config) style() gate.Style { return gate.Style{ResetDelta: cfg.ResetDelta, IETF: cfg.IETF} }

// answer calls Deny or Fail, and sends the default answer if they write nothing.
func (cfg *Config) answer(c *gin.Context, o *gate.Outcome) {
	c.Abort()
	if !cfg.own(c, o) && !c.Writer.Written() {
		o.Problem().Write(c.Writer, c.Request)
	}
}

// own calls Deny or Fail, and reports whether they have answered.
func (cfg *Config) own(c *gin.Context, o *gate.Outcome) bool {
	if o.Failure != nil && cfg.Fail == nil || o.Failure == nil && cfg.Deny == nil {
		return false
	}
	w := watch(c)
	defer w.restore(c)
	if o.Failure != nil {
		cfg.Fail(c, o.Failure)
	} else {
		cfg.Deny(c, o.Decision)
	}
	return w.taken || w.begun || final(w.status)
}

type configKey struct{}
type decisionKey struct{}

// around returns the configuration of the innermost Limit that has stored it, or nil. c.Set
// allocates, so a Limit without Deny and Fail stores it only if one around it has, or if it
// has skipped the request and has IETF or ResetDelta: otherwise Allow sees these in the headers.
func around(c *gin.Context) *Config {
	v, _ := c.Get(configKey{})
	cfg, _ := v.(*Config)
	return cfg
}

// watched records the status and whether there is a body, which the Status and the Written of a
// middleware that buffers may not tell. It also records whether the connection was taken over,
// which those of Gin do not tell.
type watched struct {
	gin.ResponseWriter
	status       int // as set last here; 0: none
	begun, taken bool
}

// watch puts a watched around c.Writer.
func watch(c *gin.Context) *watched {
	w := &watched{ResponseWriter: c.Writer}
	c.Writer = w
	return w
}

func (w *watched) restore(c *gin.Context) { c.Writer = w.ResponseWriter }

// final reports whether a response can end with this status. Gin keeps that of early hints as
// any other, and the server then sends 200.
func final(status int) bool {
	return status >= http.StatusOK || status == http.StatusSwitchingProtocols
}

func (w *watched) WriteHeader(status int) {
	if status > 0 && !w.Written() { // as Gin's: c.Render(-1) leaves the status
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

func (w *watched) WriteString(s string) (int, error) {
	w.begun = true
	return w.ResponseWriter.WriteString(s)
}

func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.taken = w.taken || err == nil
	return conn, rw, err
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answered is for gate.Gate.Run.
func (w *watched) answered() (status int, begun bool) {
	if w.taken {
		return 0, true
	}
	status = w.status
	if status == 0 || w.Written() {
		status = w.Status() // as sent, or 404 if no route matched
	}
	if !final(status) {
		status = http.StatusOK
	}
	return status, w.begun || w.Written()
}
