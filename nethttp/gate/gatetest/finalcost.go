package gatetest

// FinalCost.

import (
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp/gate"
)

var finalCostRules = []rule{
	{
		name:   "FinalCost: 0 gives all back, what was charged keeps it",
		store:  memory,
		routes: finalCostRoute(unless(201), told),
		steps: []step{
			{header: tell(201), want: saysLeft(201, 4)},
			{header: tell(500), want: saysLeft(500, 3)},
			{header: tell(304), want: saysLeft(304, 3)},
			{header: tell(201), want: saysLeft(201, 3)},
			{header: tell(201), want: saysLeft(201, 2)},
		},
		runs: 5,
	},
	{
		name:   "FinalCost: less than was charged gives the rest back",
		store:  memory,
		routes: finalCostRoute(finalCost(3, func(int) int { return 1 }), told),
		steps: []step{
			{header: tell(201), want: saysLeft(201, 2)},
			{header: tell(201), want: saysLeft(201, 1)},
			{header: tell(201), want: saysLeft(201, 0)},
		},
		asked: []string{"alice reply 3", "alice reply 3", "alice reply 3"},
		runs:  3,
	},
	{
		name:  "FinalCost: more than was charged is charged in addition: a wrong password costs 3, a right one nothing",
		store: memory,
		routes: finalCostRoute(finalCost(1, func(status int) int {
			if status == 401 {
				return 3
			}
			return 0
		}), told),
		steps: []step{
			{header: tell(200), want: saysLeft(200, 4)},
			{header: tell(401), want: saysLeft(401, 4)},
			{header: tell(200), want: saysLeft(200, 1)},
			{header: tell(401), want: saysLeft(401, 1)},
			{header: tell(200), want: full(5, 0)},
		},
		asked: []string{"alice reply 1", "alice reply 1", "alice reply 2", "alice reply 1", "alice reply 1", "alice reply 2", "alice reply 1"},
		runs:  4,
	},
	{
		name:   "FinalCost: a cost of 0 may become a surcharge",
		store:  memory,
		routes: finalCostRoute(finalCost(0, func(int) int { return 2 }), told),
		steps:  []step{{header: tell(200), want: saysLeft(200, 5)}, {header: tell(200), want: saysLeft(200, 3)}},
		asked:  []string{"alice reply 1 peek", "alice reply 2", "alice reply 1 peek", "alice reply 2"},
	},
	{
		name:   "FinalCost: a handler that writes nothing has answered 200",
		store:  memory,
		routes: finalCostRoute(unless(200), func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) {}),
		steps:  []step{{want: saysLeft(200, 4)}, {want: saysLeft(200, 3)}},
	},
	{
		name:   "FinalCost: a handler that writes a body alone has answered 200",
		store:  memory,
		routes: finalCostRoute(unless(200), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 3, "+60s")}},
	},
	{
		name:     "FinalCost: a panic is 500 and goes on",
		store:    memory,
		routes:   finalCostRoute(unless(200), func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) { panic("the handler's own") }),
		recovers: true,
		steps: []step{
			{want: response{status: 500, header: limited(5, 4, "+60s"), body: own}},
			{want: response{status: 500, header: limited(5, 4, "+60s"), body: own}},
		},
		runs: 2,
	},
	{
		name:   "FinalCost: its own panic is said once and leaves the charge and the response",
		store:  memory,
		routes: finalCostRoute(finalCost(1, func(int) int { panic("oops") }), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 3, "+60s")}},
		log:    []string{uncharged + "panic: oops"},
	},
	{
		name:   "FinalCost: a negative cost leaves the charge, said once",
		store:  memory,
		routes: finalCostRoute(finalCost(1, func(int) int { return -1 }), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 3, "+60s")}},
		log:    []string{uncharged + "core: the cost is negative"},
	},
	{
		name:   "FinalCost: the most negative cost leaves the charge too",
		store:  memory,
		routes: finalCostRoute(finalCost(1, func(int) int { return math.MinInt }), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 3, "+60s")}},
		log:    []string{uncharged + "core: the cost is negative"},
	},
	{
		name:   "FinalCost: the greatest cost takes what is left",
		store:  memory,
		routes: finalCostRoute(finalCost(1, func(int) int { return math.MaxInt }), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: full(5, 0)}},
		asked:  []string{"alice reply 1", fmt.Sprint("alice reply ", math.MaxInt-1), "alice reply 1"},
	},
	{
		name:   "FinalCost: a store that cannot refund is logged once",
		store:  Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Minute, Source: core.SourceStore}),
		routes: finalCostRoute(unless(201), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 4, "+60s")}},
		log:    []string{uncharged + core.ErrNoReceipt.Error()},
	},
	{
		name: "FinalCost: a store that fails then is said once, and the response stays",
		store: func() core.Store {
			return Answers(func(c core.Charge) (core.Decision, error) {
				if c.Mode == machine.ModeForce {
					return core.Decision{}, errBoom
				}
				return core.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: time.Minute}, nil
			})
		},
		routes: finalCostRoute(finalCost(1, func(int) int { return 5 }), done),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 4, "+60s")}},
		asked:  []string{"alice reply 1", "alice reply 4", "alice reply 1", "alice reply 4"},
		log:    []string{uncharged + "boom"},
	},
	{
		name:   "FinalCost: failed open there is nothing to refund",
		store:  func() core.Store { return core.FailOpen(Fails("boom")()) },
		routes: finalCostRoute(unless(201), done),
		steps:  []step{{want: passed(5, 5, "+0s")}},
	},
	{
		name:  "FinalCost is not asked about what it did not let pass, nor about what was not decided",
		store: Decides(refusal),
		routes: func(s core.Store) []Route {
			cfg := finalCost(1, never)
			cfg.Skip = func(r *http.Request) bool { return r.Header.Get("X-Skip") != "" }
			a := reply(cfg)(s)[0]
			b := a
			b.Method = "OPTIONS"
			return []Route{a, b}
		},
		steps: []step{
			{want: refused(5, 0, "+60s", 30, noRoom)},
			{header: []string{"X-User-Id", "-"}, want: bad(noUser)},
			{header: []string{"X-Skip", "1"}, want: uncounted},
			{method: "OPTIONS", header: []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}, want: uncounted},
		},
		asked: []string{"alice reply 1"},
	},
	{
		name:  "FinalCost: the picked limiter gives back too, and charges in addition",
		store: memory,
		routes: func(s core.Store) []Route {
			gold := core.Must(core.New(s, core.SlidingWindow(50, time.Hour)))
			cfg := finalCost(2, func(status int) int {
				if status == 201 {
					return 7
				}
				return 0
			})
			cfg.Limiter = func(*http.Request) (*core.Limiter, error) { return gold, nil }
			return finalCostRoute(cfg, told)(s)
		},
		steps: []step{
			{header: tell(500), want: response{status: 500, header: limited(50, 48, "+3600s")}},
			{header: tell(201), want: response{status: 201, header: limited(50, 48, "+3600s")}},
			{header: tell(500), want: response{status: 500, header: limited(50, 41, "+3600s")}},
			{header: tell(500), want: response{status: 500, header: limited(50, 41, "+3600s")}},
		},
		asked: []string{"alice reply 2", "alice reply 2", "alice reply 5", "alice reply 2", "alice reply 2"},
		runs:  4,
	},
	{
		name:  "FinalCost: a limiter that is picked and given is one, with its headers",
		store: memory,
		routes: func(s core.Store) []Route {
			limiter := core.Must(core.New(s, slidingFive))
			cfg := unless(201)
			cfg.Headers, cfg.Limiter = gate.XRateLimitAndIETF, func(*http.Request) (*core.Limiter, error) { return limiter, nil }
			return []Route{{Limits: []Limit{{Limiter: limiter, Config: cfg}}}}
		},
		steps: []step{
			{want: passed(5, 4, "+60s", `Ratelimit-Policy: "sliding:1m";q=5;w=60`, `Ratelimit: "sliding:1m";r=4`)},
			{want: passed(5, 4, "+60s", `Ratelimit-Policy: "sliding:1m";q=5;w=60`, `Ratelimit: "sliding:1m";r=4`)},
		},
	},
	{
		name:  "FinalCost: stacked, each charges its own",
		store: memory,
		routes: func(s core.Store) []Route {
			five, seven := core.Must(core.New(s, slidingFive)), core.Must(core.New(s, core.SlidingWindow(7, time.Minute)))
			return []Route{{Handler: told, Limits: []Limit{
				{Limiter: five, Action: keyfuncs.Action("outer"), Config: unless(201)},
				{Limiter: seven, Action: keyfuncs.Action("inner"), Config: unless(500)},
			}}}
		},
		steps: []step{
			{header: tell(201), want: saysLeft(201, 4)},
			{header: tell(201), want: saysLeft(201, 3)},
			{header: tell(500), want: saysLeft(500, 2)},
			{header: tell(500), want: saysLeft(500, 2)},
		},
		asked: []string{"alice outer 1", "alice inner 1", "alice outer 1", "alice inner 1", "alice outer 1", "alice inner 1", "alice outer 1", "alice inner 1"},
		runs:  4,
	},
	{
		name:  "FinalCost: the handler still reads the kept decision",
		store: memory,
		routes: func(s core.Store) []Route {
			cfg := unless(200)
			cfg.Keep = true
			return finalCostRoute(cfg, tellsKept)(s)
		},
		steps: []step{{want: response{status: 200, header: limited(5, 4, "+60s", text), body: "true 4/5"}}},
	},
}
