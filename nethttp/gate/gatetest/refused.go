package gatetest

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

const (
	banned  = "https://github.com/tailcut/tailcut#banned"
	noSlots = "https://github.com/tailcut/tailcut#in-flight"
	without = "https://github.com/tailcut/tailcut#not-included"

	uncharged = "ERROR adapter: the final cost of a request cannot be charged; it stays as charged on entry | final-cost-lost | "
	noAnswer  = "ERROR adapter: the store has no answer; requests are answered 503 | no-answer | adapter: "
)

var slidingFive = core.SlidingWindow(5, time.Minute)

// finalCost is a Config with that FinalCost and cost.
func finalCost(cost int, f func(status int) int) *nethttp.Config {
	return &nethttp.Config{
		Cost:      func(*http.Request) (int, error) { return cost, nil },
		FinalCost: func(_ *http.Request, status int) int { return f(status) },
	}
}

// unless gives back what was answered otherwise.
func unless(want int) *nethttp.Config {
	return finalCost(1, func(status int) int {
		if status == want {
			return 1
		}
		return 0
	})
}

func never(int) int { panic("FinalCost was called") }

// told answers with the status that the request's header X-Status names.
func told(w http.ResponseWriter, r *http.Request, _ func() (core.Decision, bool)) {
	code, _ := strconv.Atoi(r.Header.Get("X-Status"))
	w.WriteHeader(code)
}

func tell(status int) []string { return []string{"X-Status", strconv.Itoa(status)} }

// saysLeft is the status and what remains, of a limit of 5 in a sliding minute.
func saysLeft(status, remaining int) response {
	reset := "+60s"
	if remaining == 5 {
		reset = "+0s"
	}
	return response{status: status, header: limited(5, remaining, reset)}
}

// finalCostRoute is the one route with SlidingWindow(5, time.Minute).
func finalCostRoute(cfg *nethttp.Config, h Handler) func(core.Store) []Route {
	return func(s core.Store) []Route {
		rt := reply(cfg, slidingFive)(s)
		rt[0].Handler = h
		return rt
	}
}

// charging is one route whose handler itself charges, 5 in a minute.
func charging(user, action string, cost int) func(core.Store) []Route {
	return func(s core.Store) []Route {
		return []Route{{Inside: []Inside{{Limiter: Five(s), User: user, Action: action, Cost: cost}}}}
	}
}

// besides is one route behind the limits, for whose first action a slot is taken already.
func besides(cfg *nethttp.Config, limits ...core.Limit) func(core.Store) []Route {
	return func(s core.Store) []Route {
		limiter := core.Must(core.New(s.(*Store).Store, limits...))
		if d, err := limiter.Allow(context.Background(), "alice", "reply"); err != nil || !d.Allowed {
			panic("no slot")
		}
		return reply(cfg, limits...)(s)
	}
}

// noSlot is a refusal by InFlight(1).
func noSlot(header ...string) response {
	return response{
		status: 429, header: append(header, noStore, problems, "Retry-After: 1"),
		body: problem(noSlots, "Too many requests at the same time", 429, "The limit of 1 at the same time is reached.", 1),
	}
}

// notIncluded is a refusal by core.Nothing.
func notIncluded(status int, header ...string) response {
	return response{
		status: status, header: append(header, "X-Ratelimit-Limit: 0", "X-Ratelimit-Remaining: 0", noStore, problems),
		body: problem(without, "Not included", status, "This action is not included in your plan, or it is switched off.", 0),
	}
}

const saysNothing = "INFO adapter: an action was refused because its limit is Nothing(); this is said once, for the first such action | not-included | "

// off is a Config that picks core.Nothing for all requests.
func off(cfg nethttp.Config) func(core.Store) []Route {
	return func(s core.Store) []Route {
		nothing := core.Must(core.New(s, core.Nothing()))
		cfg.Limiter = func(*http.Request) (*core.Limiter, error) { return nothing, nil }
		return reply(&cfg)(s)
	}
}

// offInside is one route behind a limit that allows, whose handler asks for an action that core.Nothing refuses.
func offInside(outer, inner *nethttp.Config) func(core.Store) []Route {
	return func(s core.Store) []Route {
		rt := inward(s)
		rt[0].Limits[0].Config, rt[0].Inside[0].Config = outer, inner
		rt[0].Inside[0].Limiter = core.Must(core.New(s, core.Nothing()))
		return rt
	}
}

// inward is one route behind a limit of 9 for outer, whose handler charges one of 7
// for inner.
func inward(s core.Store) []Route {
	nine := core.Must(core.New(s, core.FixedWindow(9, time.Minute)))
	seven := core.Must(core.New(s, core.FixedWindow(7, time.Minute)))
	return []Route{{
		Limits: []Limit{{Limiter: nine, Action: keyfuncs.Action("outer")}},
		Inside: []Inside{{Limiter: seven, User: "alice", Action: "inner", Cost: 1}},
	}}
}

var refusedRules = []rule{
	one("a ban is 429 with its own Retry-After and problem", Decides(core.Decision{RetryAfter: 10 * time.Minute, ResetAfter: 10 * time.Minute, Reason: core.ReasonBanned, BanLevel: 2}), nil, response{
		status: 429, header: limited(5, 0, "+600s", noStore, problems, "Retry-After: 600"),
		body: problem(banned, "Banned", 429, "You are temporarily banned from this action.", 600),
	}),
	one("what can never pass is that, banned or not",
		Decides(core.Decision{RetryAfter: core.Never, ResetAfter: time.Minute, Reason: core.ReasonBanned}), nil, refused(5, 0, "+60s", 0, tooMuch)),
	{
		name:  "what a plan does not include has no time to come again, not even an outer one, and is logged once",
		store: memory,
		routes: func(s core.Store) []Route {
			rt := reply(nil, core.Nothing())(s)
			rt[0].Outside = []string{"Retry-After", "7", "X-Ratelimit-Reset", "7"}
			return rt
		},
		steps: []step{{want: notIncluded(429)}, {header: []string{"X-User-Id", "other"}, want: notIncluded(429)}},
		asked: []string{"alice reply 1 peek", "other reply 1 peek"},
		log:   []string{saysNothing + "reply"},
	},
	{
		name:   "Forbid makes it 403",
		store:  memory,
		routes: off(nethttp.Config{Forbid: true, Headers: gate.XRateLimitDelta, SpreadRetryAfter: true, MaxWait: time.Minute}),
		steps:  []step{{want: notIncluded(403)}},
		asked:  []string{"alice reply 1 peek"},
		log:    []string{saysNothing + "reply"},
	},
	one("Forbid leaves other refusals", Decides(refusal), &nethttp.Config{Forbid: true}, refused(5, 0, "+60s", 30, noRoom)),
	{
		name:   "the IETF's headers of what a plan does not include",
		store:  memory,
		routes: off(nethttp.Config{Headers: gate.XRateLimitAndIETF}),
		steps:  []step{{want: notIncluded(429, `Ratelimit-Policy: "fixed:nothing";q=0`, `Ratelimit: "fixed:nothing";r=0`)}},
		asked:  []string{"alice reply 1 peek"},
		log:    []string{saysNothing + "reply"},
	},
	{
		name:   "an attempt that may fail can be switched off",
		store:  memory,
		routes: off(nethttp.Config{OnlyFailures: func(*http.Request, int) bool { return true }}),
		steps:  []step{{want: notIncluded(429)}},
		asked:  []string{"alice reply 1 peek"},
		log:    []string{saysNothing + "reply"},
	},
	{
		name:   "so can an action whose cost is settled",
		store:  memory,
		routes: off(nethttp.Config{Settle: true, Forbid: true}),
		steps:  []step{{want: notIncluded(403)}},
		asked:  []string{"alice reply 1 peek"},
		log:    []string{saysNothing + "reply"},
	},
	{
		name:  "of two subjects the one that is not included is logged",
		store: memory,
		routes: func(s core.Store) []Route {
			rt := reply(nil)(s)
			rt[0].Limits[0].And = []Limit{{Limiter: core.Must(core.New(s, core.Nothing())), Action: keyfuncs.Action("export")}}
			return rt
		},
		steps: []step{{want: notIncluded(429)}},
		asked: []string{"alice reply 1 peek"},
		log:   []string{saysNothing + "export"},
	},
	{
		name:   "Allow answers 403 if the Limit around it has Forbid",
		store:  memory,
		routes: offInside(&nethttp.Config{Forbid: true}, nil),
		steps:  []step{{want: notIncluded(403)}},
		asked:  []string{"alice outer 1", "alice inner 1 peek"},
		log:    []string{saysNothing + "inner"},
	},
	{
		name:   "or if its own Config has it",
		store:  memory,
		routes: offInside(nil, &nethttp.Config{Forbid: true}),
		steps:  []step{{want: notIncluded(403)}},
		asked:  []string{"alice outer 1", "alice inner 1 peek"},
		log:    []string{saysNothing + "inner"},
	},
	{
		name:   "a request beside too many others may come again soon, not when a lease ends",
		store:  memory,
		routes: besides(nil, core.InFlight(1)),
		steps:  []step{{want: noSlot(limited(1, 0, "+1s")...)}, {header: []string{"X-User-Id", "other"}, want: passed(1, 0, "+1s")}},
		asked:  []string{"alice reply 1", "other reply 1"},
	},
	{
		name:   "the wait for a slot is not spread",
		store:  memory,
		routes: besides(&nethttp.Config{SpreadRetryAfter: true, Headers: gate.XRateLimitDelta}, core.InFlight(1)),
		steps:  []step{{want: noSlot(limited(1, 0, "1")...)}},
	},
	{
		name:  "Deny gets the decision as it is, and its headers say when to come again",
		store: memory,
		routes: besides(&nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, d core.Decision) {
			w.WriteHeader(429)
			_, _ = fmt.Fprint(w, d.Reason, d.RetryAfter > 50*time.Second)
		}}, core.InFlight(1)),
		steps: []step{{want: response{status: 429, header: limited(1, 0, "+1s", noStore, text, "Retry-After: 1"), body: "in-flighttrue"}}},
	},
	{
		name:   "if a rate limit refuses too, the client waits for that",
		store:  memory,
		routes: besides(nil, core.InFlight(1), core.FixedWindow(1, time.Minute)),
		steps:  []step{{want: full(1, 0)}},
	},
	{
		name:   "more slots than there are can never be taken",
		store:  memory,
		routes: reply(&nethttp.Config{Cost: func(*http.Request) (int, error) { return 2, nil }}, core.InFlight(1).Lease(time.Second)),
		steps:  []step{{want: refused(1, 1, "+0s", 0, "This asks for more at once than the limit of 1 can ever allow.")}},
		asked:  []string{"alice reply 2 peek"},
	},
	{
		name:   "the IETF's headers have a unit in place of a window",
		store:  memory,
		routes: besides(shows(gate.IETF), core.InFlight(1), core.FixedWindow(5, time.Minute)),
		steps: []step{
			{want: noSlot(`Ratelimit-Policy: "inflight:1m";q=1;qu="concurrent-requests", "fixed:1m";q=5;w=60`, `Ratelimit: "inflight:1m";r=0;t=1`)},
			{header: []string{"X-User-Id", "other"}, want: response{status: 200, body: "done", header: []string{text,
				`Ratelimit-Policy: "inflight:1m";q=1;qu="concurrent-requests", "fixed:1m";q=5;w=60`, `Ratelimit: "inflight:1m";r=0`}}},
		},
		asked: []string{"alice reply 1", "other reply 1"},
	},
	{
		name:   "requests one after the other have the slot one after the other",
		store:  memory,
		routes: reply(nil, core.InFlight(1)),
		steps:  []step{{want: passed(1, 0, "+1s")}, {want: passed(1, 0, "+1s")}, {want: passed(1, 0, "+1s")}},
	},
	{
		name:  "the refusal that starts a ban names it, and so do those during it",
		store: memory,
		routes: func(s core.Store) []Route {
			limiter := core.Must(core.Must(core.New(s, core.FixedWindow(1, time.Minute))).
				With(core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
			return []Route{{Limits: []Limit{{Limiter: limiter}}}}
		},
		steps: []step{
			{want: passed(1, 0, "+60s")},
			{want: full(1, 0)},
			{want: response{
				status: 429, header: limited(1, 0, "+3600s", noStore, problems, "Retry-After: 3600"),
				body: problem(banned, "Banned", 429, "You are temporarily banned from this action.", 3600),
			}},
			{want: response{
				status: 429, header: limited(1, 0, "+3600s", noStore, problems, "Retry-After: ~3600"),
				body: `{"type":"` + banned + `","title":"Banned","status":429,"detail":"You are temporarily banned from this action. Try again in {wait}.","retry_after":{retry}}` + "\n",
			}},
			{header: []string{"X-User-Id", "other"}, want: passed(1, 0, "+60s")},
		},
		asked: []string{"alice reply 1", "alice reply 1", "alice reply 1", "alice reply 1", "other reply 1"},
	},
	{
		name:  "a request of cost 0 is refused to a banned user, and to no other",
		store: memory,
		routes: func(s core.Store) []Route {
			limiter := core.Must(core.Must(core.New(s, core.FixedWindow(1, time.Minute))).
				With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
			return []Route{{Limits: []Limit{{Limiter: limiter}}}, {Path: "/free", Limits: []Limit{{Limiter: limiter, Config: costs(0, nil)}}}}
		},
		steps: []step{
			{want: passed(1, 0, "+60s")},
			{path: "/free", want: passed(1, 0, "+60s")},
			{want: response{status: 429, header: limited(1, 0, "+3600s", noStore, problems, "Retry-After: 3600"), body: problem(banned, "Banned", 429, "You are temporarily banned from this action.", 3600)}},
			{path: "/free", want: response{status: 429, header: limited(1, 0, "+3600s", noStore, problems, "Retry-After: ~3600"), body: own}},
			{path: "/free", header: []string{"X-User-Id", "other"}, want: passed(1, 1, "+0s")},
		},
		asked: []string{"alice reply 1", "alice reply 1 peek", "alice reply 1", "alice reply 1 peek", "other reply 1 peek"},
	},
}
