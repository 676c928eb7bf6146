package echolimit

// This file adapts Echo to package gate.

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/nethttp/gate"
)

type framework struct{}

func (framework) Name() string                          { return "echolimit" }
func (framework) Request(c *echo.Context) *http.Request { return c.Request() }
func (framework) Header(c *echo.Context) http.Header    { return c.Response().Header() }

func (framework) WithRequest(c *echo.Context, r *http.Request) *echo.Context {
	c.SetRequest(r)
	return c
}

// below returns the writer that Echo's own Response wraps, and a function that replaces this
// writer. If a middleware has replaced c.Response(), below returns the replacement instead, because
// the replacement may buffer.
func below(c *echo.Context) (w http.ResponseWriter, replace func(http.ResponseWriter)) {
	if res, ok := c.Response().(*echo.Response); ok {
		return res.ResponseWriter, func(w http.ResponseWriter) { res.ResponseWriter = w }
	}
	return c.Response(), c.SetResponse
}

func (framework) Watch(c *echo.Context, answers *gate.Answering) (*echo.Context, gate.Watched) {
	bare, replace := below(c)
	w, answered := gate.Watch(bare, answers)
	replace(w)
	return c, &watched{c, answered, func() { replace(bare) }}
}

// Answer returns err. If err is nil and the response has not begun, it returns the problem as an
// error.
func (framework) Answer(c *echo.Context, p gate.Problem, err error) error {
	if res := own(c); res != nil && res.Committed {
		if res.Status >= http.StatusOK {
			return err
		}
		res.Committed = false // Echo takes early hints for the response
	}
	if err != nil {
		return err
	}
	w, _ := below(c)
	gate.ClearBody(w)
	return problem(c, p)
}

func (framework) Finish(c *echo.Context, err error, wrote func() error) {
	if err != nil {
		c.Echo().HTTPErrorHandler(c, err)
	}
	w, replace := below(c)
	replace(gate.Discarding(w, wrote))
}

// own returns Echo's own Response, or nil if a middleware hides it.
func own(c *echo.Context) *echo.Response {
	res, _ := echo.UnwrapResponse(c.Response())
	return res
}

// watched is a response whose writer is wrapped.
type watched struct {
	c        *echo.Context
	answered func() (status int, begun bool)
	restore  func()
}

func (w *watched) Answered() bool {
	status, begun := w.answered()
	if res := own(w.c); status == 0 && res != nil {
		res.Committed = true // after a Hijack the central error handler must not write
	}
	return begun
}

func (w *watched) Result(err error) (status int, begun bool) {
	status, begun = w.answered()
	switch res := own(w.c); {
	case begun:
	case res != nil && res.Committed: // something wrote past c.Response(), or Echo has sent early hints, and sends no other status
		return max(res.Status, http.StatusOK), true
	case err != nil:
		if status = echo.StatusCode(err); status == 0 {
			status = http.StatusInternalServerError
		}
	}
	return status, begun
}

func (w *watched) Restore() { w.restore() }
