package echolimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What every adapter answers is tested in package nethttp, for all of them by one
// table. Here is what only Echo has.

func init() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package nethttp tests what is logged
}

func memory() *gatetest.Store { return gatetest.NewStore(nil) }

func five(s core.Store) *core.Limiter {
	return core.Must(core.New(s, core.FixedWindow(5, time.Minute)))
}
func one(s core.Store) *core.Limiter { return core.Must(core.New(s, core.FixedWindow(1, time.Minute))) }

var everyone = echolimit.From(keyfuncs.Everyone)

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	return e
}

var do, want = gatetest.Do, gatetest.Want

func ok(c echo.Context) error { return c.String(200, "ok") }

// The central error handler sees a refusal and a failure as what they are, and may
// answer in its own way; the headers stay.
func TestTheCentralErrorHandler(t *testing.T) {
	for _, c := range []struct {
		name   string
		user   echolimit.KeyFunc
		status int
		title  string
	}{
		{"a refusal", everyone, 429, "Too many requests"},
		{"a failure", echolimit.Value("nobody"), 400, "Bad Request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := one(memory())
			if _, err := limiter.Allow(t.Context(), "~everyone", "a"); err != nil {
				t.Fatal(err)
			}
			e := newEcho()
			var seen error
			e.HTTPErrorHandler = func(err error, c echo.Context) {
				seen = err
				_ = c.String(599, "central")
			}
			e.GET("/a", func(echo.Context) error { t.Error("the handler ran"); return nil },
				echolimit.Limit(limiter, c.user, echolimit.Action("a")))
			w := do(e, "GET", "/a")
			he, isHTTP := seen.(*echo.HTTPError) // bare, as Echo's own handler wants it
			if !isHTTP || he.Code != c.status || he.Internal != nil {
				t.Fatalf("the central handler saw %#v", seen)
			}
			if p, ok := he.Message.(*echolimit.Problem); !ok || p.Status != c.status || p.Title != c.title {
				t.Errorf("the message is %#v", he.Message)
			}
			if got := w.Header().Get("Content-Type"); w.Code != 599 || w.Body.String() != "central" || got != "text/plain; charset=UTF-8" {
				t.Errorf("got %d %s %q", w.Code, got, w.Body)
			}
			if c.status == 429 && w.Header().Get("Retry-After") != "60" {
				t.Errorf("Retry-After: %q", w.Header().Get("Retry-After"))
			}
		})
	}
}

// The Content-Type is the problem's only where a problem is written.
func TestTheContentType(t *testing.T) {
	html := func(_ error, c echo.Context) { _ = c.HTML(429, "<h1>later</h1>") }
	okay := func(_ error, c echo.Context) { _ = c.JSON(200, "never mind") }
	own := func(_ error, c echo.Context) { _ = c.JSON(429, map[string]string{"error": "later"}) }
	logged := func(err error, c echo.Context) {
		_, _ = json.Marshal(err.(*echo.HTTPError).Message)
		own(err, c)
	}
	delegates := func(err error, c echo.Context) { c.Echo().DefaultHTTPErrorHandler(err, c) }
	for _, c := range []struct {
		name    string
		outside string // what a middleware further out has set
		method  string
		handler echo.HTTPErrorHandler
		want    string
	}{
		{"Echo's own handler", "", "GET", nil, "application/problem+json"},
		{"Echo's own handler, of HEAD", "", "HEAD", nil, "application/problem+json"},
		{"a default of the application's", "text/html", "GET", nil, "application/problem+json"},
		{"a handler that answers in HTML", "", "GET", html, "text/html; charset=UTF-8"},
		{"a handler that answers in JSON of its own", "", "GET", own, "application/json"},
		{"a handler that logs the problem and answers in JSON of its own", "", "GET", logged, "application/json"},
		{"a handler that calls Echo's own", "", "GET", delegates, "application/problem+json"},
		{"a handler that answers 200", "", "GET", okay, "application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEcho()
			if c.handler != nil {
				e.HTTPErrorHandler = c.handler
			}
			limit := echolimit.Config{Cost: func(echo.Context) (int, error) { return 6, nil }}.Limit(five(memory()), everyone, echolimit.Action("a"))
			e.Add(c.method, "/a", ok, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(ctx echo.Context) error {
					if c.outside != "" {
						ctx.Response().Header().Set("Content-Type", c.outside)
					}
					return next(ctx)
				}
			}, limit)
			if got := do(e, c.method, "/a").Header()["Content-Type"]; !slices.Equal(got, []string{c.want}) {
				t.Errorf("got %q, want %s", got, c.want)
			}
		})
	}
}

// Middleware further out sees the error, and can answer it by c.Error.
func TestOuterMiddlewareSeesTheError(t *testing.T) {
	e := newEcho()
	var seen error
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if seen = next(c); seen != nil {
				c.Error(seen)
			}
			return nil
		}
	})
	e.GET("/a", ok, echolimit.Limit(one(memory()), everyone, echolimit.Action("a")))
	want(t, do(e, "GET", "/a"), 200, "0")
	if seen != nil {
		t.Errorf("an allowed action returned %v", seen)
	}
	want(t, do(e, "GET", "/a"), 429, "0")
	if he := (*echo.HTTPError)(nil); !errors.As(seen, &he) || he.Code != 429 {
		t.Errorf("saw %v", seen)
	}
}

// The handler's own errors keep the headers, whatever they are.
func TestTheHandlersOwnErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		status int
	}{
		{"an HTTPError", echo.NewHTTPError(404, "no such post"), 404},
		{"one of Echo's", echo.ErrForbidden, 403},
		{"any other", errors.New("boom"), 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEcho()
			e.GET("/a", func(echo.Context) error { return c.err }, echolimit.Limit(five(memory()), everyone, echolimit.Action("a")))
			w := do(e, "GET", "/a")
			want(t, w, c.status, "4")
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type: %q", got)
			}
		})
	}
}

// An error of a hook goes to the central handler; no error and nothing written is
// the default answer.
func TestHooks(t *testing.T) {
	nobody := echolimit.Value("nobody")
	for _, c := range []struct {
		name   string
		cfg    echolimit.Config
		user   echolimit.KeyFunc
		status int
		body   string
		fails  bool // what middleware further out sees
	}{
		{"a Deny that answers", echolimit.Config{Deny: func(c echo.Context, _ core.Decision) error { return c.String(420, "no") }}, everyone, 420, "no", false},
		{"a Deny with a status", echolimit.Config{Deny: func(c echo.Context, _ core.Decision) error { return c.NoContent(403) }}, everyone, 403, "", false},
		{"a Deny with an HTTPError", echolimit.Config{Deny: func(echo.Context, core.Decision) error { return echo.NewHTTPError(420, "no") }}, everyone, 420, `{"message":"no"}` + "\n", true},
		{"a Deny with another error", echolimit.Config{Deny: func(echo.Context, core.Decision) error { return errors.New("boom") }}, everyone, 500, `{"message":"Internal Server Error"}` + "\n", true},
		{"a Deny that answers and returns an error", echolimit.Config{Deny: func(c echo.Context, _ core.Decision) error {
			return errors.Join(c.String(420, "no"), errors.New("boom"))
		}}, everyone, 420, "no", true},
		{"a Deny that does nothing", echolimit.Config{Deny: func(echo.Context, core.Decision) error { return nil }}, everyone, 429, "", true},
		{"a Fail that answers", echolimit.Config{Fail: func(c echo.Context, _ error) error { return c.String(401, "who?") }}, nobody, 401, "who?", false},
		{"a Fail with an HTTPError", echolimit.Config{Fail: func(_ echo.Context, err error) error {
			return echo.NewHTTPError(401, fmt.Sprint(errors.Is(err, keyfuncs.ErrNoKey)))
		}}, nobody, 401, `{"message":"true"}` + "\n", true},
		{"a Fail that does nothing", echolimit.Config{Fail: func(echo.Context, error) error { return nil }}, nobody, 400, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := one(memory())
			if _, err := limiter.Allow(t.Context(), "~everyone", "a"); err != nil {
				t.Fatal(err)
			}
			e := newEcho()
			var seen error
			outer := func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error { seen = next(c); return seen }
			}
			e.GET("/a", func(echo.Context) error { t.Error("the handler ran"); return nil }, outer, c.cfg.Limit(limiter, c.user, echolimit.Action("a")))
			w := do(e, "GET", "/a")
			if (seen != nil) != c.fails {
				t.Errorf("middleware further out sees %v", seen)
			}
			if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, c.status, c.body)
			}
			if c.body == "" && c.status != 403 && w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("got %v %q, want a problem", w.Header(), w.Body)
			}
		})
	}
}

// Requests that no route matched are one action, and are charged and refused as any
// other: neither a path nor a method that a client makes up is a fresh quota.
func TestUnmatched(t *testing.T) {
	limit := func(store core.Store) echo.MiddlewareFunc {
		return echolimit.Limit(five(store), everyone, echolimit.Route)
	}
	for _, c := range []struct {
		name  string
		mount func(*echo.Echo, echo.MiddlewareFunc)
		none  string // no route, and nothing is registered there
		calls int    // of none
	}{
		{"by Echo.Use", func(e *echo.Echo, m echo.MiddlewareFunc) {
			e.Use(m)
			e.GET("/v1/a", ok)
		}, "/none", 5},
		{"with another method's route there", func(e *echo.Echo, m echo.MiddlewareFunc) {
			e.Use(m)
			e.GET("/v1/a", ok)
			e.PUT("/v1/*", ok)
		}, "/v1/none", 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory()
			e := newEcho()
			c.mount(e, limit(store))
			if w := do(e, "GET", "/v1/a"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "4" {
				t.Fatalf("the route: %d %v", w.Code, w.Header())
			}
			for i, r := range [][2]string{{"GET", "/1"}, {"GET", "/2?x"}, {"MINTED1", "/3"}, {"MINTED2", "/4"}, {"OPTIONS", "/5"}} {
				w := do(e, r[0], c.none+r[1])
				if got := w.Header().Get("X-RateLimit-Remaining"); got != fmt.Sprint(4-i) {
					t.Errorf("%s %s: %d, remaining %q", r[0], r[1], w.Code, got)
				}
			}
			want(t, do(e, "GET", c.none+"/6"), 429, "0")
			want(t, do(e, "DELETE", "/v1/a"), 429, "0")
			if w := do(e, "HEAD", c.none+"/7"); w.Code != 429 || w.Body.Len() > 0 {
				t.Errorf("HEAD: %d %q", w.Code, w.Body)
			}
			if w := do(e, "GET", "/v1/a"); w.Code != 200 || w.Header().Get("X-RateLimit-Remaining") != "3" {
				t.Errorf("the route: %d %v", w.Code, w.Header())
			}
			distinct := slices.Compact(slices.Sorted(slices.Values(store.Actions())))
			if len(distinct) != 2 || !strings.HasPrefix(distinct[0], "~everyone GET /") || distinct[1] != "~everyone unmatched" {
				t.Errorf("the actions are %q", distinct)
			}
		})
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
			c.mount(e, echolimit.Limit(five(store), everyone, echolimit.Route)).GET("/a", ok)
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

// A route of one's own that ends in a star is a route.
func TestWildcards(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount func(*echo.Echo, echo.MiddlewareFunc)
		path  string
		want  string
	}{
		{"of Echo's", func(e *echo.Echo, m echo.MiddlewareFunc) { e.Use(m); e.GET("/files/*", ok) }, "/files/x/y", "GET /files/*"},
		{"of a group's", func(e *echo.Echo, m echo.MiddlewareFunc) { e.Group("/v1", m).GET("/*", ok) }, "/v1/x", "GET /v1/*"},
		{"of a host's", func(e *echo.Echo, m echo.MiddlewareFunc) { e.Host("example.com", m).GET("/*", ok) }, "/x", "GET /*"},
		{"for any method", func(e *echo.Echo, m echo.MiddlewareFunc) { e.Use(m); e.Any("/*", ok) }, "/x", "GET /*"},
		{"of files", func(e *echo.Echo, m echo.MiddlewareFunc) { e.Use(m); e.Static("/static", ".") }, "/static/echolimit.go", "GET /static*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory()
			e := newEcho()
			c.mount(e, echolimit.Limit(five(store), everyone, echolimit.Route))
			want(t, do(e, "GET", c.path), 200, "4")
			if !slices.Equal(store.Actions(), []string{"~everyone " + c.want}) {
				t.Errorf("charged %q", store.Actions())
			}
		})
	}
}

// A method that is not allowed is no match, even where the path has a route.
func TestMethodNotAllowed(t *testing.T) {
	store := memory()
	e := newEcho()
	e.Use(echolimit.Limit(five(store), everyone, echolimit.Route))
	e.GET("/a/:id", ok)
	want(t, do(e, "POST", "/a/7"), 405, "4")
	want(t, do(e, "HEAD", "/a/7"), 405, "3")
	want(t, do(e, "OPTIONS", "/a/7"), 204, "2") // Echo's own answer, with Allow
	want(t, do(e, "OPTIONS", "/a/7", "Origin", "https://a.example", "Access-Control-Request-Method", "GET"), 204, "")
	if got := slices.Compact(store.Actions()); !slices.Equal(got, []string{"~everyone unmatched"}) {
		t.Errorf("charged %q", got)
	}
}

// Another host's route of that method and path is no match.
func TestMethodNotAllowedOnThisHost(t *testing.T) {
	store := memory()
	e := newEcho()
	e.Use(echolimit.Limit(five(store), everyone, echolimit.Route))
	e.Host("a.example").POST("/a", ok)
	e.Host("b.example").GET("/a", ok)
	for _, host := range []string{"a.example", "b.example"} {
		r := httptest.NewRequest("POST", "/a", nil)
		r.Host = host
		e.ServeHTTP(httptest.NewRecorder(), r)
	}
	if !slices.Equal(store.Actions(), []string{"~everyone POST /a", "~everyone unmatched"}) {
		t.Errorf("charged %q", store.Actions())
	}
}

// In e.Pre no route is known, so there all are one action, which is said once.
func TestPre(t *testing.T) {
	echolimit.ForgetPre()
	log := gatetest.Capture(t)
	store := memory()
	e := newEcho()
	e.Pre(echolimit.Limit(five(store), everyone, echolimit.Route))
	e.GET("/a", ok)
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
	e.GET("/a", ok)
	for range 300 {
		do(e, "GET", "/none")
		do(e, "POST", "/a")
	}
	if got := log.Take("echolimit"); got != nil {
		t.Errorf("said %q", got)
	}
}

// Value reads what c.Set has stored; what cannot be a key is the program's mistake.
func TestValue(t *testing.T) {
	for _, c := range []struct {
		stored any
		status int
		user   string
	}{
		{"laoqian", 200, "laoqian"}, {7, 200, "7"}, {uint32(8), 200, "8"}, {0, 200, "0"},
		{nil, 400, ""}, {"", 400, ""}, {1.5, 500, ""}, {[]byte("x"), 500, ""},
	} {
		t.Run(fmt.Sprintf("%T %v", c.stored, c.stored), func(t *testing.T) {
			store := memory()
			e := newEcho()
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(ec echo.Context) error { ec.Set("user", c.stored); return next(ec) }
			})
			e.GET("/a", ok, echolimit.Limit(five(store), echolimit.Value("user"), echolimit.Action("a")))
			if w := do(e, "GET", "/a"); w.Code != c.status {
				t.Errorf("got %d, want %d", w.Code, c.status)
			}
			if got := strings.Join(store.Actions(), ""); c.status == 200 && got != c.user+" a" || c.status != 200 && got != "" {
				t.Errorf("charged %q", got)
			}
		})
	}
}

// Whatever a client says of its address, and whatever Echo believes of it, the peer
// is one user.
func TestTheAddressIsThePeers(t *testing.T) {
	store := memory()
	e := newEcho()
	believed := map[string]bool{}
	e.GET("/a", func(c echo.Context) error { believed[c.RealIP()] = true; return nil },
		echolimit.Limit(five(store), echolimit.From(keyfuncs.RemoteIP), echolimit.Route))
	for i := range 5 {
		ip := fmt.Sprintf("6.6.6.%d", i)
		do(e, "GET", "/a", "X-Forwarded-For", ip, "X-Real-IP", ip)
	}
	want(t, do(e, "GET", "/a", "X-Forwarded-For", "6.6.6.6"), 429, "0")
	if len(believed) != 5 {
		t.Fatalf("Echo should have been fooled: %v", believed)
	}
	if got := slices.Compact(store.Actions()); !slices.Equal(got, []string{"192.0.2.1 GET /a"}) {
		t.Errorf("charged %q", got)
	}
}

// The functions that serve all frameworks serve Echo's.
func TestCombined(t *testing.T) {
	store := memory()
	who := keyfuncs.First(echolimit.Value("user"), echolimit.From(keyfuncs.RemoteIP))
	what := keyfuncs.Join(echolimit.Route, func(c echo.Context) (string, error) { return c.Param("id"), nil })
	e := newEcho()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if u := c.Request().Header.Get("X-User"); u != "" {
				c.Set("user", u)
			}
			return next(c)
		}
	})
	e.GET("/a/:id", ok, echolimit.Limit(five(store), who, what))
	do(e, "GET", "/a/7", "X-User", "laoqian")
	do(e, "GET", "/a/7")
	if want := []string{"laoqian [GET /a/:id]:7", "~2:192.0.2.1 [GET /a/:id]:7"}; !slices.Equal(store.Actions(), want) {
		t.Errorf("charged %q, want %q", store.Actions(), want)
	}
}

// The handler has Echo's own response around the server's own writer.
func TestTheWriterIsNotWrapped(t *testing.T) {
	ran := gatetest.NewRan(t, 1)
	e := newEcho()
	w := httptest.NewRecorder()
	var before *echo.Response
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { before = c.Response(); return next(c) }
	})
	e.GET("/a", func(c echo.Context) error {
		ran.Now()
		if c.Response() != before || c.Response().Writer != http.ResponseWriter(w) {
			t.Errorf("got a %T around a %T", c.Response(), c.Response().Writer)
		}
		return nil
	}, echolimit.Config{Keep: true}.Limit(five(memory()), everyone, echolimit.Route))
	e.ServeHTTP(w, httptest.NewRequest("GET", "/a", nil))
}

// A decision is only what Keep has kept.
func TestDecision(t *testing.T) {
	ran := gatetest.NewRan(t, 2)
	e := newEcho()
	e.GET("/a", func(c echo.Context) error {
		ran.Now()
		if d, ok := echolimit.Decision(c); !ok || d.Remaining != 4 || d.Limit != 5 || !d.Allowed {
			t.Errorf("got %v, %t", d, ok)
		}
		return nil
	}, func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			ran.Now()
			if _, ok := echolimit.Decision(c); ok {
				t.Error("a decision before there is one")
			}
			return next(c)
		}
	}, echolimit.Config{Keep: true}.Limit(five(memory()), everyone, echolimit.Route))
	do(e, "GET", "/a")
}

// The status that settles a request is the one that Echo's error handler will send.
func TestSettle(t *testing.T) {
	inner := &echo.HTTPError{Code: 500, Message: "outer", Internal: echo.NewHTTPError(404, "inner")}
	for _, c := range []struct {
		name   string
		do     echo.HandlerFunc
		status int
		panics bool
	}{
		{"nothing", func(echo.Context) error { return nil }, 200, false},
		{"a status", func(c echo.Context) error { return c.NoContent(204) }, 204, false},
		{"JSON", func(c echo.Context) error { return c.JSON(201, 1) }, 201, false},
		{"an HTTPError", func(echo.Context) error { return echo.NewHTTPError(404, "none") }, 404, false},
		{"an HTTPError in one", func(echo.Context) error { return inner }, 404, false},
		{"a wrapped HTTPError", func(echo.Context) error { return fmt.Errorf("in %w", echo.ErrNotFound) }, 500, false},
		{"any other error", func(echo.Context) error { return errors.New("boom") }, 500, false},
		{"an error after a response", func(c echo.Context) error { return errors.Join(c.NoContent(202), errors.New("late")) }, 202, false},
		{"an error that was answered", func(c echo.Context) error { c.Error(echo.ErrForbidden); return nil }, 403, false},
		{"a panic", func(echo.Context) error { panic("mine") }, 500, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var settled []int
			limiter := five(memory())
			e := newEcho()
			e.GET("/a", c.do, echolimit.Config{FinalCost: func(c echo.Context, status int) int {
				if c.Path() != "/a" {
					t.Errorf("the request is another: %q", c.Path())
				}
				settled = append(settled, status)
				return 0
			}}.Limit(limiter, everyone, echolimit.Action("a")))
			code := c.status
			func() {
				defer func() {
					if v := recover(); (v != nil) != c.panics {
						t.Errorf("panicked with %v", v)
					}
				}()
				code = do(e, "GET", "/a").Code
			}()
			if !slices.Equal(settled, []int{c.status}) || code != c.status {
				t.Errorf("answered %d and settled %v, want %d", code, settled, c.status)
			}
			if d, err := limiter.Peek(t.Context(), "~everyone", "a"); err != nil || d.Remaining != 5 {
				t.Errorf("%d remain, %v", d.Remaining, err)
			}
		})
	}
}

// The central error handler sees what Allow refuses inside a handler.
func TestAllowReturnsTheProblem(t *testing.T) {
	limiter := one(memory())
	e := newEcho()
	var seen error
	e.HTTPErrorHandler = func(err error, c echo.Context) { seen = err; e.DefaultHTTPErrorHandler(err, c) }
	e.GET("/a", func(c echo.Context) error {
		if err := echolimit.Allow(c, limiter, "laoqian", "a", 1); err != nil {
			return err
		}
		return c.String(200, "ok")
	})
	want(t, do(e, "GET", "/a"), 200, "0")
	want(t, do(e, "GET", "/a"), 429, "0")
	if he, ok := seen.(*echo.HTTPError); !ok || he.Code != 429 || he.Message.(*echolimit.Problem).Status != 429 {
		t.Errorf("the central handler saw %#v", seen)
	}
}
