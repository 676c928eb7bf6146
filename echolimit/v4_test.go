package echolimit_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What only Echo v4 has, or does in another way than v5.

var everyone = echolimit.From(keyfuncs.Everyone)

func newEcho() *echo.Echo { return v4.newEcho().(serverV4).Echo }

func okV4(c echo.Context) error { return ok(c) }

// Whatever chains one Limit is in, each goes on with its own next handler.
func TestOneLimitInSeveralChains(t *testing.T) {
	limit := echolimit.Limit(core.Must(core.New(memory(), core.Funnel(100, core.Every(time.Hour)))), everyone, echolimit.Action("a"))
	says := func(text string) echo.HandlerFunc {
		return func(c echo.Context) error { return c.String(200, text) }
	}
	inner := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set("X-Inner", c.Path())
			return next(c)
		}
	}
	e, all := newEcho(), newEcho()
	e.GET("/one", says("one"), limit)
	e.GET("/two", says("two"), limit)
	e.GET("/three", says("three"), limit, inner)
	e.GET("/four", says("four"), inner, limit)
	all.Use(limit, inner)
	all.GET("/five", says("five"))
	all.GET("/six", says("six"))
	for range 3 {
		for _, chain := range []struct {
			e    *echo.Echo
			path string
		}{{e, "one"}, {e, "two"}, {e, "three"}, {e, "four"}, {all, "five"}, {all, "six"}} {
			w := do(chain.e, "GET", "/"+chain.path)
			if w.Body.String() != chain.path || w.Header().Get("X-RateLimit-Limit") != "100" {
				t.Errorf("/%s: %d %s %v", chain.path, w.Code, w.Body, w.Header())
			}
			if inner := w.Header().Get("X-Inner"); chain.path != "one" && chain.path != "two" && inner != "/"+chain.path {
				t.Errorf("/%s: the inner middleware ran for %q", chain.path, inner)
			}
		}
	}
}

// What a group with middleware has no route for is the group's own template, one for each
// method: neither a path nor a method that a client makes up is a fresh quota.
func TestUnmatchedInAGroup(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount func(*echo.Echo, echo.MiddlewareFunc) *echo.Group
		none  string
		want  []string // the actions
	}{
		{"by Group.Use", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			g := e.Group("/v1")
			g.Use(m)
			return g
		}, "/v1/none", []string{"GET /v1/*", "OTHER /v1/*"}},
		{"by a group with a parameter", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			return e.Group("/:version", m)
		}, "/v1/none", []string{"GET /:version/*", "OTHER /:version/*"}},
		{"by a group in a group", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			return e.Group("/v1").Group("", m)
		}, "/v1/none", []string{"GET /v1/*", "OTHER /v1/*"}},
		{"by a host's group", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			return e.Host("example.com", m)
		}, "/none", []string{"GET /*", "OTHER /*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory()
			e := newEcho()
			c.mount(e, echolimit.Limit(five(store), everyone, echolimit.Route)).GET("/a", okV4)
			for i := range 6 {
				for _, method := range []string{"GET", fmt.Sprint("MINTED", i)} {
					w := do(e, method, fmt.Sprintf("%s/%d", c.none, i))
					if i < 5 && w.Header().Get("X-RateLimit-Remaining") != fmt.Sprint(4-i) || i == 5 && w.Code != 429 {
						t.Errorf("%s %d: %d %v", method, i, w.Code, w.Header())
					}
				}
			}
			var actions []string
			for _, a := range slices.Compact(slices.Sorted(slices.Values(store.Actions()))) {
				actions = append(actions, strings.TrimPrefix(a, "~everyone "))
			}
			if !slices.Equal(actions, c.want) {
				t.Errorf("the actions are %q, want %q", actions, c.want)
			}
		})
	}
}

// Another host's route of that method and path is no match.
func TestMethodNotAllowedOnThisHost(t *testing.T) {
	store := memory()
	e := newEcho()
	e.Use(echolimit.Limit(five(store), everyone, echolimit.Route))
	e.Host("a.example").POST("/a", okV4)
	e.Host("b.example").GET("/a", okV4)
	for _, host := range []string{"a.example", "b.example"} {
		r := httptest.NewRequest("POST", "/a", nil)
		r.Host = host
		e.ServeHTTP(httptest.NewRecorder(), r)
	}
	if !slices.Equal(store.Actions(), []string{"~everyone POST /a", "~everyone unmatched"}) {
		t.Errorf("charged %q", store.Actions())
	}
}

// A Problem that a handler makes itself is "about:blank" and served as application/json.
func TestACustomProblem(t *testing.T) {
	e := newEcho()
	e.GET("/a", func(echo.Context) error {
		return &echo.HTTPError{Code: 409, Message: &echolimit.Problem{SentProblem: gate.SentProblem{Problem: gate.Problem{Title: "Busy", Status: 409}}}}
	})
	w := do(e, "GET", "/a")
	const body = `{"type":"about:blank","title":"Busy","status":409,"detail":""}` + "\n"
	if ct := w.Header().Get("Content-Type"); w.Code != 409 || w.Body.String() != body || ct != "application/json" {
		t.Errorf("got %d %s %s", w.Code, ct, w.Body)
	}
}

// In e.Pre no route is known, so there all are one action, which is said once.
func TestPre(t *testing.T) {
	echolimit.ForgetPre()
	log := gatetest.Capture(t)
	store := memory()
	e := newEcho()
	e.Pre(echolimit.Limit(five(store), everyone, echolimit.Route))
	e.GET("/a", okV4)
	want(t, do(e, "GET", "/none"), 404, "4")
	if got := log.Take("echolimit"); got != nil {
		t.Errorf("said %q", got)
	}
	want(t, do(e, "GET", "/a"), 200, "3")
	want(t, do(e, "GET", "/a"), 200, "2")
	if got := log.Take("echolimit"); len(got) != 1 || !strings.HasSuffix(got[0], "| before-routing") {
		t.Errorf("said %q", got)
	}
	if got := slices.Compact(store.Actions()); !slices.Equal(got, []string{"~everyone unmatched"}) {
		t.Errorf("charged %q", got)
	}
}

// Requests without a route are none of e.Pre.
func TestUnmatchedIsNotPre(t *testing.T) {
	echolimit.ForgetPre()
	log := gatetest.Capture(t)
	e := newEcho()
	e.Use(echolimit.Limit(core.Must(core.New(memory(), core.FixedWindow(1000, time.Hour))), everyone, echolimit.Route))
	e.GET("/a", okV4)
	for range 300 {
		do(e, "GET", "/none")
		do(e, "POST", "/a")
	}
	if got := log.Take("echolimit"); got != nil {
		t.Errorf("said %q", got)
	}
}
