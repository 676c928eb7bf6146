package echolimit

import (
	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// A Problem is the error of a request that does not pass. Echo's error handler answers with the
// status and the JSON of the Problem. Your own central error handler can find the Problem with
// errors.As, as a *Problem, an echo.HTTPStatusCoder or an *echo.HTTPError. If your handler sends
// another body, the body keeps its Content-Type. To send the problem as a part of another JSON
// body, encode the field Problem.
type Problem struct{ gate.SentProblem }

// Error returns the status and the title.
func (p *Problem) Error() string { return p.Unwrap().Error() }

// StatusCode returns the status of the answer.
func (p *Problem) StatusCode() int { return p.Status }

// Unwrap returns an *echo.HTTPError of the same status, with the title as its message.
func (p *Problem) Unwrap() error { return echo.NewHTTPError(p.Status, p.Title) }

// problem returns a problem as an error.
func problem(c *echo.Context, p gate.Problem) error {
	sent := &Problem{gate.NewSentProblem(p, c.Request(), c.Response().Header())}
	if res := own(c); res != nil {
		res.Before(func() { sent.BeforeHeader(res.Status) })
	}
	return sent
}
