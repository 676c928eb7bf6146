package gatetest

// CORS preflights, which pass uncounted, and requests that look like one.

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// "CORS preflights pass uncounted, and any client can send one."
// Of ten requests that a limit of five meets, those that are no preflight are charged.
func testPreflights(t *testing.T, adapters []Adapter) {
	for _, c := range []struct {
		name   string
		header string
		body   io.Reader
		passed int
	}{
		{"a preflight passes uncounted", "", nil, 10},
		{"not with basic authentication", "Authorization: Basic YWxpY2U6Z3Vlc3M=", nil, 5},
		{"nor with an empty one", "Authorization: ", nil, 5},
		{"nor with a cookie", "Cookie: session=1", nil, 5},
		{"nor with a body", "", strings.NewReader("name=alice&password=guess"), 5},
		{"nor with one of unknown length", "", struct{ io.Reader }{strings.NewReader("guess")}, 5},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				ran := NewRan(t, c.passed)
				h := ad.Mount(App{Routes: []Route{{
					Method: "OPTIONS", Limits: []Limit{{Limiter: Five(memory()), User: keyfuncs.RemoteIP}},
					Handler: func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) { ran.Now() },
				}}})
				for range 10 {
					r := httptest.NewRequest("OPTIONS", "/replies/7", c.body)
					r.Header.Set("Origin", "https://a.example")
					r.Header.Set("Access-Control-Request-Method", "POST")
					if name, value, ok := strings.Cut(c.header, ": "); ok {
						r.Header.Set(name, value)
					}
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
			})
		}
	}
}
