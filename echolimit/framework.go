package echolimit

// This file adapts Echo to package gate.

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/nethttp/gate"
)

type framework struct{}

func (framework) Name() string                         { return "echolimit" }
func (framework) Request(c echo.Context) *http.Request { return c.Request() }
func (framework) Header(c echo.Context) http.Header    { return c.Response().Header() }

func (framework) WithRequest(c echo.Context, r *http.Request) echo.Context {
	c.SetRequest(r)
	return c
}

func (framework) Watch(c echo.Context, answers *gate.Answering) (echo.Context, gate.Watched) {
	w := &watched{res: c.Response(), bare: c.Response().Writer}
	w.res.Writer, w.answered = gate.Watch(w.bare, answers)
	return c, w
}

// Answer returns err. If err is nil and the response has not begun, it returns the problem as an
// error.
func (framework) Answer(c echo.Context, p gate.Problem, err error) error {
	res := c.Response()
	if res.Status < http.StatusOK && res.Size == 0 {
		res.Committed = false // Echo takes early hints for the response
	}
	if err != nil || res.Committed {
		return err
	}
	gate.ClearBody(res.Writer)
	return problem(c, p)
}

func (framework) Finish(c echo.Context, err error, wrote func() error) {
	if err != nil {
		c.Error(err)
	}
	c.Response().Writer = gate.Discarding(c.Response().Writer, wrote)
}

// watched is a response whose Writer is wrapped.
type watched struct {
	res      *echo.Response
	bare     http.ResponseWriter
	answered func() (status int, begun bool)
}

func (w *watched) Answered() bool {
	_, begun := w.answered()
	if begun {
		w.res.Committed = true // also after a Hijack: the central error handler must not write
	}
	return begun
}

func (w *watched) Result(err error) (status int, begun bool) {
	status, begun = w.answered()
	switch {
	case begun:
	case w.res.Committed: // Echo has sent early hints, and sends no other status
		return max(w.res.Status, http.StatusOK), true
	case err != nil:
		status = statusOf(err)
	}
	return status, begun
}

func (w *watched) Restore() { w.res.Writer = w.bare }

// statusOf returns the status with which Echo's own error handler answers the error.
func statusOf(err error) int {
	he, ok := err.(*echo.HTTPError)
	if !ok {
		return http.StatusInternalServerError
	}
	if inner, ok := he.Internal.(*echo.HTTPError); ok {
		he = inner
	}
	return he.Code
}
