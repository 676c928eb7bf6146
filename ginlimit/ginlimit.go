// Package ginlimit limits Gin routes.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	r := gin.New()
//	r.Use(gin.Recovery(), auth) // auth does c.Set("user", id)
//	r.POST("/posts/:id/replies",
//		ginlimit.Limit(replies, ginlimit.Value("user"), ginlimit.Action("reply")), reply)
//
// What is answered, and where to mount it, is as in package nethttp, of which this
// is a skin; a refusal aborts the chain. Addresses are never taken from
// c.ClientIP(), which by default believes every client's X-Forwarded-For: use
// ginlimit.From(keyfuncs.RemoteIP), or keyfuncs.ForwardedIP with the proxies that
// you trust.
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
	"github.com/tailcut/tailcut/nethttp"
)

// KeyFunc says who acts or what they do. A missing identity is keyfuncs.ErrNoKey,
// an unreadable one keyfuncs.ErrBadKey.
type KeyFunc = func(*gin.Context) (string, error)

// From makes a KeyFunc of one for net/http.
func From(f keyfuncs.Func) KeyFunc {
	if f == nil {
		panic("ginlimit: From: the key function is nil; give one of package keyfuncs")
	}
	return func(c *gin.Context) (string, error) { return f(c.Request) }
}

// Value is what an earlier middleware has stored with c.Set: a string or an
// integer. Nothing stored, or "", is keyfuncs.ErrNoKey.
func Value(key string) KeyFunc {
	return keyfuncs.Value("the Gin value "+strconv.Quote(key), func(c *gin.Context) any {
		v, _ := c.Get(key)
		return v
	})
}

// Action is always the action of that name.
func Action(name string) KeyFunc { return From(keyfuncs.Action(name)) }

// Route is the method (HEAD as GET) and the route's template, such as
// "POST /posts/:id/likes". All requests that no route matched are the one action
// "unmatched".
func Route(c *gin.Context) (string, error) {
	return keyfuncs.RouteTemplate(c.Request, c.FullPath()), nil
}

// Limit makes middleware that lets a request pass if limiter allows its user its
// action. It panics if an argument is nil.
func Limit(limiter *core.Limiter, user, action KeyFunc) gin.HandlerFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does. The
// fields are those of nethttp.Config. With a FinalCost, c.Writer is wrapped; the status is
// the one that it has when the handlers after this one have returned.
type Config struct {
	Cost       func(*gin.Context) (int, error)
	Limiter    func(*gin.Context) *core.Limiter
	Skip       func(*gin.Context) bool
	MaxWait    time.Duration
	MaxWaiting int
	FinalCost  func(c *gin.Context, status int) int
	Deny       func(*gin.Context, core.Decision) // the chain is aborted already; a status alone counts only if it is not 200
	Fail       func(*gin.Context, error)         // the chain is aborted already
	Keep       bool                              // see Decision
	ResetDelta bool
	IETF       bool
}

// Limit makes middleware of the configuration. It panics if an argument is nil.
func (cfg Config) Limit(limiter *core.Limiter, user, action KeyFunc) gin.HandlerFunc {
	gate := nethttp.NewGate("ginlimit", limiter, user, action, nethttp.Rules[*gin.Context]{
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, FinalCost: cfg.FinalCost,
		Keep: cfg.Keep, ResetDelta: cfg.ResetDelta, IETF: cfg.IETF,
	})
	return func(c *gin.Context) {
		var o nethttp.Outcome
		gate.Enter(&o, c, c.Request, c.Writer.Header())
		if o.Pass {
			if d := o.Kept(); d != nil {
				c.Set(keptKey{}, d)
			}
			if o.FinalCost {
				w := &watched{ResponseWriter: c.Writer}
				c.Writer = w
				gate.Run(c, c.Request, &o, c.Next, w.final)
			}
			return
		}
		c.Abort()
		status := c.Writer.Status() // a 404 already, where no route matched
		switch {
		case o.Failure != nil && cfg.Fail != nil:
			cfg.Fail(c, o.Failure)
		case o.Failure == nil && cfg.Deny != nil:
			cfg.Deny(c, o.Decision)
		}
		if !c.Writer.Written() && c.Writer.Status() == status {
			o.Problem().Write(c.Writer, c.Request)
		}
	}
}

// watched tells whether the connection was taken over, which Gin does not.
type watched struct {
	gin.ResponseWriter
	taken bool
}

func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.taken = w.taken || err == nil
	return conn, rw, err
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watched) final() int {
	if w.taken {
		return 0
	}
	return w.Status()
}

// Allow is for a handler that knows only then what its request costs, or who or what
// it is for; see nethttp.Allow. If it returns false, it has answered and aborted the
// chain, and the handler returns.
func Allow(c *gin.Context, limiter *core.Limiter, user, action string, cost int) bool {
	o := nethttp.Charge("ginlimit", c.Request, c.Writer.Header(), limiter, user, action, cost)
	if !o.Pass {
		c.Abort()
		o.Problem().Write(c.Writer, c.Request)
	}
	return o.Pass
}

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep; of several the innermost.
func Decision(c *gin.Context) (core.Decision, bool) {
	v, _ := c.Get(keptKey{})
	if d, ok := v.(*core.Decision); ok {
		return *d, true
	}
	return core.Decision{}, false
}

type keptKey struct{}
