package echolimit

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/nethttp/gate"
)

// Problem is the Message of the *echo.HTTPError of a refusal or a failure.
type Problem struct {
	gate.Problem
	response *echo.Response
}

// MarshalJSON encodes the problem. When Echo encodes it to send it, the response becomes
// problem+json. A central error handler that sends something else keeps its own type. If
// that is JSON of which the problem is a part, put the field Problem into it.
func (p *Problem) MarshalJSON() ([]byte, error) {
	// Echo sets type and status before it encodes. A handler that only logs does not.
	if p.response != nil && p.answers(echo.MIMEApplicationJSON) && !p.response.Committed {
		p.response.Header().Set(echo.HeaderContentType, problemType)
	}
	return json.Marshal(&p.Problem)
}

// answers reports whether the response has the problem's status and this content type.
func (p *Problem) answers(contentType string) bool {
	return p.response.Status == p.Status && p.response.Header().Get(echo.HeaderContentType) == contentType
}

const problemType = "application/problem+json"

// problem makes the problem an error. It is not wrapped: Echo's error handler looks at
// the type itself.
func problem(c echo.Context, o *gate.Outcome) error {
	p := &Problem{Problem: o.Problem(), response: c.Response()}
	gate.ClearBody(p.response.Writer)
	if c.Request().Method == http.MethodHead { // answered without a body, so nothing is encoded
		p.response.Before(func() {
			if p.answers("") {
				p.response.Header().Set(echo.HeaderContentType, problemType)
			}
		})
	}
	return &echo.HTTPError{Code: p.Status, Message: p}
}
