package migrate

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/echolimit"
	echolimitv5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
)

func echo4Errors(e *echo.Echo) {
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if failed, ok := errors.AsType[*echo.HTTPError](err); ok {
			if problem, ok := failed.Message.(*echolimit.Problem); ok {
				_ = c.JSON(failed.Code, map[string]string{"error": problem.Detail})
				return
			}
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
}

func echo5Errors(e *echov5.Echo) {
	next := echov5.DefaultHTTPErrorHandler(false)
	e.HTTPErrorHandler = func(c *echov5.Context, err error) {
		if problem, ok := errors.AsType[*echolimitv5.Problem](err); ok {
			_ = c.JSON(problem.Status, map[string]string{"error": problem.Detail})
			return
		}
		next(c, err)
	}
}

func TestEchoErrorsAlike(t *testing.T) {
	replies := func() *core.Limiter {
		return core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute)))
	}
	v4, v5 := echo.New(), echov5.New()
	echo4Errors(v4)
	echo5Errors(v5)
	v4.POST("/posts/:id/replies", func(c echo.Context) error { return c.NoContent(http.StatusOK) },
		echolimit.Limit(replies(), echolimit.From(keyfuncs.RemoteIP), echolimit.Action("reply")))
	v5.POST("/posts/:id/replies", func(c *echov5.Context) error { return c.NoContent(http.StatusOK) },
		echolimitv5.Limit(replies(), echolimitv5.From(keyfuncs.RemoteIP), echolimitv5.Action("reply")))
	same(t, burst(v4, 2), burst(v5, 2), 1)
	for name, h := range map[string]http.Handler{"v4": v4, "v5": v5} {
		for path, want := range map[string]string{
			"/posts/1/replies": `{"error":"The limit of 1 per minute has no room for this at present. Try again in 60 seconds."}`,
			"/nothing":         `{"message":"Not Found"}`,
		} {
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", path, nil)
			r.RemoteAddr = "203.0.113.9:4711"
			h.ServeHTTP(w, r)
			if got := w.Body.String(); got != want+"\n" {
				t.Errorf("%s: %s answers %s, want %s", name, path, got, want)
			}
		}
	}
}
