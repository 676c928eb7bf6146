package ginlimit_test

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/nethttp/gate/gatetest"
)

// The handler has Gin's own writer, which is not wrapped.
func TestTheWriterIsNotWrapped(t *testing.T) {
	ran := gatetest.NewRan(t, 1)
	var before gin.ResponseWriter
	e := gin.New()
	e.GET("/a", func(c *gin.Context) { before = c.Writer },
		ginlimit.Config{Keep: true}.Limit(five(memory()), everyone, ginlimit.Route),
		func(c *gin.Context) {
			ran.Now()
			if c.Writer != before || before == nil {
				t.Errorf("got a %T", c.Writer)
			}
		})
	do(e, "GET", "/a")
}

// With a FinalCost and for Deny the writer is watched. It comes back afterwards, even after a panic.
func TestTheWriterThatIsWatched(t *testing.T) {
	ran := gatetest.NewRan(t, 8)
	e := gin.New()
	e.Use(func(c *gin.Context) {
		ran.Now()
		before := c.Writer
		defer func() {
			_ = recover()
			if c.Writer != before {
				t.Errorf("the limit left a %T", c.Writer)
			}
		}()
		c.Next()
	})
	answers := func(c *gin.Context) {
		ran.Now()
		if c.FullPath() == "/panics" {
			panic("mine")
		}
		c.Status(204)
	}
	limit := ginlimit.Config{
		FinalCost: func(*gin.Context, int) int { return 1 },
		Deny:      func(c *gin.Context, _ core.Decision) { answers(c) },
	}.Limit(one(memory()), everyone, ginlimit.Route)
	for _, path := range []string{"/a", "/panics"} {
		e.GET(path, limit, answers)
		do(e, "GET", path)
		do(e, "GET", path)
	}
}

// The status that FinalCost gets is the one that Gin will send, whoever decides it.
func TestFinalCostStatus(t *testing.T) {
	another := gin.New()
	another.GET("/a", func(c *gin.Context) { c.JSON(201, 1) })
	for name, c := range map[string]struct {
		do     gin.HandlerFunc
		status int
		panics bool
	}{
		"nothing":                 {do: func(*gin.Context) {}, status: 200},
		"a status":                {do: func(c *gin.Context) { c.Status(204) }, status: 204},
		"JSON":                    {do: func(c *gin.Context) { c.JSON(201, 1) }, status: 201},
		"an abort with a status":  {do: func(c *gin.Context) { c.AbortWithStatus(503) }, status: 503},
		"an abort with an error":  {do: func(c *gin.Context) { _ = c.AbortWithError(422, errors.New("x")) }, status: 422},
		"a body, too late to err": {do: func(c *gin.Context) { c.String(200, "x"); c.Writer.Flush(); c.Status(500) }, status: 200},
		"an event after a status": {do: func(c *gin.Context) { c.Status(201); c.SSEvent("x", 1) }, status: 201},
		"a written status":        {do: func(c *gin.Context) { c.Status(204); c.Writer.WriteHeaderNow(); c.Status(500) }, status: 204},
		"a string":                {do: func(c *gin.Context) { _, _ = c.Writer.WriteString("x"); c.Status(500) }, status: 200},
		"early hints":             {do: func(c *gin.Context) { c.Status(103) }, status: 200},
		"another route's status":  {do: func(c *gin.Context) { c.Status(503); another.HandleContext(c) }, status: 201},
		"other protocols":         {do: func(c *gin.Context) { c.Status(101) }, status: 101},
		"a panic after a flush":   {do: func(c *gin.Context) { c.Writer.Flush(); panic("mine") }, status: 200, panics: true},
		"a panic after a body":    {do: func(c *gin.Context) { c.String(202, "x"); panic("mine") }, status: 202, panics: true},
		"a panic":                 {do: func(*gin.Context) { panic("mine") }, status: 500, panics: true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			limiter := five(memory())
			e := gin.New()
			e.GET("/a", ginlimit.Config{FinalCost: func(c *gin.Context, status int) int {
				if c.FullPath() != "/a" {
					t.Errorf("the request is another: %q", c.FullPath())
				}
				got = append(got, status)
				return 0
			}}.Limit(limiter, everyone, ginlimit.Action("a")), c.do)
			func() {
				defer func() {
					if v := recover(); (v != nil) != c.panics {
						t.Errorf("panicked with %v", v)
					}
				}()
				do(e, "GET", "/a")
			}()
			if !slices.Equal(got, []int{c.status}) {
				t.Errorf("FinalCost got %v, want %d", got, c.status)
			}
			if d, err := limiter.Peek(t.Context(), "~everyone", "a"); err != nil || d.Remaining != 5 {
				t.Errorf("%d remain, %v", d.Remaining, err)
			}
		})
	}
}

// If no route matched, FinalCost gets Gin's 404.
func TestFinalCostUnmatched(t *testing.T) {
	e := gin.New()
	e.Use(ginlimit.Config{FinalCost: func(_ *gin.Context, status int) int {
		if status == 404 {
			return 3
		}
		return 0
	}}.Limit(core.Must(core.New(memory(), core.SlidingWindow(9, time.Minute))), everyone, ginlimit.Route))
	want(t, do(e, "GET", "/none"), 404, "8")
	want(t, do(e, "GET", "/none"), 404, "5")
}

// However a hook and a handler answer, it counts inside a middleware whose writer buffers and does
// not say what is written.
func TestInsideAWriterThatBuffers(t *testing.T) {
	for name, c := range map[string]struct {
		do     gin.HandlerFunc
		status int
		body   string
	}{
		"a status": {func(c *gin.Context) { c.Status(403) }, 403, ""},
		"a body":   {func(c *gin.Context) { _, _ = c.Writer.Write([]byte("x")) }, 200, "x"},
		"a string": {func(c *gin.Context) { _, _ = c.Writer.WriteString("x") }, 200, "x"},
		"both":     {func(c *gin.Context) { c.String(403, "x") }, 403, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			got := 0
			e := gin.New()
			e.Use(gin.CustomRecoveryWithWriter(nil, func(*gin.Context, any) {}), func(c *gin.Context) {
				b := &buffers{ResponseWriter: c.Writer}
				c.Writer = b
				defer b.send()
				c.Next()
			}, ginlimit.Config{
				FinalCost: func(_ *gin.Context, status int) int { got = status; return 1 },
				Deny:      func(gc *gin.Context, _ core.Decision) { c.do(gc) },
			}.Limit(one(memory()), everyone, ginlimit.Action("a")))
			e.GET("/a", func(gc *gin.Context) {
				c.do(gc)
				if c.body != "" {
					panic("mine")
				}
			})
			for range 2 {
				if w := do(e, "GET", "/a"); w.Code != c.status || w.Body.String() != c.body || got != c.status {
					t.Errorf("answered %d %q, FinalCost got %d; want %d %q", w.Code, w.Body, got, c.status, c.body)
				}
			}
		})
	}
}

// A Deny that takes over the connection has answered, though this writer does not say so.
func TestDenyTakesOverTheConnection(t *testing.T) {
	ran := gatetest.NewRan(t, 1)
	e := gin.New()
	e.Use(func(c *gin.Context) {
		b := &buffers{ResponseWriter: c.Writer}
		c.Writer = b
		c.Next()
		if b.status != 0 || b.body != "" {
			t.Errorf("afterwards the limit has written %d %q", b.status, b.body)
		}
	}, ginlimit.Config{
		Cost: func(*gin.Context) (int, error) { return 6, nil },
		Deny: func(c *gin.Context, _ core.Decision) { ran.Now(); _, _, _ = c.Writer.Hijack() },
	}.Limit(five(memory()), everyone, ginlimit.Action("a")))
	e.GET("/a", func(*gin.Context) {})
	do(e, "GET", "/a")
}

type buffers struct {
	gin.ResponseWriter
	status int
	body   string
}

func (b *buffers) WriteHeader(status int) { b.status = status }

func (b *buffers) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func (b *buffers) Write(p []byte) (int, error) { return b.WriteString(string(p)) }

func (b *buffers) WriteString(s string) (int, error) {
	b.body += s
	return len(s), nil
}

func (b *buffers) send() {
	if b.status != 0 {
		b.ResponseWriter.WriteHeader(b.status)
	}
	_, _ = b.ResponseWriter.WriteString(b.body)
}
