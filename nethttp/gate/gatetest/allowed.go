package gatetest

// Allow inside of handlers.

import (
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/nethttp"
)

var allowRules = []rule{
	{
		name:   "Allow inside a handler charges its cost and writes the headers",
		store:  memory,
		routes: charging("alice", "upload", 3),
		steps: []step{
			{want: passed(5, 2, "+60s")},
			{want: full(5, 2)},
		},
		asked: []string{"alice upload 3", "alice upload 3"},
	},
	{
		name:   "Allow: what can never pass has no Retry-After",
		store:  memory,
		routes: charging("alice", "upload", 6),
		steps:  []step{{want: refused(5, 5, "+0s", 0, tooMuch)}},
		asked:  []string{"alice upload 6 peek"},
	},
	{
		name:   "Allow: a cost of 0 passes and tells how it stands",
		store:  memory,
		routes: charging("alice", "upload", 0),
		steps:  []step{{want: passed(5, 5, "+0s")}},
		asked:  []string{"alice upload 1 peek"},
	},
	{
		name:  "Allow: without a limiter from core.New it is 500",
		store: memory,
		routes: func(core.Store) []Route {
			return []Route{{Inside: []Inside{{Limiter: &core.Limiter{}, User: "alice", Action: "upload", Cost: 1}}}}
		},
		steps: []step{{want: broken}},
		asked: none,
		log:   []string{cannot + "limiter: core: a zero Limiter; make limiters with core.New"},
	},
	unasked("Allow: an empty user is 400", charging("", "upload", 1), bad(noUser)),
	unasked("Allow: an empty action is 400", charging("alice", "", 1), bad("The request does not say which action it is for.")),
	unasked("Allow: a negative cost is 500, in the log",
		charging("alice", "upload", -1), broken).logs(cannot + "cost: core: the cost is negative"),
	{
		name:   "Allow: a failing store is 503, said once",
		store:  Fails("boom"),
		routes: charging("alice", "upload", 1),
		steps:  []step{{want: down(5, "+1s")}, {want: down(5, "+1s")}},
		asked:  []string{"alice upload 1", "alice upload 1"},
		log:    []string{noAnswer + "store: boom"},
	},
	{
		name:   "Allow: a panic of the store is 500",
		store:  func() core.Store { return Answers(func(core.Charge) (core.Decision, error) { panic("oops") }) },
		routes: charging("alice", "upload", 1),
		steps:  []step{{want: broken}},
		asked:  []string{"alice upload 1"},
		log:    []string{cannot + "store: panic: oops"},
	},
	{
		name:  "Allow: without a limiter it is 500",
		store: memory,
		routes: func(core.Store) []Route {
			return []Route{{Inside: []Inside{{Limiter: nil, User: "alice", Action: "upload", Cost: 1}}}}
		},
		steps: []step{{want: broken}},
		asked: none,
		log:   []string{cannot + "limiter: core: a zero Limiter; make limiters with core.New"},
	},
	unasked("Allow: Headers that there are not are 500, and nothing is charged", func(s core.Store) []Route {
		return []Route{{Inside: []Inside{{Limiter: Five(s), User: "alice", Action: "upload", Cost: 1, Config: &nethttp.Config{Headers: 9}}}}}
	}, broken).logs(cannot + "headers: Headers is 9; use a constant of package gate, such as gate.IETF"),
	{
		name:   "Allow inside a limit: the tighter decision owns the headers, inner",
		store:  each(passes(5, time.Hour), passes(2, time.Minute)),
		routes: inward,
		steps:  []step{{want: passed(7, 2, "+60s")}},
		asked:  []string{"alice outer 1", "alice inner 1"},
	},
	{
		name:   "Allow inside a limit: the tighter decision owns the headers, outer",
		store:  each(passes(2, time.Minute), passes(5, time.Hour)),
		routes: inward,
		steps:  []step{{want: passed(9, 2, "+60s")}},
		asked:  []string{"alice outer 1", "alice inner 1"},
	},
	{
		name:   "Allow inside a limit: its refusal owns the headers",
		store:  each(core.Decision{Allowed: true, ResetAfter: time.Hour}, core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute}),
		routes: inward,
		steps:  []step{{want: refused(7, 0, "+60s", 30, "The limit of 7 per minute has no room for this at present.")}},
		asked:  []string{"alice outer 1", "alice inner 1"},
	},
	{
		name:  "Allow: of several limits the one that binds shows",
		store: Decides(core.Decision{Allowed: true, Remaining: 1, ResetAfter: time.Minute, Binding: 1}),
		routes: func(s core.Store) []Route {
			two := core.Must(core.New(s, core.FixedWindow(50, time.Minute), core.FixedWindow(60, time.Hour)))
			return []Route{{Inside: []Inside{{Limiter: two, User: "alice", Action: "upload", Cost: 1}}}}
		},
		steps: []step{{want: passed(60, 1, "+60s")}},
		asked: []string{"alice upload 1"},
	},
	{
		name:  "Allow: its refusal is what FinalCost of the limit around it sees",
		store: memory,
		routes: func(s core.Store) []Route {
			rt := finalCostRoute(unless(200), done)(s)
			rt[0].Inside = []Inside{{Limiter: core.Must(core.New(s, core.FixedWindow(1, time.Minute))), User: "alice", Action: "upload", Cost: 1}}
			return rt
		},
		steps: []step{
			{want: passed(1, 0, "+60s")},
			{want: full(1, 0)},
			{want: full(1, 0)},
		},
		asked: []string{"alice reply 1", "alice upload 1", "alice reply 1", "alice upload 1", "alice reply 1", "alice upload 1"},
	},
}
