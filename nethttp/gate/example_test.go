package gate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// An exchange is the request of a framework.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
}

type handlerFunc = func(*exchange)

// An adapter of the framework tells package gate about it.
type framework struct{}

func (framework) Name() string                      { return "mylimit" }
func (framework) Request(c *exchange) *http.Request { return c.r }
func (framework) Header(c *exchange) http.Header    { return c.w.Header() }
func (framework) WithRequest(c *exchange, r *http.Request) *exchange {
	c.r = r
	return c
}

func (framework) Watch(c *exchange, answers *gate.Answering) (*exchange, gate.Watched) {
	w := &watched{exchange: c, bare: c.w}
	c.w, w.answered = gate.Watch(c.w, answers)
	return c, w
}

func (framework) Answer(c *exchange, p gate.Problem, _ error) error {
	gate.ClearBody(c.w)
	p.Write(c.w, c.r)
	return nil
}

func (framework) Finish(c *exchange, _ error, wrote func() error) { c.w = gate.Discarding(c.w, wrote) }

type watched struct {
	exchange *exchange
	bare     http.ResponseWriter
	answered func() (status int, begun bool)
}

func (w *watched) Answered() bool           { _, begun := w.answered(); return begun }
func (w *watched) Result(error) (int, bool) { return w.answered() }
func (w *watched) Restore()                 { w.exchange.w = w.bare }

// Its Limit makes a Gate for each middleware, and its Allow is for a handler that asks itself.
func Example() {
	limit := func(limiter *core.Limiter, user keyfuncs.UserOf[*exchange], action keyfuncs.ActionOf[*exchange], cfg gate.Config[*exchange], next handlerFunc) handlerFunc {
		g := gate.New(framework{}, cfg, gate.Subject[*exchange]{Limiter: limiter, User: user, Action: action})
		return func(c *exchange) {
			_ = g.Serve(c, func(c *exchange) error { next(c); return nil })
		}
	}
	allow := func(c *exchange, limiter *core.Limiter, user, action string, cost int) core.Decision {
		return gate.Allow(framework{}, c, nil, limiter, user, action, cost)
	}

	user := gate.From(framework{}, keyfuncs.RemoteIP)
	action := gate.Action[*exchange]("post")
	posts := core.Must(core.New(memorystore.New(nil), core.FixedWindow(2, time.Hour)))
	images := core.Must(core.New(memorystore.New(nil), core.FixedWindow(10, time.Hour)))
	free := gate.Config[*exchange]{FinalCost: func(_ *exchange, status int) int {
		if status >= 400 {
			return 0
		}
		return 1
	}}
	handle := limit(posts, user, action, free, func(c *exchange) {
		if allow(c, images, "alice", "image", 4).Allowed {
			c.w.WriteHeader(http.StatusCreated)
		}
	})
	for range 4 {
		w := httptest.NewRecorder()
		handle(&exchange{w, httptest.NewRequest("POST", "/", nil)})
		fmt.Printf("%d %q %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 201 "1" ""
	// 201 "0" ""
	// 429 "0" "3600"
	// 429 "0" "3600"
}
