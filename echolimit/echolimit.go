// Package echolimit limits Echo v4 routes. For Echo v5 there is package echolimit/echov5.
//
//	replies := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(5, time.Minute)))
//
//	e := echo.New()
//	e.Use(middleware.Recover(), auth) // auth does c.Set("user", id)
//	e.POST("/posts/:id/replies", reply,
//		echolimit.Limit(replies, echolimit.Value("user"), echolimit.Action("reply")))
//
// Package nethttp documents the responses, the warnings and where to mount a limit. A
// refusal is an *echo.HTTPError whose Message is a [*Problem], so that the central error
// handler sees it. Mount a limit with e.Use, on a group or on a route, not with e.Pre,
// where no route is known.
//
// Addresses are never taken from c.RealIP(), which by default believes every client's
// X-Forwarded-For. Use echolimit.From(keyfuncs.RemoteIP), or keyfuncs.ForwardedIP with the
// proxies that you trust.
package echolimit

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// The tests of this package are few: go test ./nethttp/gate tests all adapters by one table.

// KeyFunc returns a key: who acts, or what they do. If the request has no key, the error is
// keyfuncs.ErrNoKey. If the key cannot be read, it is keyfuncs.ErrBadKey.
type KeyFunc = func(echo.Context) (string, error)

// From makes a KeyFunc of a keyfuncs.Func. It panics if f is nil or keyfuncs.Route,
// which does not know Echo's routes: use [Route].
func From(f keyfuncs.Func) KeyFunc {
	gate.CheckFunc("echolimit", f)
	return func(c echo.Context) (string, error) { return f(c.Request()) }
}

// Value returns a KeyFunc that reads the value that an earlier middleware has stored with
// c.Set: a string or an integer. If there is none, or it is "", the error is
// keyfuncs.ErrNoKey.
func Value(key string) KeyFunc {
	return keyfuncs.Value("the Echo value "+strconv.Quote(key), func(c echo.Context) any { return c.Get(key) })
}

// Action returns a KeyFunc that always returns name.
func Action(name string) KeyFunc { return From(keyfuncs.Action(name)) }

// Limit makes middleware that lets a request pass if limiter allows its user its
// action. It panics if an argument is nil.
func Limit(limiter *core.Limiter, user, action KeyFunc) echo.MiddlewareFunc {
	return Config{}.Limit(limiter, user, action)
}

// Config is the long form of [Limit]. Its zero value does what Limit does. The fields
// are those of nethttp.Config. With a FinalCost, the Writer of c.Response() and the Body of
// c.Request() are wrapped. If the handler returns an error, FinalCost gets the status of
// Echo's own error handler: the Code of an *echo.HTTPError that is not wrapped, else 500.
// If your error handler answers with another status, mount a middleware inside that calls
// c.Error.
type Config struct {
	Cost            func(echo.Context) (int, error)
	Limiter         func(echo.Context) (*core.Limiter, error)
	Skip            func(echo.Context) bool
	CountPreflights bool
	MaxWait         time.Duration
	MaxWaiting      int
	FinalCost       func(c echo.Context, status int) int
	Deny            func(echo.Context, core.Decision) error // the central error handler gets its error
	Fail            func(echo.Context, error) error         // as Deny; its argument is a *gate.Failure
	Keep            bool                                    // see Decision
	ResetDelta      bool
	IETF            bool
}

// Limit makes middleware of the configuration. It panics if an argument is nil.
func (cfg Config) Limit(limiter *core.Limiter, user, action KeyFunc) echo.MiddlewareFunc {
	m := &middleware{config: cfg, marks: cfg.Deny != nil || cfg.Fail != nil}
	m.gate = gate.New("echolimit", limiter, user, action, gate.Rules[echo.Context]{
		Cost: cfg.Cost, Limiter: cfg.Limiter, Skip: cfg.Skip, CountPreflights: cfg.CountPreflights,
		MaxWait: cfg.MaxWait, MaxWaiting: cfg.MaxWaiting, FinalCost: cfg.FinalCost, Style: cfg.style(),
	})
	// Echo calls this for every request, and the closure is allocated: it is small.
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return m.handle(c, next) }
	}
}

type middleware struct {
	gate   *gate.Gate[echo.Context]
	config Config
	marks  bool
}

func (m *middleware) handle(c echo.Context, next echo.HandlerFunc) error {
	var o gate.Outcome
	if m.config.Keep {
		o.Kept = new(gate.Kept)
	}
	m.gate.Enter(&o, c, c.Request(), c.Response().Header())
	if !o.Pass {
		return m.config.answer(c, &o)
	}
	if m.marks || o.Stacked && around(c) != nil || !o.Decided && (m.config.IETF || m.config.ResetDelta || around(c) != nil) {
		c.Set(configKey, &m.config)
	}
	if o.Kept != nil && o.Decided {
		c.Set(decisionKey, &o.Kept.Decision)
	}
	if o.FinalCost {
		return m.run(c, &o, next)
	}
	return next(c)
}

func (m *middleware) run(c echo.Context, o *gate.Outcome, next echo.HandlerFunc) (err error) {
	answered, restore := watch(c.Response())
	defer restore()
	m.gate.Run(c, c.Request(), o, func(r *http.Request) { c.SetRequest(r); err = next(c) }, func() (int, bool) {
		status, begun := answered()
		switch res := c.Response(); {
		case begun:
		case res.Committed: // by early hints, after which Echo sends no status
			return max(res.Status, http.StatusOK), true
		case err != nil:
			status = statusOf(err)
		}
		return status, begun
	})
	return err
}

// watch wraps the Writer of res until restore is called.
func watch(res *echo.Response) (answered func() (status int, begun bool), restore func()) {
	bare := res.Writer
	res.Writer, answered = gate.Watch(bare)
	return answered, func() { res.Writer = bare }
}

// Allow limits an action that only the handler knows; see nethttp.Allow. If it returns
// an error, the handler returns it: as with Limit it is an *echo.HTTPError whose Message
// is the problem, or the error of Deny or Fail. If Deny or Fail has answered, Allow still
// returns an error. A central error handler ignores it, since the response is committed.
func Allow(c echo.Context, limiter *core.Limiter, user, action string, cost int) error {
	if cfg := around(c); cfg != nil {
		return cfg.Allow(c, limiter, user, action, cost)
	}
	return Config{}.Allow(c, limiter, user, action, cost)
}

// Allow is the function [Allow] with the Deny, Fail, ResetDelta and IETF of cfg. The
// other fields are not used. Behind a Limit, the Limit's ResetDelta and IETF apply instead,
// so that the headers of one response agree.
func (cfg Config) Allow(c echo.Context, limiter *core.Limiter, user, action string, cost int) error {
	style := cfg.style()
	if outer := around(c); outer != nil {
		style = outer.style()
	}
	o := gate.Decide("echolimit", style, c.Request(), c.Response().Header(), limiter, user, action, cost)
	if o.Pass {
		return nil
	}
	if err := cfg.answer(c, &o); err != nil {
		return err
	}
	return problem(c, &o)
}

// Decision returns the decision that let the request pass, for a handler behind a
// [Config] with Keep. Behind several, it returns the decision of the innermost.
func Decision(c echo.Context) (core.Decision, bool) {
	if d, ok := c.Get(decisionKey).(*core.Decision); ok {
		return *d, true
	}
	return core.Decision{}, false
}

func (cfg *Config) style() gate.Style { return gate.Style{ResetDelta: cfg.ResetDelta, IETF: cfg.IETF} }

// answer calls Deny or Fail. If they write nothing and return no error, it returns the
// problem.
func (cfg *Config) answer(c echo.Context, o *gate.Outcome) error {
	begun, err := cfg.own(c, o)
	if begun {
		return err
	}
	res := c.Response()
	if res.Status < http.StatusOK && res.Size == 0 {
		res.Committed = false // by early hints, which Echo takes for the response
	}
	if err != nil || res.Committed {
		return err
	}
	gate.ClearBody(res.Writer)
	return problem(c, o)
}

// own calls Deny or Fail, and reports whether they have begun a response.
func (cfg *Config) own(c echo.Context, o *gate.Outcome) (begun bool, err error) {
	if o.Failure != nil && cfg.Fail == nil || o.Failure == nil && cfg.Deny == nil {
		return false, nil
	}
	res := c.Response()
	answered, restore := watch(res)
	defer restore()
	if o.Failure != nil {
		err = cfg.Fail(c, o.Failure)
	} else {
		err = cfg.Deny(c, o.Decision)
	}
	if _, begun = answered(); begun {
		res.Committed = true // after a Hijack too: the central error handler must not write
	}
	return begun, err
}

// statusOf is the status that Echo's own error handler answers with.
func statusOf(err error) int {
	he, ok := err.(*echo.HTTPError)
	if !ok {
		return http.StatusInternalServerError
	}
	if inner, ok := he.Internal.(*echo.HTTPError); ok {
		he = inner
	}
	return he.Code
}

const (
	configKey   = "tailcut.config"
	decisionKey = "tailcut.decision"
)

// around returns the configuration of the innermost Limit that has stored it, or nil. c.Set
// allocates, so a Limit without Deny and Fail stores it only if one around it has, or if it
// has skipped the request and has IETF or ResetDelta: otherwise Allow sees these in the headers.
func around(c echo.Context) *Config {
	cfg, _ := c.Get(configKey).(*Config)
	return cfg
}
