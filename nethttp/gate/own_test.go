package gate_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/echolimit"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What a handler does to the values of one response changes no other value and no other
// response.
func TestHeaderValuesAreNotShared(t *testing.T) {
	two := func(s core.Store) *core.Limiter {
		return core.Must(core.New(s, core.FixedWindow(5, time.Minute), core.FixedWindow(500, time.Hour)))
	}
	for _, c := range []struct {
		name  string
		store func() core.Store
		cfg   nethttp.Config
		user  string
		n     int // headers of ours, but for Reset
	}{
		{"allowed", decides(allowed), nethttp.Config{}, "alice", 2},
		{"allowed, with IETF", decides(allowed), nethttp.Config{Headers: gate.XRateLimitAndIETF}, "alice", 4},
		{"allowed, with Keep", decides(allowed), nethttp.Config{Keep: true}, "alice", 2},
		{"refused", decides(refusal), nethttp.Config{}, "alice", 4},
		{"refused forever", decides(core.Decision{RetryAfter: core.Never}), nethttp.Config{}, "alice", 3},
		{"refused, with IETF", decides(refusal), nethttp.Config{Headers: gate.XRateLimitAndIETF}, "alice", 6},
		{"no answer", fails("boom"), nethttp.Config{Headers: gate.XRateLimitAndIETF}, "alice", 6},
		{"no user", decides(allowed), nethttp.Config{}, "", 1},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				gatetest.Capture(t)
				h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: []gatetest.Limit{{Limiter: two(c.store()), Config: &c.cfg}}}}}.Filled())
				ask := func() http.Header {
					r := httptest.NewRequest("POST", "/replies/7", nil)
					if c.user != "" {
						r.Header.Set("X-User-ID", c.user)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					got := w.Header() // the very map, not the copy in a Result
					delete(got, "Content-Type")
					delete(got, "Content-Length")
					delete(got, "X-Ratelimit-Reset") // another second
					return got
				}
				first := ask()
				want := first.Clone()
				if n := len(want); n != c.n {
					t.Fatalf("%d headers, want %d: %v", n, c.n, want)
				}
				for name := range first {
					_ = append(first[name], "more")
				}
				for name := range first {
					if !slices.Equal(first[name], want[name]) {
						t.Errorf("after adding to others %s is %q, want %q", name, first[name], want[name])
					}
				}
				for name := range first {
					first[name][0] = "changed"
				}
				second := ask()
				for name := range want {
					if !slices.Equal(second[name], want[name]) {
						t.Errorf("%s: %q, want %q", name, second[name], want[name])
					}
				}
			})
		}
	}
}

// A middleware that is mounted twice is told of once, and none that is right.
func TestChargedTwice(t *testing.T) {
	warned := []string{"WARN adapter: each request was charged twice for one action; the middleware is mounted twice, maybe on a group and on a route of it, or the limiters of two share a state: remove one, or give it another action | charged-twice"}
	type mounted struct{ twice, between, free bool }
	limiter := func() *core.Limiter {
		return core.Must(core.New(memory(), core.FixedWindow(1000, time.Hour)))
	}
	config := func(m mounted) nethttp.Config {
		if m.free {
			return *costs(0, nil)
		}
		return nethttp.Config{}
	}
	mounts := map[string]func(mounted) http.Handler{
		"nethttp": func(m mounted) http.Handler {
			limit := config(m).Limit(limiter(), keyfuncs.Everyone, keyfuncs.Action("x"))
			other := nethttp.Limit(limiter(), keyfuncs.Everyone, keyfuncs.Action("x"))
			var h http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
			if m.twice {
				h = limit(h)
			}
			if m.between {
				h = other(h)
			}
			return limit(h)
		},
		"ginlimit": func(m mounted) http.Handler {
			everyone, x := ginlimit.From(keyfuncs.Everyone), ginlimit.Action("x")
			limit := ginConfig(config(m)).Limit(limiter(), everyone, x)
			e := gin.New()
			e.Use(limit)
			if m.between {
				e.Use(ginlimit.Limit(limiter(), everyone, x))
			}
			if m.twice {
				e.Use(limit)
			}
			e.GET("/", func(*gin.Context) {})
			return e
		},
		"echolimit": func(m mounted) http.Handler {
			everyone, x := echolimit.From(keyfuncs.Everyone), echolimit.Action("x")
			limit := echoConfig(config(m)).Limit(limiter(), everyone, x)
			e := echo.New()
			e.Use(limit)
			if m.between {
				e.Use(echolimit.Limit(limiter(), everyone, x))
			}
			if m.twice {
				e.Use(limit)
			}
			e.GET("/", func(echo.Context) error { return nil })
			return e
		},
	}
	mounts["echolimit/echov5"] = func(m mounted) http.Handler { return limitedTwice(limiter, config(m), m.between, m.twice) }
	for _, c := range []struct {
		name string
		m    mounted
		want []string
	}{
		{"once", mounted{}, nil},
		{"twice", mounted{twice: true}, warned},
		{"beside another of the same numbers", mounted{between: true}, nil},
		{"twice for nothing", mounted{twice: true, free: true}, nil},
	} {
		for name, mount := range mounts {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				log := gatetest.Capture(t)
				h := mount(c.m)
				for range 5 {
					if w := gatetest.Do(h, "GET", "/"); w.Code != 200 {
						t.Fatalf("%d", w.Code)
					}
				}
				if got := log.Take(pkg(name)); !slices.Equal(got, c.want) {
					t.Errorf("said %q, want %q", got, c.want)
				}
			})
		}
	}
}

// It is told by the numbers: of one limiter in two middlewares, and of two limiters that share a state.
func TestChargedTwiceByTwoMiddlewares(t *testing.T) {
	window := func(s core.Store, max int) *core.Limiter {
		return core.Must(core.New(s, core.FixedWindow(max, time.Hour)))
	}
	users := []string{"alice", "bob", "carol", "dave", "erin"}
	for _, c := range []struct {
		name   string
		limits func(core.Store) []gatetest.Limit // outermost first
		want   bool
	}{
		{"one limiter", func(s core.Store) []gatetest.Limit {
			l := window(s, 1000)
			return []gatetest.Limit{{Limiter: l}, {Limiter: l}}
		}, true},
		{"a larger one inside", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 500)}, {Limiter: window(s, 1000)}}
		}, true},
		{"a smaller one inside", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: window(s, 500)}}
		}, true},
		{"two that share nothing", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: window(s, 500), Action: keyfuncs.Action("another")}}
		}, false},
		{"another, of which each user has used one more", func(s core.Store) []gatetest.Limit {
			day := core.Must(core.New(s, core.FixedWindow(500, 24*time.Hour)))
			for _, user := range users {
				if _, err := day.Allow(t.Context(), user, "another"); err != nil {
					t.Fatal(err)
				}
			}
			return []gatetest.Limit{{Limiter: window(s, 1000)}, {Limiter: day, Action: keyfuncs.Action("another")}}
		}, false},
		{"a limit that costs nothing around one that does", func(s core.Store) []gatetest.Limit {
			return []gatetest.Limit{{Limiter: window(s, 1000), Config: costs(0, nil)}, {Limiter: window(s, 500), Action: keyfuncs.Action("another")}}
		}, false},
	} {
		for _, ad := range adapters {
			t.Run(c.name+"/"+ad.Name, func(t *testing.T) {
				log := gatetest.Capture(t)
				synctest.Test(t, func(t *testing.T) { // no second passes
					h := ad.Mount(gatetest.App{Routes: []gatetest.Route{{Limits: c.limits(memory())}}}.Filled())
					for _, user := range users {
						if w := gatetest.Do(h, "POST", "/replies/7", "X-User-ID", user); w.Code != 200 {
							t.Fatalf("%d", w.Code)
						}
					}
				})
				if got := log.Take(pkg(ad.Name)); (len(got) == 1 && strings.HasSuffix(got[0], "| charged-twice")) != c.want || !c.want && got != nil {
					t.Errorf("said %q; told: want %t", got, c.want)
				}
			})
		}
	}
}

// Another limit of the same numbers, of which the user has used one unit more, is not told of.
func TestChargedTwiceByChance(t *testing.T) {
	log := gatetest.Capture(t)
	outer, inner := core.Must(core.New(memory(), core.FixedWindow(1000, time.Hour))), core.Must(core.New(memory(), core.FixedWindow(1000, time.Hour)))
	everyone, x := keyfuncs.Everyone, keyfuncs.Action("x")
	h := nethttp.Limit(outer, everyone, x)(nethttp.Limit(inner, everyone, x)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	gatetest.Do(h, "GET", "/")
	if _, err := inner.Allow(t.Context(), "~everyone", "x"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		gatetest.Do(h, "GET", "/")
	}
	if got := log.Take("nethttp"); got != nil {
		t.Errorf("said %q", got)
	}
}

// A middleware that compresses what is written has set Content-Encoding for the problem
// too.
func TestAProblemStaysCompressed(t *testing.T) {
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			h := ad.Mount(gatetest.App{Routes: reply(nil)(decides(refusal)())}.Filled())
			w := httptest.NewRecorder()
			w.Header().Set("Content-Encoding", "rot")
			r := httptest.NewRequest("POST", "/replies/7", nil)
			r.Header.Set("X-User-ID", "alice")
			h.ServeHTTP(compresses{w}, r)
			if got := w.Header().Get("Content-Encoding"); w.Code != 429 || got != "rot" || w.Body.Len() == 0 {
				t.Errorf("%d, Content-Encoding %q, %s", w.Code, got, w.Body)
			}
		})
	}
}

// So has one of the framework, which puts its writer inside the framework's.
func TestAProblemStaysCompressedInAFramework(t *testing.T) {
	limiter := core.Must(core.New(decides(refusal)(), core.FixedWindow(5, time.Minute)))
	g := gin.New()
	g.Use(func(c *gin.Context) {
		c.Header("Content-Encoding", "rot")
		c.Writer = ginCompresses{c.Writer}
	}, ginlimit.Limit(limiter, ginlimit.From(keyfuncs.Everyone), ginlimit.Action("x")))
	g.GET("/", func(*gin.Context) {})
	e := echo.New()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set("Content-Encoding", "rot")
			c.Response().Writer = compresses{c.Response().Writer}
			return next(c)
		}
	}, echolimit.Limit(limiter, echolimit.From(keyfuncs.Everyone), echolimit.Action("x")))
	e.GET("/", func(echo.Context) error { return nil })
	for name, h := range map[string]http.Handler{"ginlimit": g, "echolimit": e, "echolimit/echov5": compressedEchoV5(limiter)} {
		w := gatetest.Do(h, "GET", "/")
		if got := w.Header().Get("Content-Encoding"); w.Code != 429 || got != "rot" || w.Body.Len() == 0 {
			t.Errorf("%s: %d, Content-Encoding %q, %s", name, w.Code, got, w.Body)
		}
	}
}

type ginCompresses struct{ gin.ResponseWriter }

// compresses stands for a writer that changes the body.
type compresses struct{ http.ResponseWriter }

func (c compresses) Write(b []byte) (int, error) { return c.ResponseWriter.Write(b) }

func (c compresses) WriteString(s string) (int, error) { return io.WriteString(c.ResponseWriter, s) }

func (c compresses) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// What a Deny does to the connection without writing is not an answer; what it
// flushes is.
func TestDenyWithAResponseController(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*http.ResponseController) error
		want int
	}{
		{"a deadline is not an answer", func(rc *http.ResponseController) error { return rc.SetWriteDeadline(time.Now().Add(time.Hour)) }, 429},
		{"a flush answers 200", (*http.ResponseController).Flush, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range gatetest.Serve(t) {
				s.Mount(mountNetHTTP(gatetest.App{Routes: reply(&nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) {
					if err := c.do(http.NewResponseController(w)); err != nil {
						t.Error(err)
					}
				}})(decides(refusal)())}.Filled()))
				resp, err := post(t, s)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body) // until Deny has returned
				resp.Body.Close()
				if resp.StatusCode != c.want {
					t.Errorf("%s: got %s, want %d", s.Proto, resp.Status, c.want)
				}
			}
		})
	}
}
