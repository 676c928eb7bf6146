package migrate

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/keyfuncs"
)

func echoBefore(e *echo.Echo, reply echo.HandlerFunc) {
	store := middleware.NewRateLimiterMemoryStoreWithConfig(
		middleware.RateLimiterMemoryStoreConfig{Rate: 1, Burst: 5})
	e.POST("/posts/:id/replies", reply, middleware.RateLimiter(store))
}

func echoAfter(e *echo.Echo, reply echo.HandlerFunc) {
	replies := core.Must(core.New(memorystore.New(nil), core.TokenBucket(5, core.Per(1, time.Second))))
	e.POST("/posts/:id/replies", reply,
		echolimit.Limit(replies, echolimit.From(keyfuncs.RemoteIP), echolimit.Action("reply")))
}

func TestEchoLimitsAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reply := func(c echo.Context) error { return c.NoContent(http.StatusOK) }
		before, after := echo.New(), echo.New()
		echoBefore(before, reply)
		echoAfter(after, reply)
		same(t, burst(before, 8), burst(after, 8), 5)
		time.Sleep(2500 * time.Millisecond)
		same(t, burst(before, 4), burst(after, 4), 2)

		// A client that invents addresses passes Echo v4's limiter, and not this one.
		forged := func(h http.Handler) (passed int) {
			for i := range 50 {
				r := httptest.NewRequest("POST", "/posts/1/replies", nil)
				r.RemoteAddr = "203.0.113.10:4711"
				r.Header.Set("X-Forwarded-For", "198.51.100."+strconv.Itoa(i))
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code == http.StatusOK {
					passed++
				}
			}
			return passed
		}
		if b, a := forged(before), forged(after); b != 50 || a != 5 {
			t.Errorf("of 50 requests with forged addresses %d pass before and %d after, want 50 and 5", b, a)
		}
	})
}
