package gate_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	echolimit5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// reentries are servers whose handler of /old has the framework serve the request again, as /new, by
// each way that it has. The limit is around both.
var reentries = map[string]func(*core.Limiter, nethttp.Config) http.Handler{
	"nethttp": func(l *core.Limiter, cfg nethttp.Config) http.Handler {
		mux := http.NewServeMux()
		limit := cfg.Limit(l, keyfuncs.Everyone, keyfuncs.Action("x"))
		mux.Handle("/old", limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.Clone(r.Context())
			r.URL.Path = "/new"
			mux.ServeHTTP(w, r)
		})))
		mux.Handle("/new", limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) })))
		return mux
	},
	"ginlimit": func(l *core.Limiter, cfg nethttp.Config) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		e.Use(ginConfig(cfg).Limit(l, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("x")))
		e.GET("/old", func(c *gin.Context) {
			c.Request.URL.Path = "/new"
			e.HandleContext(c)
		})
		e.GET("/new", func(c *gin.Context) { c.Status(202) })
		return e
	},
	"echolimit": func(l *core.Limiter, cfg nethttp.Config) http.Handler {
		e := echo.New()
		limit := echoConfig(cfg).Limit(l, echolimit.From(keyfuncs.Everyone), echolimit.Action("x"))
		e.GET("/old", func(c echo.Context) error {
			e.Router().Find("GET", "/new", c)
			return c.Handler()(c)
		}, limit)
		e.GET("/new", func(c echo.Context) error { return c.NoContent(202) }, limit)
		return e
	},
	"echolimit/a new context": func(l *core.Limiter, cfg nethttp.Config) http.Handler {
		e := echo.New()
		e.Use(echoConfig(cfg).Limit(l, echolimit.From(keyfuncs.Everyone), echolimit.Action("x")))
		e.GET("/old", func(c echo.Context) error {
			c.Request().URL.Path = "/new"
			e.ServeHTTP(c.Response(), c.Request())
			return nil
		})
		e.GET("/new", func(c echo.Context) error { return c.NoContent(202) })
		return e
	},
	"echolimit/echov5": func(l *core.Limiter, cfg nethttp.Config) http.Handler {
		e := newEchoV5()
		limit := echoV5Config(cfg).Limit(l, echolimit5.From(keyfuncs.Everyone), echolimit5.Action("x"))
		e.GET("/old", func(c *echov5.Context) error {
			c.Request().URL.Path = "/new"
			return e.Router().Route(c)(c)
		}, limit)
		e.GET("/new", func(c *echov5.Context) error { return c.NoContent(202) }, limit)
		return e
	},
	// A limit of net/http around an engine whose routes have their own.
	"ginlimit/inside nethttp": func(l *core.Limiter, cfg nethttp.Config) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		e.GET("/old", ginConfig(cfg).Limit(l, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("x")), func(c *gin.Context) { c.Status(202) })
		return cfg.Limit(l, keyfuncs.Everyone, keyfuncs.Action("x"))(e)
	},
}

// A request that a framework serves again is charged for each pass, which the log says once, and has one slot.
func TestReentry(t *testing.T) {
	for name, mount := range reentries {
		for kind, limits := range map[string][]core.Limit{
			"slots":            {core.InFlight(1)},
			"slots and a rate": {core.InFlight(1), core.FixedWindow(1000, time.Hour)},
			"a rate":           {core.FixedWindow(1000, time.Hour)},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				log := gatetest.Capture(t)
				synctest.Test(t, func(t *testing.T) {
					limiter := core.Must(core.New(memory(), limits...))
					h := mount(limiter, nethttp.Config{MaxWait: 5 * time.Second})
					begun := time.Now()
					for range 5 {
						if w := gatetest.Do(h, "GET", "/old"); w.Code != 202 {
							t.Fatalf("%d %s", w.Code, w.Body)
						}
					}
					if took := time.Since(begun); took > 0 {
						t.Errorf("it takes %s", took)
					}
					everyone, _ := keyfuncs.Everyone(nil)
					s, err := limiter.Status(t.Context(), everyone, "x")
					if err != nil {
						t.Fatal(err)
					}
					for i, l := range limits {
						want := 1
						if l.Kind() == "fixed" {
							want = 990
						}
						if got := s.Limits[i].Remaining; got != want {
							t.Errorf("of %s remain %d, want %d", &l, got, want)
						}
					}
				})
				if got := log.Take(pkg(name)); len(got) != 1 || !strings.HasSuffix(got[0], "| charged-twice") {
					t.Errorf("log: %q", got)
				}
			})
		}
	}
}

// afterwards are servers that serve a request again when its first pass has ended, and whose handler holds its
// slot.
var afterwards = map[string]func(*core.Limiter, func(release func())) http.Handler{
	"nethttp": func(l *core.Limiter, held func(func())) http.Handler {
		h := nethttp.Limit(l, keyfuncs.Everyone, keyfuncs.Action("x"))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { held(nethttp.Hold(r)) }))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			h.ServeHTTP(w, r)
		})
	},
	"ginlimit": func(l *core.Limiter, held func(func())) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		e := gin.New()
		again := func(c *gin.Context) {
			c.Next()
			c.Request.URL.Path = "/new"
			e.HandleContext(c)
		}
		limit := ginlimit.Limit(l, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("x"))
		handler := func(c *gin.Context) { held(ginlimit.Hold(c)) }
		e.GET("/old", again, limit, handler)
		e.GET("/new", limit, handler)
		return e
	},
	"echolimit": func(l *core.Limiter, held func(func())) http.Handler {
		e := echo.New()
		again := func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { return errors.Join(next(c), next(c)) }
		}
		handler := func(c echo.Context) error { held(echolimit.Hold(c)); return nil }
		e.GET("/old", handler, again, echolimit.Limit(l, echolimit.From(keyfuncs.Everyone), echolimit.Action("x")))
		return e
	},
	"echolimit/echov5": func(l *core.Limiter, held func(func())) http.Handler {
		e := newEchoV5()
		again := func(next echov5.HandlerFunc) echov5.HandlerFunc {
			return func(c *echov5.Context) error { return errors.Join(next(c), next(c)) }
		}
		handler := func(c *echov5.Context) error { held(echolimit5.Hold(c)); return nil }
		e.GET("/old", handler, again, echolimit5.Limit(l, echolimit5.From(keyfuncs.Everyone), echolimit5.Action("x")))
		return e
	},
}

// Gin and Echo leave in the request the slot of the first pass, which has ended. It is none of the second one.
func TestServedAgainAfterwards(t *testing.T) {
	for name, mount := range afterwards {
		t.Run(name, func(t *testing.T) {
			log := gatetest.Capture(t)
			limiter := core.Must(core.New(memory(), core.InFlight(1)))
			everyone, _ := keyfuncs.Everyone(nil)
			free := func() int {
				s, err := limiter.Status(t.Context(), everyone, "x")
				if err != nil {
					t.Fatal(err)
				}
				return s.Limits[0].Remaining
			}
			var releases []func()
			h := mount(limiter, func(release func()) {
				if releases = append(releases, release); len(releases) == 1 {
					release()
				}
			})
			if w := gatetest.Do(h, "GET", "/old"); w.Code != 200 || len(releases) != 2 || free() != 0 {
				t.Errorf("%d after %d passes, %d slots are free", w.Code, len(releases), free())
			}
			if releases[1](); free() != 1 {
				t.Error("the slot is not free after its release")
			}
			if got := log.Take(pkg(name)); got != nil {
				t.Errorf("log: %q", got)
			}
		})
	}
}
