package echolimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	echolimit "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// Two replies a minute, per user. Recovery, CORS and authentication come before the
// limit.
func ExampleLimit() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(2, time.Minute)))

	e := echo.New()
	e.Use(cors, auth) // and middleware.Recover() before them
	e.POST("/posts/:id/replies", func(c *echo.Context) error { return c.NoContent(http.StatusCreated) },
		echolimit.Limit(replies, echolimit.Value("user"), echolimit.Action("reply")))

	for range 3 {
		r := httptest.NewRequest("POST", "/posts/42/replies", nil)
		r.Header.Set("Authorization", "Bearer of alice")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Printf("%d, remaining %s, retry after %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 201, remaining 1, retry after ""
	// 201, remaining 0, retry after ""
	// 429, remaining 0, retry after "60"
}

// cors does in short what middleware.CORSWithConfig does with ExposeHeaders: nethttp.ExposedHeaders().
func cors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		h := c.Response().Header()
		h.Set(echo.HeaderAccessControlAllowOrigin, "https://app.example")
		h.Set(echo.HeaderAccessControlExposeHeaders, strings.Join(nethttp.ExposedHeaders(), ", "))
		return next(c)
	}
}

func auth(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		user, ok := strings.CutPrefix(c.Request().Header.Get(echo.HeaderAuthorization), "Bearer of ")
		if !ok {
			return echo.ErrUnauthorized
		}
		c.Set("user", user)
		return next(c)
	}
}

// Plans, a cost by the request, and a Deny whose error goes to the central error handler.
func ExampleConfig() {
	store := memorystore.New(nil)
	free := core.Must(core.New(store, core.FixedWindow(10, time.Hour)))
	paid := core.Must(core.New(store, core.FixedWindow(1000, time.Hour)))

	exports := echolimit.Config{
		Limiter: func(c *echo.Context) (*core.Limiter, error) {
			if c.Request().Header.Get("X-Plan") == "paid" {
				return paid, nil
			}
			return nil, nil // free
		},
		Cost: func(c *echo.Context) (int, error) {
			if c.QueryParam("format") == "pdf" {
				return 8, nil
			}
			return 1, nil
		},
		Deny: func(*echo.Context, core.Decision) error {
			return echo.NewHTTPError(http.StatusTooManyRequests, "upgrade")
		},
		Keep: true,
	}
	e := echo.New()
	e.GET("/export", func(c *echo.Context) error {
		d, _ := echolimit.Decision(c)
		return c.String(http.StatusOK, fmt.Sprintf("an export; %d units are left", d.Remaining))
	}, exports.Limit(free, echolimit.From(keyfuncs.Header("X-User-ID")), echolimit.Route))

	for _, plan := range []string{"free", "free", "paid"} {
		r := httptest.NewRequest("GET", "/export?format=pdf", nil)
		r.Header.Set("X-User-ID", "alice")
		r.Header.Set("X-Plan", plan)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Println(plan, w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// free 200 an export; 2 units are left
	// free 429 {"message":"upgrade"}
	// paid 200 an export; 984 units are left
}

// A central error handler that answers refusals with its own page.
func ExampleProblem() {
	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute)))

	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		var p *echolimit.Problem
		if errors.As(err, &p) {
			_ = c.HTML(p.Status, fmt.Sprintf("<h1>%s</h1>Try again in %d s.", p.Title, p.RetryAfter))
			return
		}
		echo.DefaultHTTPErrorHandler(false)(c, err)
	}
	e.POST("/replies", func(c *echo.Context) error { return c.String(http.StatusCreated, "a reply") },
		echolimit.Limit(replies, echolimit.From(keyfuncs.RemoteIP), echolimit.Action("reply")))

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("POST", "/replies", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 201 a reply
	// 429 <h1>Too many requests</h1>Try again in 60 s.
}

// Only the handler knows who logs in. Failures are counted, and right passwords are not: see
// core.OnlyFailures.
func ExampleAllow() {
	store := memorystore.New(nil)
	perAddress := core.Must(core.New(store, core.SlidingWindow(20, 15*time.Minute)))
	perName := core.Must(core.New(store, core.SlidingWindow(1, 15*time.Minute)))
	perName = core.Must(perName.With(core.OnlyFailures{}))

	e := echo.New()
	e.POST("/login", func(c *echo.Context) error {
		var login struct{ Name, Password string }
		if err := json.NewDecoder(c.Request().Body).Decode(&login); err != nil {
			return echo.ErrBadRequest
		}
		address, _ := keyfuncs.RemoteIP(c.Request()) // or anybody could lock the name's owner out
		who, ctx := login.Name+" from "+address, context.WithoutCancel(c.Request().Context())
		d := echolimit.Allow(c, perName, who, "login", 1)
		if !d.Allowed {
			return nil // Allow has answered
		}
		defer perName.Release(ctx, d)
		if login.Password == "secret" {
			return c.NoContent(http.StatusOK)
		}
		_, _ = perName.Surcharge(ctx, who, "login", 1) // an error means that it is not counted: log it
		return c.String(http.StatusUnauthorized, "wrong password")
	}, echolimit.Limit(perAddress, echolimit.From(keyfuncs.RemoteIP), echolimit.Action("login-address")))

	for range 2 {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("POST", "/login", strings.NewReader(`{"name": "alice"}`)))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 401 0
	// 429 0
}
