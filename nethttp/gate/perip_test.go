package gate_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/echolimit"
	echolimit5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/nethttp"
)

// perIP mounts the PerIP of each adapter on GET /a and GET /b together.
var perIP = map[string]func(max int, period time.Duration) http.Handler{
	"nethttp": func(max int, period time.Duration) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
		return nethttp.PerIP(max, period)(mux)
	},
	"ginlimit": func(max int, period time.Duration) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		e.Use(ginlimit.PerIP(max, period))
		ok := func(c *gin.Context) { c.Status(http.StatusOK) }
		e.GET("/a", ok)
		e.GET("/b", ok)
		return e
	},
	"echolimit": func(max int, period time.Duration) http.Handler {
		e := echo.New()
		e.Use(echolimit.PerIP(max, period))
		ok := func(c echo.Context) error { return c.NoContent(http.StatusOK) }
		e.GET("/a", ok)
		e.GET("/b", ok)
		return e
	},
	"echolimit/echov5": func(max int, period time.Duration) http.Handler {
		e := echo5.New()
		e.Use(echolimit5.PerIP(max, period))
		ok := func(c *echo5.Context) error { return c.NoContent(http.StatusOK) }
		e.GET("/a", ok)
		e.GET("/b", ok)
		return e
	},
}

func TestPerIPCountsTheRoutesOfAnAddressTogether(t *testing.T) {
	for name, mount := range perIP {
		t.Run(name, func(t *testing.T) {
			h, other := mount(2, time.Minute), mount(2, time.Minute)
			ask := func(h http.Handler, path, peer string) int {
				r := httptest.NewRequest("GET", path, nil)
				r.RemoteAddr = peer
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			for i, step := range []struct {
				h          http.Handler
				path, peer string
				want       int
			}{
				{h, "/a", "203.0.113.9:1", 200},
				{h, "/b", "203.0.113.9:2", 200},
				{h, "/a", "203.0.113.9:3", 429},
				{h, "/a", "203.0.113.10:1", 200},
				{other, "/a", "203.0.113.9:4", 200}, // a store of its own
			} {
				if got := ask(step.h, step.path, step.peer); got != step.want {
					t.Errorf("step %d: got %d, want %d", i, got, step.want)
				}
			}
		})
	}
}

func TestPerIPPanicsOutOfBounds(t *testing.T) {
	for name, mount := range perIP {
		for _, max := range []int{0, 10_001} {
			func() {
				defer func() {
					if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), "SlidingWindow") {
						t.Errorf("%s, max %d: recovered %v", name, max, err)
					}
				}()
				mount(max, time.Minute)
			}()
		}
	}
}
