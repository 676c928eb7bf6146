package echolimit

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// Problem is the error of a refusal or a failure. Echo's error handler answers with its
// status and its JSON. A central error handler of your own finds it with errors.As: as a
// *Problem, an echo.HTTPStatusCoder or an *echo.HTTPError.
type Problem struct {
	gate.Problem
	header http.Header // of the response
	sent   string      // the Content-Type with which Echo sends the problem
	sends  bool
}

// Error returns the status and the title.
func (p *Problem) Error() string { return p.http().Error() }

// StatusCode returns the status to answer with.
func (p *Problem) StatusCode() int { return p.Status }

// Unwrap returns an *echo.HTTPError of the same status, with the title as its message.
func (p *Problem) Unwrap() error { return p.http() }

func (p *Problem) http() *echo.HTTPError { return echo.NewHTTPError(p.Status, p.Title) }

// MarshalJSON encodes the problem. If Echo encodes it to send it, the response becomes
// problem+json. A central error handler that sends something else keeps its own
// Content-Type. If it sends the problem as a part of its own JSON, it encodes the field
// Problem.
func (p *Problem) MarshalJSON() ([]byte, error) {
	// Before Echo encodes, it has set the Content-Type. A handler that logs the problem
	// has not.
	if p.header.Get(echo.HeaderContentType) == echo.MIMEApplicationJSON {
		p.sends, p.sent = true, echo.MIMEApplicationJSON
	}
	return json.Marshal(&p.Problem)
}

// problem makes a problem an error.
func problem(c *echo.Context, of gate.Problem) error {
	p := &Problem{Problem: of, header: c.Response().Header()}
	p.sends = c.Request().Method == http.MethodHead // the answer has no body
	if res, _ := echo.UnwrapResponse(c.Response()); res != nil {
		res.Before(func() {
			if p.sends && res.Status == p.Status && p.header.Get(echo.HeaderContentType) == p.sent {
				p.header.Set(echo.HeaderContentType, "application/problem+json")
			}
		})
	}
	return p
}
