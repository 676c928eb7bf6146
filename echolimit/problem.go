package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// Problem is the Message of the *echo.HTTPError of a refusal or a failure. When Echo
// encodes it to send it, the response becomes problem+json. A central error handler that
// sends something else keeps its own type. If that is JSON of which the problem is a
// part, put the field Problem into it.
type Problem struct {
	// Sent stands for Problem.Type in the JSON, and sees that it is encoded. A
	// MarshalJSON would see it too, but what it returns is scanned once more: 1 of 2.5 us.
	Sent sent `json:"type"`
	gate.Problem
}

type sent struct {
	problem  *Problem
	response *echo.Response
}

// MarshalText returns the type of the problem.
func (s sent) MarshalText() ([]byte, error) {
	if s.problem == nil { // not made here
		return []byte("about:blank"), nil
	}
	// Echo sets type and status before it encodes. A handler that only logs does not.
	if s.answers(echo.MIMEApplicationJSON) && !s.response.Committed {
		s.response.Header().Set(echo.HeaderContentType, problemType)
	}
	return []byte(s.problem.Type), nil
}

// answers reports whether the response has the problem's status and this content type.
func (s *sent) answers(contentType string) bool {
	return s.response.Status == s.problem.Status && s.response.Header().Get(echo.HeaderContentType) == contentType
}

const problemType = "application/problem+json"

// problem makes the problem an error. It is not wrapped: Echo's error handler looks at
// the type itself.
func problem(c echo.Context, o *gate.Outcome) error {
	p := &Problem{Problem: o.Problem()}
	p.Sent = sent{p, c.Response()}
	gate.ClearBody(c.Response().Writer)
	if c.Request().Method == http.MethodHead { // answered without a body, so nothing is encoded
		c.Response().Before(func() {
			if p.Sent.answers("") {
				c.Response().Header().Set(echo.HeaderContentType, problemType)
			}
		})
	}
	return &echo.HTTPError{Code: p.Status, Message: p}
}
