package gatetest

// The headers in other forms, of stacked limits, and of Deny and Fail.

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

var headerRules = []rule{
	one("XRateLimitDelta gives whole seconds from now, rounded up",
		Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: 59*time.Second + time.Microsecond}), shows(gate.XRateLimitDelta), passed(5, 4, "60")),
	one("less than nothing, which is a store's mistake, is 0",
		Decides(core.Decision{Allowed: true, Remaining: -1, ResetAfter: -time.Hour}), nil, passed(5, 0, "+0s")),
	one("the longest wait and reset overflow nothing",
		Decides(core.Decision{RetryAfter: core.Never - 1, ResetAfter: core.Never - 1}), shows(gate.XRateLimitDelta), refused(5, 0, "9223372037", 9223372037, noRoom)),
	one("XRateLimitDelta of a whole second is that second",
		Decides(refusal), shows(gate.XRateLimitDelta), refused(5, 0, "60", 30, noRoom)),
	one("IETF lists all limits and the binding one", Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Minute, Binding: 1}), shows(gate.XRateLimitAndIETF), passed(5, 4, "+60s",
		`Ratelimit-Policy: "moving:1h";q=9;w=3600, "posts";q=5;w=60, "funnel:3:3/100ms";q=3`, `Ratelimit: "posts";r=4;t=60`),
		core.MovingWindow(9, time.Hour), fivePerMinute.Named("posts"), core.Funnel(3, core.Per(30, time.Second))),
	one("a binding limit that there is not shows as the first", func() core.Store {
		return Answers(func(core.Charge) (core.Decision, error) {
			return core.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: time.Minute, Binding: -1}, nil
		})
	}, shows(gate.XRateLimitAndIETF), passed(5, 4, "+60s", `Ratelimit-Policy: "fixed:1m";q=5;w=60`, `Ratelimit: "fixed:1m";r=4;t=60`)),
	one("IETF names each limit differently, whatever they are called",
		Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Minute, Binding: 2}), shows(gate.XRateLimitAndIETF), passed(5, 4, "+60s",
			`Ratelimit-Policy: "a";q=9;w=3600, "a-2";q=7;w=3600, "a-3";q=5;w=60, "a-2-2";q=3;w=60`, `Ratelimit: "a-3";r=4;t=60`),
		core.FixedWindow(9, time.Hour).Named("a"), core.MovingWindow(7, time.Hour).Named("a"), core.FixedWindow(5, time.Minute).Named("a"), core.FixedWindow(3, time.Minute).Named("a-2")),
	one("IETF of a failing store tells that nothing is left",
		Fails("x"), shows(gate.XRateLimitAndIETF), down(5, "+1s", `Ratelimit-Policy: "fixed:1m";q=5;w=60`, `Ratelimit: "fixed:1m";r=0;t=1`)).logs(noAnswer + "store: x"),
	one("IETF of a refusal tells when more comes",
		Decides(refusal), shows(gate.XRateLimitAndIETF), refused(5, 0, "+60s", 30, noRoom, `Ratelimit-Policy: "fixed:1m";q=5;w=60`, `Ratelimit: "fixed:1m";r=0;t=30`)),
	one("IETF of what can never pass tells no time", Decides(core.Decision{Remaining: 5, RetryAfter: core.Never}), shows(gate.XRateLimitAndIETF), refused(5, 5, "+0s", 0, tooMuch,
		`Ratelimit-Policy: "fixed:1m";q=5;w=60`, `Ratelimit: "fixed:1m";r=5`)),
	{
		name:   "two limits on one limiter are all or none, and the binding one shows",
		store:  memory,
		routes: reply(nil, core.FixedWindow(1, time.Minute), core.FixedWindow(3, time.Hour)),
		steps: []step{
			{want: passed(1, 0, "+60s")},
			{want: full(1, 0)},
		},
	},
	{
		name:   "of a limit that core.Divide has divided the headers show the share, as the problem does",
		store:  func() core.Store { return core.Divide(memory(), 4) },
		routes: reply(nil),
		steps: []step{
			{want: passed(2, 1, "+60s")},
			{want: passed(2, 0, "+60s")},
			{want: full(2, 0)},
		},
	},
	one("and so do the IETF headers, for the binding limit",
		func() core.Store { return core.Divide(memory(), 4) }, shows(gate.XRateLimitAndIETF),
		passed(2, 1, "+60s", `Ratelimit-Policy: "fixed:1h";q=40;w=3600, "fixed:1m";q=2;w=60`, `Ratelimit: "fixed:1m";r=1;t=60`), core.FixedWindow(40, time.Hour), fivePerMinute),
	two("stacked: a tighter inner decision owns the headers",
		passes(5, time.Hour), passes(2, time.Minute), nil, nil, passed(7, 2, "+60s")),
	two("stacked: a tighter outer decision owns the headers",
		passes(2, time.Minute), passes(5, time.Hour), nil, nil, passed(9, 2, "+60s")),
	two("stacked: as much left for longer is tighter, inner",
		passes(2, time.Minute), passes(2, time.Hour), nil, nil, passed(7, 2, "+3600s")),
	two("stacked: as much left for longer is tighter, outer",
		passes(2, time.Hour), passes(2, time.Minute), nil, nil, passed(9, 2, "+3600s")),
	two("stacked: as much left for longer is tighter, inner with XRateLimitDelta",
		passes(2, time.Minute), passes(2, time.Hour), nil, shows(gate.XRateLimitDelta), passed(7, 2, "3600")),
	two("stacked: as much left for longer is tighter, outer with XRateLimitDelta",
		passes(2, time.Hour), passes(2, time.Minute), shows(gate.XRateLimitDelta), nil, passed(9, 2, "3600")),
	two("stacked: the tighter decision owns the IETF headers too",
		passes(5, time.Hour), passes(2, time.Minute), shows(gate.XRateLimitAndIETF), shows(gate.XRateLimitAndIETF),
		passed(7, 2, "+60s", `Ratelimit-Policy: "fixed:1m";q=7;w=60`, `Ratelimit: "fixed:1m";r=2;t=60`)),
	two("stacked: where the tighter decision has no IETF headers the other's do not stay",
		passes(5, time.Hour), passes(2, time.Minute), shows(gate.XRateLimitAndIETF), nil, passed(7, 2, "+60s")),
	one("IETF alone",
		Decides(allowed), shows(gate.IETF),
		response{status: 200, header: []string{text, `Ratelimit-Policy: "fixed:1m";q=5;w=60`, `Ratelimit: "fixed:1m";r=4;t=60`}, body: "done"}),
	one("NoHeaders", Decides(allowed), shows(gate.NoHeaders), uncounted),
	one("NoHeaders leaves Retry-After", Decides(refusal), shows(gate.NoHeaders), response{
		status: 429, header: []string{noStore, problems, "Retry-After: 30"},
		body: problem(quota, "Too many requests", 429, noRoom, 30),
	}),
	two("stacked: a tighter inner decision owns the headers, IETF alone",
		passes(5, time.Hour), passes(2, time.Minute), shows(gate.IETF), shows(gate.IETF),
		response{status: 200, header: []string{text, `Ratelimit-Policy: "fixed:1m";q=7;w=60`, `Ratelimit: "fixed:1m";r=2;t=60`}, body: "done"}),
	two("stacked: a tighter outer decision owns the headers, IETF alone",
		passes(2, time.Minute), passes(5, time.Hour), shows(gate.IETF), nil,
		response{status: 200, header: []string{text, `Ratelimit-Policy: "fixed:1m";q=9;w=60`, `Ratelimit: "fixed:1m";r=2;t=60`}, body: "done"}),
	two("stacked: as much left for longer is tighter, IETF alone",
		passes(2, time.Hour), passes(2, time.Minute), shows(gate.IETF), shows(gate.IETF),
		response{status: 200, header: []string{text, `Ratelimit-Policy: "fixed:1m";q=9;w=60`, `Ratelimit: "fixed:1m";r=2;t=3600`}, body: "done"}),
	two("stacked: where the tighter decision has the IETF headers alone the other's do not stay",
		passes(5, time.Hour), passes(2, time.Minute), nil, shows(gate.IETF),
		response{status: 200, header: []string{text, `Ratelimit-Policy: "fixed:1m";q=7;w=60`, `Ratelimit: "fixed:1m";r=2;t=60`}, body: "done"}),
	two("stacked: NoHeaders takes none away",
		passes(5, time.Hour), passes(2, time.Minute), nil, shows(gate.NoHeaders), passed(9, 5, "+3600s")),
	one("SpreadRetryAfter leaves Never",
		Decides(core.Decision{RetryAfter: core.Never}), &nethttp.Config{SpreadRetryAfter: true}, refused(5, 0, "+0s", 0, tooMuch)),
	one("SpreadRetryAfter leaves the longest wait",
		Decides(core.Decision{RetryAfter: core.Never - 1}), &nethttp.Config{SpreadRetryAfter: true, Headers: gate.XRateLimitDelta},
		refused(5, 0, "9223372037", 9223372037, noRoom)),
	one("SpreadRetryAfter leaves a short wait",
		Decides(core.Decision{RetryAfter: 9*time.Second + time.Millisecond}), &nethttp.Config{SpreadRetryAfter: true, Headers: gate.XRateLimitDelta}, refused(5, 0, "10", 10, noRoom)),
	one("SpreadRetryAfter leaves a store's failure",
		Fails("x"), &nethttp.Config{SpreadRetryAfter: true}, down(5, "+1s")).logs(noAnswer + "store: x"),
	two("SpreadRetryAfter leaves an allowed action",
		passes(5, time.Hour), passes(2, time.Minute), nil, &nethttp.Config{SpreadRetryAfter: true}, passed(7, 2, "+60s")),
	two("stacked: an inner refusal owns the headers, also when the outer had less and longer",
		core.Decision{Allowed: true, ResetAfter: time.Hour}, core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute}, nil, nil,
		refused(7, 0, "+60s", 30, "The limit of 7 per minute has no room for this at present.")),
	{
		name:   "stacked: what the outer refuses does not reach the inner",
		store:  each(core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute}, allowed),
		routes: stacked(nil, nil),
		steps:  []step{{want: refused(9, 0, "+60s", 30, "The limit of 9 per minute has no room for this at present.")}},
		asked:  []string{"alice outer 1"},
	},
	{
		name:   "stacked: a failing inner store owns the headers",
		store:  failsInner,
		routes: stacked(shows(gate.XRateLimitAndIETF), nil),
		steps:  []step{{want: down(7, "+1s")}},
		asked:  []string{"alice outer 1", "alice inner 1"},
		log:    []string{noAnswer + "store: boom"},
	},
	{
		name:   "a number of other middleware that cannot be read is replaced",
		store:  Decides(allowed),
		routes: behind("X-RateLimit-Remaining", "many", "X-RateLimit-Limit", "3"),
		steps:  []step{{want: passed(5, 4, "+60s")}},
	},
	{
		name:   "numbers of other middleware that are tighter stay",
		store:  Decides(allowed),
		routes: behind("X-RateLimit-Remaining", "3", "X-RateLimit-Limit", "4"),
		steps:  []step{{want: response{status: 200, header: []string{"X-Ratelimit-Limit: 4", "X-Ratelimit-Remaining: 3", text}, body: "done"}}},
	},
	one("Deny answers in its own way, with the headers", Decides(refusal), &nethttp.Config{Deny: func(w http.ResponseWriter, r *http.Request, d core.Decision) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(420)
		_, _ = fmt.Fprintf(w, "%s: %v %s", r.URL.Path, d.RetryAfter, d.Reason)
	}}, response{status: 420, header: limited(5, 0, "+60s", noStore, text, "Retry-After: 30"), body: "/replies/7: 30s limited"}),
	one("Deny may answer with a status alone",
		Decides(refusal), &nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) { w.WriteHeader(403) }},
		response{status: 403, header: limited(5, 0, "+60s", noStore, "Retry-After: 30")}),
	{
		name:   "Deny may answer with a body alone",
		store:  Decides(refusal),
		routes: reply(&nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) { _, _ = io.WriteString(w, "ok") }}),
		steps:  []step{{want: response{status: 200, header: limited(5, 0, "+60s", noStore, text, "Retry-After: 30"), body: "ok"}}},
		runs:   -1,
	},
	one("a Deny that writes nothing leaves the default answer",
		Decides(refusal), &nethttp.Config{Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) { w.Header().Set("X-Seen", "1") }},
		refused(5, 0, "+60s", 30, noRoom, "X-Seen: 1")),
	one("Deny and Fail are not asked about what passes", Decides(allowed), &nethttp.Config{
		Deny: func(w http.ResponseWriter, _ *http.Request, _ core.Decision) { w.WriteHeader(420) },
		Fail: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(420) },
	}, passed(5, 4, "+60s")),
	{
		name:  "Fail answers in its own way, and knows what is due",
		store: Decides(refusal),
		routes: reply(&nethttp.Config{Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
			var f *gate.Failure
			ok := errors.As(err, &f) && errors.Is(err, keyfuncs.ErrNoKey)
			w.WriteHeader(401)
			_, _ = fmt.Fprintf(w, "%t %d", ok, f.Status)
		}}),
		steps: []step{{header: []string{"X-User-Id", "-"}, want: response{status: 401, header: []string{noStore, text}, body: "true 400"}}},
		asked: none,
	},
	{
		name:  "Deny is not asked about a failure, nor Fail about a refusal",
		store: Decides(refusal),
		routes: func(s core.Store) []Route {
			a := reply(&nethttp.Config{Deny: func(http.ResponseWriter, *http.Request, core.Decision) { panic("denied") }})(s)[0]
			b := reply(&nethttp.Config{Fail: func(http.ResponseWriter, *http.Request, error) { panic("failed") }})(s)[0]
			b.Path = "/others"
			return []Route{a, b}
		},
		steps: []step{
			{header: []string{"X-User-Id", "-"}, want: bad(noUser)},
			{path: "/others", want: refused(5, 0, "+60s", 30, noRoom)},
		},
		asked: []string{"alice reply 1"},
	},
	one("a Fail that writes nothing leaves the default answer",
		Fails("boom"), &nethttp.Config{Fail: func(http.ResponseWriter, *http.Request, error) {}}, down(5, "+1s")).logs(noAnswer + "store: boom"),
	{
		name:  "headers that a client writes about its address are not believed",
		store: memory,
		routes: func(s core.Store) []Route {
			return []Route{{Limits: []Limit{{Limiter: core.Must(core.New(s, core.FixedWindow(2, time.Minute))), User: keyfuncs.RemoteIP}}}}
		},
		steps: []step{
			{header: []string{"X-Forwarded-For", "6.6.6.1", "X-Real-Ip", "6.6.6.1"}, want: passed(2, 1, "+60s")},
			{header: []string{"X-Forwarded-For", "6.6.6.2", "Cf-Connecting-Ip", "6.6.6.2"}, want: passed(2, 0, "+60s")},
			{method: "POST", header: []string{"X-Forwarded-For", "6.6.6.3, 7.7.7.7", "True-Client-Ip", "6.6.6.3", "Forwarded", "for=6.6.6.3"}, want: full(2, 0)},
		},
		asked: []string{"127.0.0.1 reply 1", "127.0.0.1 reply 1", "127.0.0.1 reply 1"},
	},
}
