package gatetest

// Responses where no limit decides: without an identity, by an error, a panic, or a store that fails.

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

var failingRules = []rule{
	{
		name:   "no identity is 400 without limits and without the handler",
		store:  Decides(allowed),
		routes: reply(nil),
		steps:  []step{{header: []string{"X-User-Id", "-"}, want: bad(noUser)}},
		asked:  none,
	},
	{
		name:   "an ambiguous identity is 400",
		store:  Decides(allowed),
		routes: reply(nil),
		steps:  []step{{header: []string{"X-User-Id", "another"}, want: bad("The request says which user it is for in a way that cannot be read.")}},
		asked:  none,
	},
	unasked("an empty user is no identity", keyed(returns("", nil), nil), bad(noUser)),
	unasked("an empty action is no identity",
		keyed(nil, returns("", nil)), bad("The request does not say which action it is for.")),
	unasked("a bad action is 400, wrapped or not",
		keyed(nil, returns("x", fmt.Errorf("in %w", keyfuncs.ErrBadKey))), bad("The request says which action it is for in a way that cannot be read.")),
	{
		name:   "another error of the user's function is 500, said once in the log and not in the response",
		store:  Decides(allowed),
		routes: keyed(returns("", errBoom), nil),
		steps:  []step{{want: broken}, {want: broken}},
		asked:  none,
		log:    []string{cannot + "user: boom"},
	},
	unasked("another error of the action's function is 500",
		keyed(nil, returns("", errBoom)), broken).logs(cannot + "action: boom"),
	unasked("an error of the cost function is 500", reply(costs(1, errBoom)), broken).logs(cannot + "cost: boom"),
	unasked("an error of the cost function is the request's fault if it is ErrNoKey",
		reply(costs(1, fmt.Errorf("in %w", keyfuncs.ErrNoKey))), bad("The request does not say what it costs.")),
	unasked("an error of the cost function is the request's fault if it is ErrBadKey",
		reply(costs(1, keyfuncs.ErrBadKey)), bad("The request says what it costs in a way that cannot be read.")),
	unasked("an error of the picker is 500, whatever it is",
		reply(&nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return nil, keyfuncs.ErrNoKey }}), broken).logs(cannot + "limiter: keyfuncs: the request has no key"),
	unasked("a zero Limiter of the picker is 500",
		reply(&nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return new(core.Limiter), nil }}), broken).logs(cannot + "limiter: core: a zero Limiter; make limiters with core.New"),
	unasked("a negative cost is 500", reply(costs(-1, nil)), broken).logs(cannot + "cost: core: the cost is negative"),
	{
		name:   "a panic of the user's function is 500, said once",
		store:  Decides(allowed),
		routes: keyed(func(*http.Request) (string, error) { panic("oops") }, nil),
		steps:  []step{{want: broken}, {want: broken}, {want: broken}},
		asked:  none,
		log:    []string{cannot + "user: panic: oops"},
	},
	unasked("a panic of the cost function is 500",
		reply(&nethttp.Config{Cost: func(*http.Request) (int, error) { panic(errBoom) }}), broken).logs(cannot + "cost: panic: boom"),
	unasked("a panic of the picker is 500",
		reply(&nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { panic("oops") }}), broken).logs(cannot + "limiter: panic: oops"),
	unasked("a panic of Skip is 500",
		reply(&nethttp.Config{Skip: func(*http.Request) bool { panic("oops") }}), broken).logs(cannot + "skip: panic: oops"),
	one("a panic of the store is 500",
		func() core.Store { return Answers(func(core.Charge) (core.Decision, error) { panic("oops") }) }, nil, broken).logs(cannot + "store: panic: oops"),
	{
		name: "a panic of an observer is 500, and the action is charged",
		store: func() core.Store {
			n := 0
			return core.Observe(memorystore.New(nil), func(context.Context, core.Observation) {
				if n++; n == 1 {
					panic("oops")
				}
			})
		},
		routes: reply(nil),
		steps:  []step{{want: broken}, {want: passed(5, 3, "+60s")}},
		log:    []string{cannot + "store: panic: oops"},
	},
	unasked("http.ErrAbortHandler is panicked on and cuts the connection",
		keyed(func(*http.Request) (string, error) { panic(http.ErrAbortHandler) }, nil), response{cut: true}),
	{
		name:   "a failing store is 503 with nothing left, said once",
		store:  Fails("redis: connection refused"),
		routes: reply(nil, core.FixedWindow(3, time.Minute), core.FixedWindow(200, time.Hour)),
		steps:  []step{{want: down(3, "+1s")}, {want: down(3, "+1s")}},
		log:    []string{noAnswer + "store: redis: connection refused"},
	},
	one("a failing store's Reset is a delta where that is wanted",
		Fails("x"), shows(gate.XRateLimitDelta), down(5, "1")).logs(noAnswer + "store: x"),
	{
		name: "a store that fails now and then is said to once",
		store: func() core.Store {
			n := 0
			return Answers(func(core.Charge) (core.Decision, error) {
				if n++; n == 2 {
					d := allowed
					d.Limit = 5
					return d, nil
				}
				return core.Decision{}, errBoom
			})
		},
		routes: reply(nil),
		steps:  []step{{want: down(5, "+1s")}, {want: passed(5, 4, "+60s")}, {want: down(5, "+1s")}},
		log:    []string{noAnswer + "store: boom"},
	},
}
