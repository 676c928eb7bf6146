package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// Problem is the error that stands for a refusal or a failure. Echo's error handler
// answers with its status and its JSON. A central error handler of your own finds it
// with errors.As, by itself, as an echo.HTTPStatusCoder or as an *echo.HTTPError.
type Problem struct{ gate.Problem }

// Error returns the status and the title.
func (p *Problem) Error() string { return p.http().Error() }

// StatusCode returns the status to answer with.
func (p *Problem) StatusCode() int { return p.Status }

// Unwrap returns an *echo.HTTPError of the same status, with the title as its message.
func (p *Problem) Unwrap() error { return p.http() }

func (p *Problem) http() *echo.HTTPError { return echo.NewHTTPError(p.Status, p.Title) }

// problem makes the outcome an error, and the response's Content-Type the problem's if
// it is the problem that the central handler sends.
func problem(c *echo.Context, o *gate.Outcome) error {
	gate.ClearBody(c.Response())
	p := o.Problem()
	h := c.Response().Header()
	// Echo says that it sends JSON before it encodes anything. A handler that logs the
	// problem encodes it, too, but has said nothing then.
	sent := c.Request().Method == http.MethodHead // answered without a body
	want := ""
	p = p.OnEncode(func() {
		if h.Get(echo.HeaderContentType) == echo.MIMEApplicationJSON {
			sent, want = true, echo.MIMEApplicationJSON
		}
	})
	if res, _ := echo.UnwrapResponse(c.Response()); res != nil {
		res.Before(func() {
			if sent && res.Status == p.Status && h.Get(echo.HeaderContentType) == want {
				h.Set(echo.HeaderContentType, gate.ProblemType)
			}
		})
	}
	return &Problem{p}
}
