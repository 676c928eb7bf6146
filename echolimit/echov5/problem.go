package echolimit

import (
	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// Problem is the error of a refusal or a failure. Echo's error handler answers with its
// status and its JSON. Your own central error handler finds it with errors.As: as a *Problem, an
// echo.HTTPStatusCoder or an *echo.HTTPError. A handler that sends something else keeps its own
// Content-Type. One that makes the problem a part of its own JSON encodes the field Problem.
type Problem struct{ gate.SentProblem }

// Error returns the status and the title.
func (p *Problem) Error() string { return p.Unwrap().Error() }

// StatusCode returns the status to answer with.
func (p *Problem) StatusCode() int { return p.Status }

// Unwrap returns an *echo.HTTPError of the same status, with the title as its message.
func (p *Problem) Unwrap() error { return echo.NewHTTPError(p.Status, p.Title) }

// problem makes a problem an error.
func problem(c *echo.Context, p gate.Problem) error {
	sent := &Problem{gate.NewSentProblem(p, c.Request(), c.Response().Header())}
	if res := own(c); res != nil {
		res.Before(func() { sent.BeforeHeader(res.Status) })
	}
	return sent
}
