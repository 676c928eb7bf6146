package ginlimit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// What every adapter answers is tested in package nethttp/gate, for all of them by one
// table: run go test ./nethttp/gate. Here is what only Gin has.

func init() {
	gin.SetMode(gin.ReleaseMode)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // package nethttp/gate tests what is logged
}

var everyone = ginlimit.From(keyfuncs.Everyone)

var memory, five, one, do, want = gatetest.Memory, gatetest.Five, gatetest.One, gatetest.Do, gatetest.Want

// A refusal aborts: no handler and no later middleware runs, and those before see it.
func TestARefusalAborts(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    ginlimit.Config
		user   ginlimit.KeyFunc
		status int
	}{
		"the default answer":       {status: 429},
		"a Deny that answers":      {cfg: ginlimit.Config{Deny: func(c *gin.Context, _ core.Decision) { c.String(420, "no") }}, status: 420},
		"a Deny with a status":     {cfg: ginlimit.Config{Deny: func(c *gin.Context, _ core.Decision) { c.Status(403) }}, status: 403},
		"a Deny that does nothing": {cfg: ginlimit.Config{Deny: func(*gin.Context, core.Decision) {}}, status: 429},
		"a failure":                {user: ginlimit.Value("nobody"), status: 400},
		"a Fail that answers":      {cfg: ginlimit.Config{Fail: func(c *gin.Context, _ error) { c.JSON(401, "no") }}, user: ginlimit.Value("nobody"), status: 401},
		"a Fail that does nothing": {cfg: ginlimit.Config{Fail: func(*gin.Context, error) {}}, user: ginlimit.Value("nobody"), status: 400},
	} {
		t.Run(name, func(t *testing.T) {
			if c.user == nil {
				c.user = everyone
			}
			limiter := one(memory())
			if _, err := limiter.Allow(t.Context(), "~everyone", "a"); err != nil {
				t.Fatal(err)
			}
			aborted := false
			e := gin.New()
			e.Use(func(c *gin.Context) { c.Next(); aborted = c.IsAborted() })
			e.GET("/a", c.cfg.Limit(limiter, c.user, ginlimit.Action("a")),
				func(*gin.Context) { t.Error("a later middleware ran") },
				func(*gin.Context) { t.Error("the handler ran") })
			if w := do(e, "GET", "/a"); w.Code != c.status {
				t.Errorf("got %d, want %d", w.Code, c.status)
			}
			if !aborted {
				t.Error("the chain is not aborted")
			}
		})
	}
}

// What passes is not aborted, and what is not answered by us is left alone.
func TestWhatPassesIsNotAborted(t *testing.T) {
	ran := gatetest.NewRan(t, 1)
	e := gin.New()
	e.GET("/a", ginlimit.Limit(one(memory()), everyone, ginlimit.Action("a")), func(c *gin.Context) {
		ran.Now()
		if c.IsAborted() {
			t.Error("aborted")
		}
		_ = c.AbortWithError(418, errors.New("the handler's own"))
	})
	want(t, do(e, "GET", "/a"), 418, "0")
	want(t, do(e, "GET", "/a"), 429, "0")
}

// Requests that no route matched are one action, and are charged and refused as any
// other: neither a path nor a method that a client makes up is a fresh quota.
func TestUnmatched(t *testing.T) {
	for name, setup := range map[string]func(*gin.Engine){
		"404 of Gin":     func(*gin.Engine) {},
		"405":            func(e *gin.Engine) { e.HandleMethodNotAllowed = true },
		"404 of a route": func(e *gin.Engine) { e.NoRoute(func(c *gin.Context) { c.String(404, "none") }) },
		"405 of a route": func(e *gin.Engine) {
			e.HandleMethodNotAllowed = true
			e.NoMethod(func(c *gin.Context) { c.String(405, "none") })
		},
		"its own group":        func(e *gin.Engine) { e.Group("/g").GET("/a", func(*gin.Context) {}) },
		"a wildcard elsewhere": func(e *gin.Engine) { e.GET("/files/*path", func(*gin.Context) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			store := memory()
			e := gin.New()
			e.Use(ginlimit.Limit(five(store), everyone, ginlimit.Route))
			e.GET("/a", func(c *gin.Context) { c.String(200, "a") })
			setup(e)
			want(t, do(e, "GET", "/a"), 200, "4")
			notAllowed := 404
			if e.HandleMethodNotAllowed {
				notAllowed = 405
			}
			want(t, do(e, "GET", "/none/1"), 404, "4")
			want(t, do(e, "GET", "/none/2?x"), 404, "3")
			want(t, do(e, "MINTED1", "/none/3"), 404, "2")
			want(t, do(e, "MINTED2", "/a"), notAllowed, "1")
			want(t, do(e, "DELETE", "/a"), notAllowed, "0")
			// The refusal is 429 although Gin has its 404 or 405 ready.
			want(t, do(e, "GET", "/none/4"), 429, "0")
			want(t, do(e, "DELETE", "/a"), 429, "0")
			if w := do(e, "HEAD", "/none/5"); w.Code != 429 || w.Body.Len() > 0 {
				t.Errorf("HEAD: %d %q", w.Code, w.Body)
			}
			want(t, do(e, "GET", "/a"), 200, "3")
			distinct := slices.Compact(slices.Sorted(slices.Values(store.Actions())))
			if !slices.Equal(distinct, []string{"~everyone GET /a", "~everyone unmatched"}) {
				t.Errorf("the actions are %q", distinct)
			}
		})
	}
}

// A hook that answers a refused 404 has answered, by the status that Gin has ready too, though Gin adds its body.
func TestDenyOfUnmatched(t *testing.T) {
	for _, status := range []int{420, 404} {
		e := gin.New()
		e.Use(ginlimit.Config{Deny: func(c *gin.Context, _ core.Decision) { c.Status(status) }}.Limit(one(memory()), everyone, ginlimit.Route))
		want(t, do(e, "GET", "/none"), 404, "0")
		if w := do(e, "GET", "/none"); w.Code != status || w.Header().Get("Retry-After") != "60" {
			t.Errorf("got %d %v, want %d", w.Code, w.Header(), status)
		}
	}
}

// A status that an earlier middleware has set is not an answer.
func TestAnEarlierStatus(t *testing.T) {
	e := gin.New()
	e.Use(func(c *gin.Context) { c.Status(202) })
	e.GET("/a", ginlimit.Limit(one(memory()), everyone, ginlimit.Route), func(c *gin.Context) {})
	want(t, do(e, "GET", "/a"), 202, "0")
	want(t, do(e, "GET", "/a"), 429, "0")
}

// Gin redirects before any middleware runs: that is not counted, and what it leads
// to is.
func TestTrailingSlash(t *testing.T) {
	store := memory()
	e := gin.New()
	e.Use(ginlimit.Limit(five(store), everyone, ginlimit.Route))
	e.GET("/a", func(c *gin.Context) { c.String(200, "a") })
	want(t, do(e, "GET", "/a/"), 301, "")
	want(t, do(e, "GET", "/a"), 200, "4")
	if !slices.Equal(store.Actions(), []string{"~everyone GET /a"}) {
		t.Errorf("charged %q", store.Actions())
	}
}

// Value reads what c.Set has stored; what cannot be a key is the program's mistake.
func TestValue(t *testing.T) {
	for _, c := range []struct {
		stored any
		status int
		user   string
	}{
		{"alice", 200, "alice"}, {7, 200, "7"}, {uint32(8), 200, "8"}, {0, 200, "0"},
		{nil, 400, ""}, {"", 400, ""}, {1.5, 500, ""}, {[]byte("x"), 500, ""},
	} {
		t.Run(fmt.Sprintf("%T %v", c.stored, c.stored), func(t *testing.T) {
			store := memory()
			e := gin.New()
			e.Use(func(g *gin.Context) { g.Set("user", c.stored) })
			e.GET("/a", ginlimit.Limit(five(store), ginlimit.Value("user"), ginlimit.Action("a")), func(*gin.Context) {})
			if w := do(e, "GET", "/a"); w.Code != c.status {
				t.Errorf("got %d, want %d", w.Code, c.status)
			}
			if got := strings.Join(store.Actions(), ""); c.status == 200 && got != c.user+" a" || c.status != 200 && got != "" {
				t.Errorf("charged %q", got)
			}
		})
	}
}

// Allow inside a handler aborts what it refuses.
func TestAllowAborts(t *testing.T) {
	limiter := one(memory())
	aborted, ran := false, 0
	e := gin.New()
	e.Use(func(c *gin.Context) { c.Next(); aborted = c.IsAborted() })
	e.GET("/a", func(c *gin.Context) { ginlimit.Allow(c, limiter, "alice", "a", 1) }, func(*gin.Context) { ran++ })
	want(t, do(e, "GET", "/a"), 200, "0")
	if aborted || ran != 1 {
		t.Errorf("passed: aborted %t, ran %d times", aborted, ran)
	}
	want(t, do(e, "GET", "/a"), 429, "0")
	if !aborted || ran != 1 {
		t.Errorf("refused: aborted %t, ran %d times", aborted, ran)
	}
}

// A limit that comes after the handler limits nothing, and says so once.
func TestALimitAfterTheHandler(t *testing.T) {
	answers := func(c *gin.Context) { c.String(200, "done") }
	const said = "WARN adapter: a response was written before its limit decided, so the limit limits nothing; give it before the handler, as in r.POST(path, limit, handler) | after-handler | /a"
	for _, tt := range []struct {
		name  string
		chain func(limit gin.HandlerFunc) []gin.HandlerFunc
		want  []string
	}{
		{"after it", func(limit gin.HandlerFunc) []gin.HandlerFunc { return []gin.HandlerFunc{answers, limit} }, []string{said}},
		{"after one without a body", func(limit gin.HandlerFunc) []gin.HandlerFunc {
			return []gin.HandlerFunc{func(c *gin.Context) { c.Status(204); c.Writer.WriteHeaderNow() }, limit}
		}, []string{said}},
		{"before it", func(limit gin.HandlerFunc) []gin.HandlerFunc { return []gin.HandlerFunc{limit, answers} }, nil},
		{"after a middleware that sets the status and a header", func(limit gin.HandlerFunc) []gin.HandlerFunc {
			return []gin.HandlerFunc{func(c *gin.Context) { c.Status(201); c.Header("X-A", "b") }, limit, answers}
		}, nil},
		{"after a middleware that sends early hints", func(limit gin.HandlerFunc) []gin.HandlerFunc {
			return []gin.HandlerFunc{func(c *gin.Context) { c.Status(103); c.Writer.WriteHeaderNow() }, limit, answers}
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := gatetest.Capture(t)
			e := gin.New()
			e.GET("/a", tt.chain(ginlimit.Limit(five(memory()), everyone, ginlimit.Action("a")))...)
			for range 3 {
				do(e, "GET", "/a")
			}
			if got := log.Take("ginlimit"); !slices.Equal(got, tt.want) {
				t.Errorf("said %q, want %q", got, tt.want)
			}
		})
	}
}
