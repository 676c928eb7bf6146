package echolimit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What every adapter answers is tested in package nethttp/gate, and what is the same in Echo v4
// in package echolimit. Here is what only Echo v5 has, or does in another way.

var everyone = echolimit.From(keyfuncs.Everyone)

var five, do, want = gatetest.Five, gatetest.Do, gatetest.Want

func newEcho(cfg echo.RouterConfig) *echo.Echo {
	return echo.NewWithConfig(echo.Config{Logger: slog.New(slog.DiscardHandler), Router: echo.NewRouter(cfg)})
}

func ok(c *echo.Context) error { return c.String(200, "ok") }

// What a group has no route for is unmatched: neither a path nor a method that a client
// makes up is a fresh quota.
func TestUnmatchedInAGroup(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount func(*echo.Echo, echo.MiddlewareFunc) *echo.Group
	}{
		{"by Group.Use", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			g := e.Group("/v1")
			g.Use(m)
			return g
		}},
		{"by a group with a parameter", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			return e.Group("/:version", m)
		}},
		{"by a group in a group", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			return e.Group("/v1").Group("", m)
		}},
		{"with an answer of the application's", func(e *echo.Echo, m echo.MiddlewareFunc) *echo.Group {
			g := e.Group("/v1", m)
			g.RouteNotFound("/*", func(c *echo.Context) error { return c.String(404, "nothing here") })
			return g
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := gatetest.NewStore(nil)
			e := newEcho(echo.RouterConfig{AllowOverwritingRoute: true})
			c.mount(e, echolimit.Limit(five(store), everyone, echolimit.Route)).GET("/a", ok)
			want(t, do(e, "GET", "/v1/a"), 200, "4")
			for i := range 6 {
				w := do(e, []string{"GET", fmt.Sprint("MINTED", i)}[i%2], fmt.Sprint("/v1/none/", i))
				if i < 5 && (w.Code != 404 || w.Header().Get("X-RateLimit-Remaining") != fmt.Sprint(4-i)) || i == 5 && w.Code != 429 {
					t.Errorf("%d: %d %v", i, w.Code, w.Header())
				}
			}
			if got := slices.Compact(store.Actions()); len(got) != 2 || got[1] != "~everyone unmatched" {
				t.Errorf("the actions are %q", got)
			}
		})
	}
}

// A client gets no quota for each method.
func TestAnyIsOneAction(t *testing.T) {
	store := gatetest.NewStore(nil)
	e := newEcho(echo.RouterConfig{})
	e.Any("/a", ok, echolimit.Limit(five(store), everyone, echolimit.Route))
	for i, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "MINTED"} {
		if w := do(e, method, "/a"); i < 5 && w.Code != 200 || i >= 5 && w.Code != 429 {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	if got := slices.Compact(store.Actions()); !slices.Equal(got, []string{"~everyone /a"}) {
		t.Errorf("the actions are %q", got)
	}
}

// In e.Pre no route is known, so there all are one action, which is said once. Requests
// without a route are none of e.Pre.
func TestPre(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount func(*echo.Echo, ...echo.MiddlewareFunc)
		said  int
	}{
		{"Pre", (*echo.Echo).Pre, 1},
		{"Use", (*echo.Echo).Use, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			echolimit.ForgetPre()
			log := gatetest.Capture(t)
			store := gatetest.NewStore(nil)
			e := newEcho(echo.RouterConfig{})
			c.mount(e, echolimit.Limit(five(store), everyone, echolimit.Route))
			e.GET("/a", ok)
			want(t, do(e, "GET", "/none"), 404, "4")
			want(t, do(e, "POST", "/a"), 405, "3")
			do(e, "GET", "/a")
			if got := log.Take("echolimit"); len(got) != c.said || c.said > 0 && !strings.HasSuffix(got[0], "| before-routing") {
				t.Errorf("said %q", got)
			}
		})
	}
}

// Echo's own answer to HEAD runs the handler of GET. FinalCost gets its status.
func TestFinalCostOfHEAD(t *testing.T) {
	for name, mount := range map[string]func(*echo.Echo, echo.HandlerFunc, echo.MiddlewareFunc){
		"by Echo.Use":  func(e *echo.Echo, h echo.HandlerFunc, m echo.MiddlewareFunc) { e.Use(m); e.GET("/a", h) },
		"on the route": func(e *echo.Echo, h echo.HandlerFunc, m echo.MiddlewareFunc) { e.GET("/a", h, m) },
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			e := newEcho(echo.RouterConfig{AutoHandleHEAD: true})
			mount(e, func(c *echo.Context) error { return c.String(404, "none") },
				echolimit.Config{FinalCost: func(_ *echo.Context, status int) int {
					got = append(got, status)
					return 0
				}}.Limit(five(gatetest.NewStore(nil)), everyone, echolimit.Route))
			w := do(e, "HEAD", "/a")
			want(t, w, 404, "4")
			if !slices.Equal(got, []int{404}) || w.Header().Get("Content-Length") != "4" {
				t.Errorf("FinalCost got %v, Content-Length %q", got, w.Header().Get("Content-Length"))
			}
		})
	}
}

// FinalCost gets the status that the client gets, also of a handler that writes to Echo's own
// Response.
func TestFinalCostOfAnEchoResponse(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(*echo.Context, *echo.Response) error
		status int // -1: FinalCost is not called
	}{
		{"a status", func(_ *echo.Context, res *echo.Response) error { res.WriteHeader(401); return nil }, 401},
		{"a body, then a panic", func(_ *echo.Context, res *echo.Response) error { _, _ = res.Write([]byte("x")); panic("mine") }, 200},
		{"a body, then an error", func(_ *echo.Context, res *echo.Response) error {
			_, _ = res.Write([]byte("x"))
			return echo.NewHTTPError(500, "late")
		}, 200},
		{"a status that a hook changes", func(c *echo.Context, res *echo.Response) error {
			res.Before(func() { res.Status = 503 })
			return c.String(200, "x")
		}, 503},
		{"a connection that was taken over", func(_ *echo.Context, res *echo.Response) error {
			conn, _, err := res.Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
				_ = conn.Close()
			}
			return err
		}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := make(chan int, 2)
			e := newEcho(echo.RouterConfig{})
			e.GET("/a", func(ec *echo.Context) (err error) {
				defer func() { got <- -1 }() // last
				defer func() { _ = recover() }()
				return echolimit.Config{FinalCost: func(_ *echo.Context, status int) int {
					got <- status
					return 1
				}}.Limit(five(gatetest.NewStore(nil)), everyone, echolimit.Route)(func(ec *echo.Context) error {
					res, err := echo.UnwrapResponse(ec.Response())
					return errors.Join(err, c.do(ec, res))
				})(ec)
			})
			s := httptest.NewServer(e)
			defer s.Close()
			resp, err := s.Client().Get(s.URL + "/a")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if status := <-got; status != c.status || c.status > 0 && status != resp.StatusCode {
				t.Errorf("answered %d, FinalCost got %d, want %d", resp.StatusCode, status, c.status)
			}
		})
	}
}

// A handler or a Deny that writes to Echo's own Response, past a middleware's writer, has answered.
func TestPastTheWriterOfAMiddleware(t *testing.T) {
	ran := gatetest.NewRan(t, 2)
	e := newEcho(echo.RouterConfig{})
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			ran.Now()
			c.SetResponse(wrapper{c.Response()})
			if err := next(c); err != nil {
				t.Error(err)
			}
			return nil
		}
	})
	answers := func(c *echo.Context, status int) error {
		res, err := echo.UnwrapResponse(c.Response())
		if err == nil {
			res.WriteHeader(status)
		}
		return err
	}
	got := 0
	e.GET("/a", func(c *echo.Context) error { return answers(c, 401) }, echolimit.Config{
		FinalCost: func(_ *echo.Context, status int) int { got = status; return 1 },
		Deny:      func(c *echo.Context, _ core.Decision) error { return answers(c, 420) },
	}.Limit(gatetest.One(gatetest.NewStore(nil)), everyone, echolimit.Route))
	want(t, do(e, "GET", "/a"), 401, "0")
	if got != 401 {
		t.Errorf("FinalCost got %d", got)
	}
	want(t, do(e, "GET", "/a"), 420, "0")
}

type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// However the problem travels to the central handler, it arrives as one.
func TestTheProblemArrives(t *testing.T) {
	wraps := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if err := next(c); err != nil {
				return fmt.Errorf("outside: %w", err)
			}
			return nil
		}
	}
	plain := echo.WrapMiddleware(func(h http.Handler) http.Handler { return h })
	for _, c := range []struct {
		name  string
		chain []echo.MiddlewareFunc
		on    echo.HTTPErrorHandler
		want  string // Content-Type
	}{
		{"bare", nil, echo.DefaultHTTPErrorHandler(false), "application/problem+json"},
		{"where Echo exposes errors", nil, echo.DefaultHTTPErrorHandler(true), "application/problem+json"},
		{"wrapped", []echo.MiddlewareFunc{wraps}, echo.DefaultHTTPErrorHandler(true), "application/problem+json"},
		{"past net/http's middleware", []echo.MiddlewareFunc{plain, wraps}, echo.DefaultHTTPErrorHandler(false), "application/problem+json"},
		{"sent with another status", nil, func(c *echo.Context, err error) {
			var p *echolimit.Problem
			_ = errors.As(err, &p)
			_ = c.JSON(420, p)
		}, "application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEcho(echo.RouterConfig{})
			e.HTTPErrorHandler = c.on
			e.Use(c.chain...)
			never := echolimit.Config{Cost: func(*echo.Context) (int, error) { return 6, nil }}
			e.GET("/a", ok, never.Limit(five(gatetest.NewStore(nil)), everyone, echolimit.Route))
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequest("GET", "/a", nil))
			if got := w.Header()["Content-Type"]; !slices.Equal(got, []string{c.want}) || !strings.Contains(w.Body.String(), `"status":429`) {
				t.Errorf("%d %q %s", w.Code, got, w.Body)
			}
		})
	}
}

// The error says what was answered, and nothing of the user.
func TestTextOfTheProblem(t *testing.T) {
	var seen error
	e := newEcho(echo.RouterConfig{})
	e.HTTPErrorHandler = func(_ *echo.Context, err error) { seen = err }
	e.GET("/a", ok, echolimit.Limit(five(gatetest.NewStore(nil)), echolimit.Value("user"), echolimit.Route))
	do(e, "GET", "/a")
	if seen == nil || seen.Error() != "code=400, message=Bad Request" {
		t.Errorf("got %v", seen)
	}
}
