package echolimit

import (
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// Problem is the Message of the *echo.HTTPError of a refusal or a failure. When Echo
// encodes it to send it, the response becomes problem+json. A central error handler that
// sends something else keeps its own Content-Type. If it sends the problem as a part of
// its own JSON, it encodes the field Problem.
type Problem struct{ gate.SentProblem }

// problem makes a problem an error. Echo's error handler does not unwrap, so the error is
// an *echo.HTTPError itself.
func problem(c echo.Context, p gate.Problem) error {
	res := c.Response()
	sent := &Problem{gate.NewSentProblem(p, c.Request(), res.Header())}
	res.Before(func() { sent.BeforeHeader(res.Status) })
	return &echo.HTTPError{Code: p.Status, Message: sent}
}
