package gate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
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
var perIP = map[string]func(max int, period time.Duration, proxies ...netip.Prefix) http.Handler{
	"nethttp": func(max int, period time.Duration, proxies ...netip.Prefix) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
		return nethttp.PerIP(max, period, proxies...)(mux)
	},
	"ginlimit": func(max int, period time.Duration, proxies ...netip.Prefix) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		e.Use(ginlimit.PerIP(max, period, proxies...))
		ok := func(c *gin.Context) { c.Status(http.StatusOK) }
		e.GET("/a", ok)
		e.GET("/b", ok)
		return e
	},
	"echolimit": func(max int, period time.Duration, proxies ...netip.Prefix) http.Handler {
		e := echo.New()
		e.Use(echolimit.PerIP(max, period, proxies...))
		ok := func(c echo.Context) error { return c.NoContent(http.StatusOK) }
		e.GET("/a", ok)
		e.GET("/b", ok)
		return e
	},
	"echolimit/echov5": func(max int, period time.Duration, proxies ...netip.Prefix) http.Handler {
		e := echo5.New()
		e.Use(echolimit5.PerIP(max, period, proxies...))
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

// Behind a proxy the client is in the header, and a panic names the call that is to change.
func TestPerIPBehindAProxy(t *testing.T) {
	proxy := netip.MustParsePrefix("10.1.2.0/24")
	for name, mount := range perIP {
		t.Run(name, func(t *testing.T) {
			trusting := mount(1, time.Minute, proxy)
			for i, step := range []struct {
				peer, header, line string
				want               int
			}{
				{"10.1.2.3:1", "X-Forwarded-For", "6.6.6.6, 203.0.113.9", 200},
				{"10.1.2.4:1", "X-Forwarded-For", "6.6.6.7, 203.0.113.9:80", 429},
				{"10.1.2.3:1", "X-Forwarded-For", "203.0.113.10", 200},
				{"10.1.2.3:1", "Forwarded", `for="203.0.113.9:80"`, 429},
				{"203.0.113.11:1", "X-Forwarded-For", "6.6.6.8", 200},
				{"203.0.113.11:1", "X-Forwarded-For", "6.6.6.9", 429},
			} {
				r := httptest.NewRequest("GET", "/a", nil)
				r.RemoteAddr = step.peer
				r.Header.Set(step.header, step.line)
				w := httptest.NewRecorder()
				if trusting.ServeHTTP(w, r); w.Code != step.want {
					t.Errorf("step %d: got %d, want %d", i, w.Code, step.want)
				}
			}
			said := recovered(func() { mount(1, time.Minute, netip.MustParsePrefix("0.0.0.0/0")) })
			if !strings.Contains(said, "keyfuncs: "+strings.TrimSuffix(name, "/echov5")+".PerIP: prefix 1, 0.0.0.0/0, trusts every peer") {
				t.Errorf("a prefix that trusts every peer: recovered %s", said)
			}
		})
	}
}

func recovered(f func()) (said string) {
	defer func() { said = fmt.Sprint(recover()) }()
	f()
	return ""
}

func TestPerIPPanicsOutOfBounds(t *testing.T) {
	for name, mount := range perIP {
		for _, max := range []int{0, 10_001} {
			if said := recovered(func() { mount(max, time.Minute) }); !strings.Contains(said, "SlidingWindow") {
				t.Errorf("%s, max %d: recovered %s", name, max, said)
			}
		}
	}
}
