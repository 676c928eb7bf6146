package gate_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	limitv5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// A middleware outside may keep the answer to itself until the chain has returned. FinalCost and
// the default answer go by what was written, not by what was sent. Package ginlimit tests it of Gin.
func TestInsideAMiddlewareThatBuffers(t *testing.T) {
	var got int
	cfg := nethttp.Config{
		FinalCost: func(_ *http.Request, status int) int { got = status; return 1 },
		Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
			w.Header().Set("Content-Type", "text/own")
			w.WriteHeader(420)
			_, _ = io.WriteString(w, "own")
		},
	}
	everyone := keyfuncs.Everyone
	for name, mount := range map[string]func(*core.Limiter) http.Handler{
		"nethttp": func(l *core.Limiter) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/", cfg.Limit(l, everyone, keyfuncs.Action("x"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })))
			mux.HandleFunc("/allow", func(w http.ResponseWriter, r *http.Request) { cfg.Allow(w, r, l, "~everyone", "x", 1) })
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b := &buffers{ResponseWriter: w}
				mux.ServeHTTP(b, r)
				b.send()
			})
		},
		"echolimit": func(l *core.Limiter) http.Handler {
			e := echo.New()
			e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					b := &buffers{ResponseWriter: c.Response().Writer}
					c.Response().Writer = b
					defer b.send()
					return next(c)
				}
			})
			e.GET("/", func(c echo.Context) error { return c.NoContent(401) }, echoConfig(cfg).Limit(l, echolimit.From(everyone), echolimit.Action("x")))
			e.GET("/allow", func(c echo.Context) error { echoConfig(cfg).Allow(c, l, "~everyone", "x", 1); return nil })
			return e
		},
		"echolimit/echov5": func(l *core.Limiter) http.Handler {
			e := newEchoV5()
			e.Use(func(next echov5.HandlerFunc) echov5.HandlerFunc {
				return func(c *echov5.Context) error {
					b := &buffers{ResponseWriter: c.Response()}
					c.SetResponse(b)
					err := next(c)
					if err != nil { // as a logger does
						c.Echo().HTTPErrorHandler(c, err)
					}
					c.SetResponse(b.ResponseWriter)
					b.send()
					return err
				}
			})
			e.GET("/", func(c *echov5.Context) error { return c.NoContent(401) }, echoV5Config(cfg).Limit(l, limitv5.From(everyone), limitv5.Action("x")))
			e.GET("/allow", func(c *echov5.Context) error { echoV5Config(cfg).Allow(c, l, "~everyone", "x", 1); return nil })
			return e
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := mount(gatetest.One(memory()))
			got = 0
			if w := gatetest.Do(h, "GET", "/"); w.Code != 401 || got != 401 {
				t.Errorf("answered %d, FinalCost got %d, want 401", w.Code, got)
			}
			for _, path := range []string{"/", "/allow"} {
				if w := gatetest.Do(h, "GET", path); w.Code != 420 || w.Body.String() != "own" || w.Header().Get("Content-Type") != "text/own" {
					t.Errorf("%s: Deny's answer is %d %v %q", path, w.Code, w.Header(), w.Body)
				}
			}
		})
	}
}

// buffers sends nothing by itself.
type buffers struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (b *buffers) WriteHeader(status int)      { b.status = status }
func (b *buffers) Write(p []byte) (int, error) { return b.body.Write(p) }
func (b *buffers) Unwrap() http.ResponseWriter { return b.ResponseWriter }
func (b *buffers) send() {
	if b.status != 0 {
		b.ResponseWriter.WriteHeader(b.status)
		_, _ = b.body.WriteTo(b.ResponseWriter)
	}
}
