package ginlimit

// This file adapts Gin to package gate.

import (
	"bufio"
	"net"
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/nethttp/gate"
)

type framework struct{}

func (framework) Name() string                         { return "ginlimit" }
func (framework) Request(c *gin.Context) *http.Request { return c.Request }
func (framework) Header(c *gin.Context) http.Header    { return c.Writer.Header() }

func (framework) WithRequest(c *gin.Context, r *http.Request) *gin.Context {
	c.Request = r
	return c
}

func (framework) Watch(c *gin.Context, answers *gate.Answering) (*gin.Context, gate.Watched) {
	w := &watched{ResponseWriter: c.Writer, c: c, answers: answers}
	c.Writer = w
	return c, w
}

func (framework) Answer(c *gin.Context, p gate.Problem, _ error) error {
	c.Abort()
	if !c.Writer.Written() {
		gate.ClearBody(below(c.Writer))
		p.Write(c.Writer, c.Request)
	}
	return nil
}

// Finish does nothing. A Gin handler needs all methods of gin.ResponseWriter, and gate.Discarding
// has fewer.
func (framework) Finish(*gin.Context, error, func() error) {}

// ginsOwn is the type of the writer that Gin makes for a request.
var ginsOwn = reflect.TypeOf(new(gin.Context).Copy().Writer)

// below returns the writer that Gin's own writer wraps. If a middleware has replaced Gin's writer,
// below returns the replacement.
func below(w http.ResponseWriter) http.ResponseWriter {
	_, ours := w.(*watched)
	if outer, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok && (ours || reflect.TypeOf(w) == ginsOwn) {
		return below(outer.Unwrap())
	}
	return w
}

func (cfg Config) lift() gate.Config[*gin.Context] {
	return gate.Config[*gin.Context]{
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, CountPreflights: cfg.CountPreflights,
		MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, FinalCost: cfg.FinalCost, OnlyFailures: cfg.OnlyFailures, Settle: cfg.Settle,
		Deny: aborting(cfg.Deny), Fail: aborting(cfg.Fail),
		Keep: cfg.Keep, Headers: cfg.Headers, SpreadRetryAfter: cfg.SpreadRetryAfter, Forbid: cfg.Forbid,
	}
}

// aborting returns a Deny or a Fail that first aborts the chain.
func aborting[T any](hook func(*gin.Context, T)) func(*gin.Context, T) error {
	if hook == nil {
		return nil
	}
	return func(c *gin.Context, v T) error { c.Abort(); hook(c, v); return nil }
}

// watched notes three things that the writer of another middleware may not report: the status,
// whether there is a body, and whether the connection was taken over.
type watched struct {
	gin.ResponseWriter
	c            *gin.Context
	answers      *gate.Answering
	status       int // the last status that was set here, or 0
	begun, taken bool
}

// final reports whether a response can end with this status. After early hints Gin keeps their
// status, such as 103, although the server ends the response with 200.
func final(status int) bool {
	return status >= http.StatusOK || status == http.StatusSwitchingProtocols
}

func (w *watched) WriteHeader(status int) {
	if status > 0 && !w.Written() { // Gin does so too: c.Render(-1) leaves the status
		w.status = status
		w.answer()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) answer() {
	if !w.begun {
		w.answers.Now()
	}
}

func (w *watched) begin() {
	w.answer()
	w.begun = true
}

func (w *watched) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

func (w *watched) WriteString(s string) (int, error) {
	w.begin()
	return w.ResponseWriter.WriteString(s)
}

func (w *watched) Flush() {
	if w.status == 0 {
		w.answer()
	}
	w.ResponseWriter.Flush()
}

func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.taken = w.taken || err == nil
	return conn, rw, err
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Answered, Result and Restore implement gate.Watched.
func (w *watched) Answered() bool { return w.taken || w.begun || final(w.status) }

func (w *watched) Result(error) (status int, begun bool) {
	if w.taken {
		return 0, true
	}
	status = w.status
	if status == 0 || w.Written() {
		status = w.Status() // the status that was sent, or 404 if no route matched
	}
	if !final(status) {
		status = http.StatusOK
	}
	return status, w.begun || w.Written()
}

func (w *watched) Restore() { w.c.Writer = w.ResponseWriter }
