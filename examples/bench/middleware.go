package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	ginratelimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v7"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	echov5 "github.com/labstack/echo/v5"
	"github.com/sethvargo/go-limiter/httplimit"
	limitermemory "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ulule "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/echolimit"
	limitv5 "github.com/tailcut/tailcut/echolimit/echov5"
	"github.com/tailcut/tailcut/ginlimit"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

const userHeader = "X-User-Id"

// A mounted handler is measured. Who writes no headers is not compared with.
type mounted struct {
	name    string
	handler http.Handler
	silent  bool
}

func userOf(r *http.Request) (string, error) { return r.Header.Get(userHeader), nil }

type varyByUser struct{}

func (varyByUser) Key(r *http.Request) string { return r.Header.Get(userHeader) }

func bare(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

const keeping = tailcut + ", Keep"

// onNetHTTP mounts each middleware on net/http; the first is the bare handler.
func onNetHTTP() ([]mounted, error) {
	next := http.HandlerFunc(bare)
	ours := func(cfg nethttp.Config) (http.Handler, error) {
		l, err := core.New(memorystore.New(nil), plenty.funnel())
		if err != nil {
			return nil, err
		}
		return cfg.Limit(l, keyfuncs.Header(userHeader), keyfuncs.Action(action))(next), nil
	}
	plain, err := ours(nethttp.Config{})
	if err != nil {
		return nil, err
	}
	keep, err := ours(nethttp.Config{Keep: true})
	if err != nil {
		return nil, err
	}
	store, err := limitermemory.New(&limitermemory.Config{Tokens: uint64(plenty.n), Interval: plenty.per})
	if err != nil {
		return nil, err
	}
	goLimiter, err := httplimit.NewMiddleware(store, userOf)
	if err != nil {
		return nil, err
	}
	gcra, err := makeThrottled(plenty)
	if err != nil {
		return nil, err
	}
	throttle := throttled.HTTPRateLimiterCtx{RateLimiter: gcra, VaryBy: varyByUser{}}
	ululeHTTP := ulule.NewMiddleware(newUlule(), ulule.WithKeyGetter(func(r *http.Request) string { return r.Header.Get(userHeader) }))
	toll := tollbooth.NewLimiter(plenty.perSecond(), nil).SetBurst(plenty.n).SetIPLookups([]string{"RemoteAddr"})
	return []mounted{
		{"bare handler", next, true},
		{tailcut, plain, false},
		{keeping, keep, false},
		{"go-limiter", goLimiter.Handle(next), false},
		{"throttled", throttle.RateLimit(next), false},
		{"httprate", httprate.LimitBy(plenty.n, plenty.per, userOf)(next), false},
		{"ulule", ululeHTTP.Handler(next), false},
		{"tollbooth", tollbooth.LimitHandler(toll, next), false},
	}, nil
}

func newUlule() *limiter.Limiter {
	return limiter.New(ululememory.NewStore(), limiter.Rate{Period: plenty.per, Limit: int64(plenty.n)})
}

func onGin() ([]mounted, error) {
	gin.SetMode(gin.ReleaseMode)
	ours := func(cfg ginlimit.Config) (gin.HandlerFunc, error) {
		l, err := core.New(memorystore.New(nil), plenty.funnel())
		if err != nil {
			return nil, err
		}
		return cfg.Limit(l, ginlimit.From(keyfuncs.Header(userHeader)), ginlimit.Action(action)), nil
	}
	plain, err := ours(ginlimit.Config{})
	if err != nil {
		return nil, err
	}
	keep, err := ours(ginlimit.Config{Keep: true})
	if err != nil {
		return nil, err
	}
	route := func(chain ...gin.HandlerFunc) http.Handler {
		e := gin.New()
		e.POST("/likes", append(chain, func(c *gin.Context) { c.Status(http.StatusNoContent) })...)
		return e
	}
	user := func(c *gin.Context) string { return c.GetHeader(userHeader) }
	return []mounted{
		{"bare handler", route(), true},
		{tailcut, route(plain), false},
		{keeping, route(keep), false},
		{"ulule", route(ululegin.NewMiddleware(newUlule(), ululegin.WithKeyGetter(user))), false},
		{"gin-rate-limit", route(ginratelimit.RateLimiter(
			ginratelimit.InMemoryStore(&ginratelimit.InMemoryOptions{Rate: plenty.per, Limit: uint(plenty.n)}),
			&ginratelimit.Options{KeyFunc: user})), false},
	}, nil
}

func onEcho() ([]mounted, error) {
	ours := func(cfg echolimit.Config) (echo.MiddlewareFunc, error) {
		l, err := core.New(memorystore.New(nil), plenty.funnel())
		if err != nil {
			return nil, err
		}
		return cfg.Limit(l, echolimit.From(keyfuncs.Header(userHeader)), echolimit.Action(action)), nil
	}
	plain, err := ours(echolimit.Config{})
	if err != nil {
		return nil, err
	}
	keep, err := ours(echolimit.Config{Keep: true})
	if err != nil {
		return nil, err
	}
	own := echomiddleware.RateLimiterWithConfig(echomiddleware.RateLimiterConfig{
		Store: echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{
			Rate: rate.Limit(plenty.perSecond()), Burst: plenty.n,
		}),
		IdentifierExtractor: func(c echo.Context) (string, error) { return c.Request().Header.Get(userHeader), nil },
	})
	route := func(chain ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.POST("/likes", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) }, chain...)
		return e
	}
	return []mounted{
		{"bare handler", route(), true},
		{tailcut, route(plain), false},
		{keeping, route(keep), false},
		{"Echo's own, without headers", route(own), true},
	}, nil
}

func onEchoV5() ([]mounted, error) {
	l, err := core.New(memorystore.New(nil), plenty.funnel())
	if err != nil {
		return nil, err
	}
	route := func(chain ...echov5.MiddlewareFunc) http.Handler {
		e := echov5.New()
		e.POST("/likes", func(c *echov5.Context) error { return c.NoContent(http.StatusNoContent) }, chain...)
		return e
	}
	return []mounted{
		{"bare handler", route(), true},
		{tailcut, route(limitv5.Limit(l, limitv5.From(keyfuncs.Header(userHeader)), limitv5.Action(action))), false},
	}, nil
}

// discard is a ResponseWriter that is used again.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// serving is a contender that serves the request of one user again and again.
func serving(framework string, m mounted) contender {
	r := httptest.NewRequest(http.MethodPost, "/likes", nil)
	r.Header.Set(userHeader, "user-000000000001")
	w := &discard{header: http.Header{}}
	return contender{framework + " " + m.name, func(_, n int) (sample, error) {
		return spread(1, n, func(lo, hi int) (refused int, err error) {
			for range hi - lo {
				clear(w.header)
				m.handler.ServeHTTP(w, r)
				if w.status != http.StatusNoContent {
					return refused, fmt.Errorf("status %d", w.status)
				}
			}
			if !m.silent && len(w.header) < 3 {
				return refused, fmt.Errorf("no headers: %v", w.header)
			}
			return refused, nil
		})
	}}
}

// most is the target of each framework.
var most = map[string]struct{ ratio, allocs float64 }{
	"net/http": {0.75, 2}, "Gin": {0.65, 2}, "Echo": {0.75, 2}, "Echo v5": {0.75, 2},
}

// middleware is row 9. All frameworks are measured together.
func middleware(ctx context.Context, s settings) ([]table, error) {
	type entry struct {
		framework string
		mounted
		bare int // which entry is the bare handler
	}
	var entries []entry
	var contenders []contender
	for _, f := range []struct {
		name  string
		mount func() ([]mounted, error)
	}{{"net/http", onNetHTTP}, {"Gin", onGin}, {"Echo", onEcho}, {"Echo v5", onEchoV5}} {
		all, err := f.mount()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		first := len(entries)
		for _, m := range all {
			entries = append(entries, entry{f.name, m, first})
			contenders = append(contenders, serving(f.name, m))
		}
	}
	// The machine may be faster in one second than in the next. Turns of a few milliseconds cost
	// nothing here: there is one goroutine.
	s.turns = 25
	scores, err := s.compete(ctx, 0, contenders...)
	if err != nil {
		return nil, err
	}

	// From here on a score is what is added to the bare handler.
	added := make([]score, len(scores))
	var writers []score
	for i, e := range entries {
		added[i] = score{name: scores[i].name}
		for round := range s.rounds {
			added[i].ns = append(added[i].ns, scores[i].ns[round]-scores[e.bare].ns[round])
			added[i].allocs = append(added[i].allocs, scores[i].allocs[round]-scores[e.bare].allocs[round])
		}
		if !e.silent && e.name != tailcut && e.name != keeping {
			writers = append(writers, added[i])
		}
	}
	best := fastest(writers)

	t := table{head: []string{"", "ns added", "allocs added", "÷ " + best.name, "targets", "met"}}
	for i, e := range entries {
		ns, allocs := median(added[i].ns), median(added[i].allocs)
		r := quotient(added[i].ns, best.ns)
		if i == e.bare {
			t.add(added[i].name, "("+few(median(scores[i].ns))+")", "("+few(median(scores[i].allocs))+")", noPeer, noPeer, noPeer)
			continue
		}
		line := []string{added[i].name, whole(ns), few(allocs), ratio(r)}
		switch e.name {
		case tailcut:
			most := most[e.framework]
			line = append(line, fmt.Sprintf("≤ %s, ≤ %s allocs", plain(most.ratio), plain(most.allocs)), met(r <= most.ratio && allocs < most.allocs+0.05))
		case keeping:
			line = append(line, "≤ 0.9, ≤ 2 allocs", met(r <= 0.9 && allocs < 2.05))
		default:
			line = append(line, noPeer, noPeer)
		}
		t.add(line...)
	}
	t.note("One goroutine, one user, a limit of %s, memory stores. %s is the fastest of the peers that write headers. Tollbooth keys by address and path, the others by a header.",
		plenty, best.name)
	return []table{t}, nil
}
