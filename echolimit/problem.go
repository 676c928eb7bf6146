package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// A Problem is the Message of the *echo.HTTPError of a request that does not pass. If Echo encodes
// and sends it, the response is problem+json. If a central error handler sends another body, the
// body keeps its Content-Type. To send the problem as a part of another JSON body, encode the field
// Problem.
type Problem struct{ gate.SentProblem }

// problem returns a problem as an error. Echo's error handler does not unwrap errors, so this error
// is an *echo.HTTPError itself.
func problem(c echo.Context, p gate.Problem) error {
	res := c.Response()
	sent := &Problem{gate.NewSentProblem(p, c.Request(), res.Header())}
	res.Before(func() { sent.BeforeHeader(res.Status) })
	return &echo.HTTPError{Code: p.Status, Message: sent}
}
