package gatetest

// What the request decides: its method, its route and its cost, and the limiter that is picked for it.

import (
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

var requestRules = []rule{
	one("failed open passes with the first limit's untouched quota",
		func() core.Store { return core.FailOpen(Fails("boom")()) }, nil, passed(3, 3, "+0s"), core.FixedWindow(3, time.Minute), core.FixedWindow(2, time.Hour)),
	{
		name:   "a fallback's decision looks as any other",
		store:  func() core.Store { return core.Fallback(Fails("boom")(), memorystore.New(nil)) },
		routes: reply(nil),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 3, "+60s")}},
	},
	one("a shadowed refusal passes with its numbers and no Retry-After",
		func() core.Store { return core.Shadow(Decides(refusal)()) }, nil, passed(5, 0, "+60s")),
	{
		name:  "HEAD has the headers and no body, and counts as GET of the route",
		store: memory,
		routes: func(s core.Store) []Route {
			return []Route{{Method: "GET", Limits: []Limit{{Limiter: core.Must(core.New(s, core.FixedWindow(2, time.Minute))), Routed: true}}}}
		},
		steps: []step{
			{method: "HEAD", want: headless(passed(2, 1, "+60s", "Content-Length: 4"))},
			{method: "GET", path: "/replies/8", want: passed(2, 0, "+60s")},
			{method: "HEAD", want: response{status: 429, header: limited(2, 0, "+60s", noStore, problems, "Retry-After: ~60")}},
			{method: "HEAD", header: []string{"X-User-Id", "-"}, want: response{status: 400, header: []string{noStore, problems}}},
		},
		asked: []string{"alice GET /replies/{id} 1", "alice GET /replies/{id} 1", "alice GET /replies/{id} 1"},
	},
	{
		name:  "a route's action is its method and template, whatever the path and query",
		store: memory,
		routes: func(s core.Store) []Route {
			l := []Limit{{Limiter: core.Must(core.New(s, fivePerMinute)), Routed: true}}
			return []Route{{Path: "/posts/{id}/likes", Limits: l}, {Method: "DELETE", Path: "/posts/{id}/likes", Limits: l}}
		},
		steps: []step{
			{path: "/posts/1/likes", want: passed(5, 4, "+60s")},
			{path: "/posts/2/likes?x=3", header: []string{"X-Http-Method-Override", "DELETE"}, want: passed(5, 3, "+60s")},
			{method: "DELETE", path: "/posts/2/likes", want: passed(5, 4, "+60s")},
		},
		asked: []string{"alice POST /posts/{id}/likes 1", "alice POST /posts/{id}/likes 1", "alice DELETE /posts/{id}/likes 1"},
	},
	{
		name:  "the handler's own errors keep the headers",
		store: Decides(allowed),
		routes: func(s core.Store) []Route {
			a, b := handled(nil, func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) {
				http.Error(w, "no such post", 404)
			})(s)[0], handled(nil, status(500))(s)[0]
			a.Path, b.Path = "/a", "/b"
			return []Route{a, b}
		},
		steps: []step{
			{path: "/a", want: response{status: 404, header: limited(5, 4, "+60s", text, "X-Content-Type-Options: nosniff"), body: "no such post\n"}},
			{path: "/b", want: response{status: 500, header: limited(5, 4, "+60s")}},
		},
		runs: 2,
	},
	{
		name:     "a handler's panic behind recovery keeps the headers and the charge",
		store:    memory,
		routes:   handled(nil, func(http.ResponseWriter, *http.Request, func() (core.Decision, bool)) { panic("the handler's own") }),
		recovers: true,
		steps: []step{
			{want: response{status: 500, header: limited(5, 4, "+60s"), body: own}},
			{want: response{status: 500, header: limited(5, 3, "+60s"), body: own}},
		},
		runs: 2,
	},
	{
		name:   "a response without a body keeps the headers: 204",
		store:  Decides(allowed),
		routes: handled(nil, status(204)),
		steps:  []step{{want: response{status: 204, header: limited(5, 4, "+60s")}}},
		runs:   1,
	},
	{
		name:   "a response without a body keeps the headers: 304",
		store:  Decides(allowed),
		routes: handled(nil, status(304)),
		steps:  []step{{want: response{status: 304, header: limited(5, 4, "+60s")}}},
		runs:   1,
	},
	{
		name:  "a CORS preflight passes uncounted, before any key is asked",
		store: Decides(refusal),
		routes: func(s core.Store) []Route {
			rt := keyed(returns("", errBoom), nil)(s)
			rt[0].Method = "OPTIONS"
			return rt
		},
		steps: []step{{method: "OPTIONS", header: []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}, want: uncounted}},
		asked: none,
	},
	{
		name:  "a CORS preflight is charged where preflights count",
		store: Decides(refusal),
		routes: func(s core.Store) []Route {
			rt := reply(&nethttp.Config{CountPreflights: true})(s)
			rt[0].Method = "OPTIONS"
			return rt
		},
		steps: []step{{method: "OPTIONS", header: []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}, want: refused(5, 0, "+60s", 30, noRoom)}},
	},
	{
		name:  "what is not wholly a preflight is charged",
		store: Decides(refusal),
		routes: func(s core.Store) []Route {
			a, b := reply(nil)(s)[0], reply(nil)(s)[0]
			a.Method = "OPTIONS"
			return []Route{a, b}
		},
		steps: []step{
			{method: "OPTIONS", want: refused(5, 0, "+60s", 30, noRoom)},
			{method: "OPTIONS", header: []string{"Origin", "https://a.example"}, want: refused(5, 0, "+60s", 30, noRoom)},
			{method: "OPTIONS", header: []string{"Access-Control-Request-Method", "POST"}, want: refused(5, 0, "+60s", 30, noRoom)},
			{header: []string{"Origin", "https://a.example", "Access-Control-Request-Method", "POST"}, want: refused(5, 0, "+60s", 30, noRoom)},
		},
	},
	{
		name:   "Skip lets pass undecided and without headers",
		store:  Decides(refusal),
		routes: handled(&nethttp.Config{Keep: true, Skip: func(r *http.Request) bool { return r.Header.Get("X-Skip") != "" }}, tellsKept),
		steps: []step{
			{header: []string{"X-Skip", "1", "X-User-Id", "-"}, want: response{status: 200, header: []string{text}, body: "false 0/0"}},
			{want: refused(5, 0, "+60s", 30, noRoom)},
		},
		asked: []string{"alice reply 1"},
	},
	{
		name:  "a cost of 0 charges nothing and passes even when nothing is left",
		store: memory,
		routes: func(s core.Store) []Route {
			free, costly := reply(costs(0, nil))(s)[0], reply(costs(5, nil))(s)[0]
			free.Path = "/free"
			return []Route{free, costly}
		},
		steps: []step{
			{path: "/free", want: passed(5, 5, "+0s")},
			{want: passed(5, 0, "+60s")},
			{path: "/free", want: passed(5, 0, "+60s")},
		},
		asked: []string{"alice reply 1 peek", "alice reply 5", "alice reply 1 peek"},
	},
	{
		name:   "a cost of 3 is charged as one",
		store:  memory,
		routes: reply(costs(3, nil)),
		steps: []step{
			{want: passed(5, 2, "+60s")},
			{want: full(5, 2)},
		},
		asked: []string{"alice reply 3", "alice reply 3"},
	},
	{
		name:  "the picked limiter decides; nothing picked is the one given to Limit",
		store: memory,
		routes: func(s core.Store) []Route {
			gold := core.Must(core.New(s, core.FixedWindow(50, time.Minute)))
			return reply(&nethttp.Config{Headers: gate.XRateLimitAndIETF, Limiter: func(r *http.Request) (*core.Limiter, error) {
				if r.Header.Get("X-Plan") == "gold" {
					return gold, nil
				}
				return nil, nil
			}})(s)
		},
		steps: []step{
			{want: passed(5, 4, "+60s", `Ratelimit-Policy: "fixed:1m";q=5;w=60`, `Ratelimit: "fixed:1m";r=4;t=60`)},
			// The same kind and period: the tiers share the count.
			{header: []string{"X-Plan", "gold"}, want: passed(50, 48, "+60s", `Ratelimit-Policy: "fixed:1m";q=50;w=60`, `Ratelimit: "fixed:1m";r=48;t=~60`)},
		},
	},
	{
		name:  "the picked limiter's store fails: its own Limit shows",
		store: Fails("boom"),
		routes: func(s core.Store) []Route {
			gold := core.Must(core.New(s, core.FixedWindow(50, time.Minute)))
			return reply(&nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return gold, nil }})(s)
		},
		steps: []step{{want: down(50, "+1s")}},
		log:   []string{noAnswer + "store: boom"},
	},
	{
		name:  "of a picked limiter of several limits the one that binds shows",
		store: Decides(core.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Minute, Binding: 1}),
		routes: func(s core.Store) []Route {
			gold := core.Must(core.New(s, core.FixedWindow(50, time.Minute), core.FixedWindow(60, time.Hour)))
			return reply(&nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return gold, nil }})(s)
		},
		steps: []step{{want: passed(60, 1, "+60s")}},
	},
	{
		name:   "Keep lets the handler read the decision",
		store:  Decides(allowed),
		routes: handled(&nethttp.Config{Keep: true}, tellsKept),
		steps:  []step{{want: response{status: 200, header: limited(5, 4, "+60s", text), body: "true 4/5"}}},
	},
	{
		name:   "without Keep there is no decision to read",
		store:  Decides(allowed),
		routes: handled(nil, tellsKept),
		steps:  []step{{want: response{status: 200, header: limited(5, 4, "+60s", text), body: "false 0/0"}}},
	},
	{
		name:  "of several kept decisions the innermost is read",
		store: each(passes(1, time.Minute), passes(6, time.Minute)),
		routes: func(s core.Store) []Route {
			rt := stacked(&nethttp.Config{Keep: true}, &nethttp.Config{Keep: true})(s)
			rt[0].Handler = tellsKept
			return rt
		},
		steps: []step{{want: response{status: 200, header: limited(9, 1, "+60s", text), body: "true 6/7"}}},
		asked: []string{"alice outer 1", "alice inner 1"},
	},
}
