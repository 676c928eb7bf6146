package gatetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
	"github.com/tailcut/tailcut/nethttp/gate"
)

// A rule is one line of the contract: what is mounted, what is asked, and what
// must come back from every adapter, by HTTP/1.1 and HTTP/2.
type rule struct {
	name     string
	store    func() core.Store
	routes   func(core.Store) []Route
	recovers bool
	steps    []step

	asked []string // what the store was asked: user, action, cost
	runs  int      // how often a handler ran
	log   []string
}

type step struct {
	method string   // "" is POST
	path   string   // "" is /replies/7
	header []string // name, value; a user "-" is none
	want   response
}

// response is a response to the last header; Date and Content-Length go without
// saying.
type response struct {
	status int
	header []string // "Name: value"
	body   string
	cut    bool // the connection ends without a response
}

// Values that depend on the time: "+60s" is the second in which 60 s from now ends,
// "~60" is 60 less the time that the rule has taken.

const (
	text     = "Content-Type: text/plain; charset=utf-8"
	problems = "Content-Type: application/problem+json"
	noStore  = "Cache-Control: no-store"
	own      = "..." // the framework's own body, of its own type

	quota   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	noRoom  = "The limit of 5 has no room for this at present."
	tooMuch = "This asks for more at once than the limit of 5 can ever allow."
	noUser  = "The request does not say which user it is for."
)

func limited(limit, remaining int, reset string, more ...string) []string {
	return append([]string{
		"X-Ratelimit-Limit: " + strconv.Itoa(limit),
		"X-Ratelimit-Remaining: " + strconv.Itoa(remaining),
		"X-Ratelimit-Reset: " + reset,
	}, more...)
}

func passed(limit, remaining int, reset string, more ...string) response {
	return response{status: 200, header: limited(limit, remaining, reset, append(more, text)...), body: "done"}
}

// uncounted is the handler's response and nothing else.
var uncounted = response{status: 200, header: []string{text}, body: "done"}

// refused is 429 with retry seconds; 0 is never.
func refused(limit, remaining int, reset string, retry int64, detail string, more ...string) response {
	r := response{
		status: 429,
		header: limited(limit, remaining, reset, append(more, noStore, problems)...),
		body:   problem(quota, "Too many requests", 429, detail, retry),
	}
	if retry > 0 {
		r.header = append(r.header, fmt.Sprintf("Retry-After: %d", retry))
	}
	return r
}

// full is 429 until a minute has passed since the rule began.
func full(limit, remaining int) response {
	return response{
		status: 429,
		header: limited(limit, remaining, "+60s", noStore, problems, "Retry-After: ~60"),
		body: fmt.Sprintf(`{"type":"%s","title":"Too many requests","status":429,"detail":"The limit of %d has no room for this at present. Try again in {wait}.","retry_after":{retry}}`+"\n",
			quota, limit),
	}
}

// words is a wait in its two largest units.
func words(seconds int64) string {
	count := func(n int64, unit string) string {
		switch n {
		case 0:
			return ""
		case 1:
			return " 1 " + unit
		}
		return fmt.Sprintf(" %d %ss", n, unit)
	}
	text := count(seconds, "second")
	if seconds >= 86400 {
		text = count(seconds/86400, "day") + count(seconds%86400/3600, "hour")
	} else if seconds >= 3600 {
		text = count(seconds/3600, "hour") + count(seconds%3600/60, "minute")
	} else if seconds >= 120 {
		text = count(seconds/60, "minute") + count(seconds%60, "second")
	}
	return strings.TrimPrefix(text, " ")
}

func problem(kind, title string, status int, detail string, retry int64) string {
	again := ""
	if retry > 0 {
		detail += " Try again in " + words(retry) + "."
		again = fmt.Sprintf(`,"retry_after":%d`, retry)
	}
	return fmt.Sprintf(`{"type":"%s","title":"%s","status":%d,"detail":"%s"%s}`+"\n", kind, title, status, detail, again)
}

func bad(detail string) response {
	return response{status: 400, header: []string{noStore, problems}, body: problem("about:blank", "Bad Request", 400, detail, 0)}
}

var broken = response{
	status: 500, header: []string{noStore, problems},
	body: problem("about:blank", "Internal Server Error", 500, "The server could not determine the limit for this action.", 0),
}

func down(limit int, reset string, more ...string) response {
	return response{
		status: 503,
		header: limited(limit, 0, reset, append(more, noStore, problems, "Retry-After: 1")...),
		body:   problem(reduced, "Service Unavailable", 503, "The limit on this action cannot be checked at present.", 1),
	}
}

func headless(r response) response { r.body = ""; return r }

var (
	fivePerMinute = core.FixedWindow(5, time.Minute)
	allowed       = core.Decision{Allowed: true, Remaining: 4, ResetAfter: time.Minute}
	refusal       = core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute, Reason: core.ReasonLimited}
)

// reply is the one route POST /replies/{id}.
func reply(cfg *nethttp.Config, limits ...core.Limit) func(core.Store) []Route {
	if len(limits) == 0 {
		limits = []core.Limit{fivePerMinute}
	}
	return func(s core.Store) []Route {
		return []Route{{Limits: []Limit{{Limiter: core.Must(core.New(s, limits...)), Config: cfg}}}}
	}
}

// handled is reply with a handler of its own.
func handled(cfg *nethttp.Config, h Handler) func(core.Store) []Route {
	return func(s core.Store) []Route {
		rt := reply(cfg)(s)
		rt[0].Handler = h
		return rt
	}
}

// behind is reply with headers that a middleware further out sets.
func behind(outside ...string) func(core.Store) []Route {
	return func(s core.Store) []Route {
		rt := reply(nil)(s)
		rt[0].Outside = outside
		return rt
	}
}

// keyed is reply with key functions of its own.
func keyed(user, action keyfuncs.Func) func(core.Store) []Route {
	return func(s core.Store) []Route {
		rt := reply(nil)(s)
		rt[0].Limits[0].User, rt[0].Limits[0].Action = user, action
		return rt
	}
}

// stacked is one route behind two limits, of the actions outer and inner, each of 9.
func stacked(outer, inner *nethttp.Config) func(core.Store) []Route {
	return func(s core.Store) []Route {
		nine := core.Must(core.New(s, core.FixedWindow(9, time.Minute)))
		seven := core.Must(core.New(s, core.FixedWindow(7, time.Minute)))
		return []Route{{Limits: []Limit{
			{Limiter: nine, Action: keyfuncs.Action("outer"), Config: outer},
			{Limiter: seven, Action: keyfuncs.Action("inner"), Config: inner},
		}}}
	}
}

func passes(remaining int, reset time.Duration) core.Decision {
	return core.Decision{Allowed: true, Remaining: remaining, ResetAfter: reset}
}

// each is a store that answers by the action.
func each(outer, inner core.Decision) func() core.Store {
	return func() core.Store {
		return Answers(func(c core.Charge) (core.Decision, error) {
			d := outer
			if c.Action == "inner" {
				d = inner
			}
			d.Limit = c.Limits[0].Quota()
			return d, nil
		})
	}
}

func returns(key string, err error) keyfuncs.Func {
	return func(*http.Request) (string, error) { return key, err }
}

var errBoom = errors.New("boom")

func costs(n int, err error) *nethttp.Config {
	return &nethttp.Config{Cost: func(*http.Request) (int, error) { return n, err }}
}

func shows(hs gate.Headers) *nethttp.Config { return &nethttp.Config{Headers: hs} }

func status(code int) Handler {
	return func(w http.ResponseWriter, _ *http.Request, _ func() (core.Decision, bool)) { w.WriteHeader(code) }
}

func tellsKept(w http.ResponseWriter, _ *http.Request, kept func() (core.Decision, bool)) {
	d, ok := kept()
	_, _ = fmt.Fprintf(w, "%t %d/%d", ok, d.Remaining, d.Limit)
}

// one is a rule of one request to reply. The store is asked about it, and the handler runs if it passes.
func one(name string, store func() core.Store, cfg *nethttp.Config, want response, limits ...core.Limit) rule {
	r := rule{name: name, store: store, routes: reply(cfg, limits...), steps: []step{{want: want}}, asked: []string{"alice reply 1"}}
	if want.status == 200 {
		r.runs = 1
	}
	return r
}

// two is a rule of one request to stacked, about which both limits decide.
func two(name string, outer, inner core.Decision, outerConfig, innerConfig *nethttp.Config, want response) rule {
	r := one(name, each(outer, inner), nil, want)
	r.routes, r.asked = stacked(outerConfig, innerConfig), []string{"alice outer 1", "alice inner 1"}
	return r
}

// unasked is a rule of one request that is answered before the store is asked.
func unasked(name string, routes func(core.Store) []Route, want response) rule {
	return rule{name: name, store: Decides(allowed), routes: routes, steps: []step{{want: want}}}
}

func (r rule) logs(line string) rule { r.log = []string{line}; return r }

const cannot = "ERROR adapter: a request cannot be limited | not-limited | adapter: "

var rules = []rule{
	one("an allowed action passes with the limit's three headers and no others", Decides(allowed), nil, passed(5, 4, "+60s")),
	{
		name:  "an allowed action has the handler's own status and the outer Cache-Control",
		store: Decides(allowed),
		routes: func(s core.Store) []Route {
			rt := behind("Cache-Control", "public, max-age=60")(s)
			rt[0].Handler = status(201)
			return rt
		},
		steps: []step{{want: response{status: 201, header: limited(5, 4, "+60s", "Cache-Control: public, max-age=60")}}},
		asked: []string{"alice reply 1"},
		runs:  1,
	},
	one("a refusal is 429 with Retry-After, no-store and a problem", Decides(refusal), nil, refused(5, 0, "+60s", 30, noRoom)),
	{
		name:   "a refusal is not stored, whatever an outer middleware has said, and retries by our word",
		store:  Decides(refusal),
		routes: behind("Cache-Control", "public, max-age=60", "Retry-After", "7200", "Content-Type", "text/html", "Content-Length", "3"),
		steps:  []step{{want: refused(5, 0, "+60s", 30, noRoom)}},
		asked:  []string{"alice reply 1"},
	},
	one("Retry-After is rounded up",
		Decides(core.Decision{RetryAfter: 2*time.Second + time.Microsecond, ResetAfter: time.Minute}), nil, refused(5, 0, "+60s", 3, noRoom)),
	one("Retry-After is at least 1",
		Decides(core.Decision{RetryAfter: time.Microsecond, ResetAfter: time.Minute}), nil, refused(5, 0, "+60s", 1, noRoom)),
	one("Retry-After is at least 1, also of a store that refuses without a wait",
		Decides(core.Decision{ResetAfter: time.Minute}), nil, refused(5, 0, "+60s", 1, noRoom)),
	one("Reset is rounded up",
		Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: 59*time.Second + time.Microsecond}), nil, passed(5, 4, "+59.000001s")),
	{
		name:  "what can never pass has no Retry-After, not even an outer one",
		store: memory,
		routes: func(s core.Store) []Route {
			rt := behind("Retry-After", "7")(s)
			rt[0].Limits[0].Config = costs(6, nil)
			return rt
		},
		steps: []step{{want: refused(5, 5, "+0s", 0, tooMuch)}},
		asked: []string{"alice reply 6 peek"},
	},
	one("a full store refuses in other words",
		Decides(core.Decision{RetryAfter: time.Second, ResetAfter: time.Second, Reason: core.ReasonFull}), nil,
		refused(5, 0, "+1s", 1, "Too many users are being limited at present.")),
	{
		name:   "a problem does not go out under what was said of another body",
		store:  Decides(refusal),
		routes: behind("Etag", `"x"`, "Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT", "Expires", "Mon, 02 Jan 2036 15:04:05 GMT", "Content-Encoding", "gzip", "X-Other", "stays"),
		steps:  []step{{want: refused(5, 0, "+60s", 30, noRoom, "X-Other: stays")}},
		asked:  []string{"alice reply 1"},
	},
	{
		name:  "nor does it inside a limit that wraps the writer",
		store: each(allowed, refusal),
		routes: func(s core.Store) []Route {
			rt := stacked(asCharged, nil)(s)
			rt[0].Outside = []string{"Etag", `"x"`, "Content-Encoding", "gzip"}
			return rt
		},
		steps: []step{{want: refused(7, 0, "+60s", 30, "The limit of 7 has no room for this at present.")}},
		asked: []string{"alice outer 1", "alice inner 1"},
	},
	{
		name:   "quota runs out, request by request",
		store:  memory,
		routes: reply(nil, core.FixedWindow(2, time.Minute)),
		steps: []step{
			{want: passed(2, 1, "+60s")},
			{want: passed(2, 0, "+60s")},
			{want: full(2, 0)},
			{header: []string{"X-User-Id", "other"}, want: passed(2, 1, "+60s")},
		},
		asked: []string{"alice reply 1", "alice reply 1", "alice reply 1", "other reply 1"},
		runs:  3,
	},
	{
		name:   "no identity is 400 without limits and without the handler",
		store:  Decides(allowed),
		routes: reply(nil),
		steps:  []step{{header: []string{"X-User-Id", "-"}, want: bad(noUser)}},
	},
	{
		name:   "an ambiguous identity is 400",
		store:  Decides(allowed),
		routes: reply(nil),
		steps:  []step{{header: []string{"X-User-Id", "another"}, want: bad("The request says which user it is for in a way that cannot be read.")}},
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
		asked:  []string{"alice reply 1", "alice reply 1"},
		runs:   1,
		log:    []string{cannot + "store: panic: oops"},
	},
	unasked("http.ErrAbortHandler is panicked on and cuts the connection",
		keyed(func(*http.Request) (string, error) { panic(http.ErrAbortHandler) }, nil), response{cut: true}),
	{
		name:   "a failing store is 503 with nothing left, said once",
		store:  Fails("redis: connection refused"),
		routes: reply(nil, core.FixedWindow(3, time.Minute), core.FixedWindow(200, time.Hour)),
		steps:  []step{{want: down(3, "+1s")}, {want: down(3, "+1s")}},
		asked:  []string{"alice reply 1", "alice reply 1"},
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
		asked:  []string{"alice reply 1", "alice reply 1", "alice reply 1"},
		runs:   1,
		log:    []string{noAnswer + "store: boom"},
	},
	one("failed open passes with the first limit's untouched quota",
		func() core.Store { return core.FailOpen(Fails("boom")()) }, nil, passed(3, 3, "+0s"), core.FixedWindow(3, time.Minute), core.FixedWindow(2, time.Hour)),
	{
		name:   "a fallback's decision looks as any other",
		store:  func() core.Store { return core.Fallback(Fails("boom")(), memorystore.New(nil)) },
		routes: reply(nil),
		steps:  []step{{want: passed(5, 4, "+60s")}, {want: passed(5, 3, "+60s")}},
		asked:  []string{"alice reply 1", "alice reply 1"},
		runs:   2,
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
		runs:  2,
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
		runs:  3,
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
		asked: []string{"alice reply 1", "alice reply 1"},
		runs:  2,
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
		asked: []string{"alice reply 1", "alice reply 1"},
		runs:  2,
	},
	{
		name:   "a response without a body keeps the headers: 204",
		store:  Decides(allowed),
		routes: handled(nil, status(204)),
		steps:  []step{{want: response{status: 204, header: limited(5, 4, "+60s")}}},
		asked:  []string{"alice reply 1"},
		runs:   1,
	},
	{
		name:   "a response without a body keeps the headers: 304",
		store:  Decides(allowed),
		routes: handled(nil, status(304)),
		steps:  []step{{want: response{status: 304, header: limited(5, 4, "+60s")}}},
		asked:  []string{"alice reply 1"},
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
		runs:  1,
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
		asked: []string{"alice reply 1"},
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
		asked: []string{"alice reply 1", "alice reply 1", "alice reply 1", "alice reply 1"},
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
		runs:  1,
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
		runs:  3,
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
		runs:  1,
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
		asked: []string{"alice reply 1", "alice reply 1"},
		runs:  2,
	},
	{
		name:  "the picked limiter's store fails: its own Limit shows",
		store: Fails("boom"),
		routes: func(s core.Store) []Route {
			gold := core.Must(core.New(s, core.FixedWindow(50, time.Minute)))
			return reply(&nethttp.Config{Limiter: func(*http.Request) (*core.Limiter, error) { return gold, nil }})(s)
		},
		steps: []step{{want: down(50, "+1s")}},
		asked: []string{"alice reply 1"},
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
		asked: []string{"alice reply 1"},
		runs:  1,
	},
	{
		name:   "Keep lets the handler read the decision",
		store:  Decides(allowed),
		routes: handled(&nethttp.Config{Keep: true}, tellsKept),
		steps:  []step{{want: response{status: 200, header: limited(5, 4, "+60s", text), body: "true 4/5"}}},
		asked:  []string{"alice reply 1"},
		runs:   1,
	},
	{
		name:   "without Keep there is no decision to read",
		store:  Decides(allowed),
		routes: handled(nil, tellsKept),
		steps:  []step{{want: response{status: 200, header: limited(5, 4, "+60s", text), body: "false 0/0"}}},
		asked:  []string{"alice reply 1"},
		runs:   1,
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
		runs:  1,
	},
	one("XRateLimitDelta gives whole seconds from now, rounded up",
		Decides(core.Decision{Allowed: true, Remaining: 4, ResetAfter: 59*time.Second + time.Microsecond}), shows(gate.XRateLimitDelta), passed(5, 4, "60")),
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
		asked: []string{"alice reply 1", "alice reply 1"},
		runs:  1,
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
		asked: []string{"alice reply 1", "alice reply 1", "alice reply 1"},
		runs:  2,
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
		refused(7, 0, "+60s", 30, "The limit of 7 has no room for this at present.")),
	{
		name:   "stacked: what the outer refuses does not reach the inner",
		store:  each(core.Decision{RetryAfter: 30 * time.Second, ResetAfter: time.Minute}, allowed),
		routes: stacked(nil, nil),
		steps:  []step{{want: refused(9, 0, "+60s", 30, "The limit of 9 has no room for this at present.")}},
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
		asked:  []string{"alice reply 1"},
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
		runs:  2,
	},
}

func testResponses(t *testing.T, adapters []Adapter) {
	servers := Serve(t)
	for _, ad := range adapters {
		t.Run(ad.Name, func(t *testing.T) {
			for _, s := range servers {
				t.Run(s.Proto, func(t *testing.T) {
					for _, r := range slices.Concat(rules, refusedRules) {
						t.Run(r.name, func(t *testing.T) { r.hold(t, ad, s) })
					}
				})
			}
		})
	}
}

func (r rule) hold(t *testing.T, ad Adapter, s *Server) {
	log := Capture(t)
	if ad.Forget != nil {
		ad.Forget()
	}
	store := NewStore(r.store())
	var runs atomic.Int32
	a := App{Routes: r.routes(store), Recovers: r.recovers}.Filled()
	for i := range a.Routes {
		h := a.Routes[i].Handler
		a.Routes[i].Handler = func(w http.ResponseWriter, r *http.Request, kept func() (core.Decision, bool)) {
			runs.Add(1)
			h(w, r, kept)
		}
	}
	s.Mount(ad.Mount(a))
	start := time.Now()
	for i, st := range r.steps {
		st.hold(t, s, i, start)
	}
	inside := slices.ContainsFunc(a.Routes, func(rt Route) bool { return rt.Inside != nil })
	if got := log.Take(ad.pkg()); !slices.Equal(got, r.log) && (ad.Forget != nil || !inside) {
		t.Errorf("log:\n got %q\nwant %q", got, r.log)
	}
	if got := charges(store); !slices.Equal(got, r.asked) {
		t.Errorf("the store was asked\n     %q\nwant %q", got, r.asked)
	}
	if int(runs.Load()) != r.runs {
		t.Errorf("the handler ran %d times, want %d", runs.Load(), r.runs)
	}
}

func (st step) hold(t *testing.T, s *Server, i int, start time.Time) {
	t.Helper()
	if st.method == "" {
		st.method = "POST"
	}
	if st.path == "" {
		st.path = "/replies/7"
	}
	req, err := http.NewRequestWithContext(t.Context(), st.method, s.URL+st.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-User-ID", "alice")
	for j := 0; j < len(st.header); j += 2 {
		if st.header[j+1] == "-" {
			req.Header.Del(st.header[j])
		} else if st.header[j] == "X-User-Id" && st.header[j+1] == "other" {
			req.Header.Set(st.header[j], st.header[j+1])
		} else {
			req.Header.Add(st.header[j], st.header[j+1])
		}
	}
	resp, err := s.Client().Do(req)
	if st.want.cut {
		if err == nil {
			resp.Body.Close()
			t.Errorf("step %d: got %s, want no response", i, resp.Status)
		}
		return
	}
	if err != nil {
		t.Fatalf("step %d: %v", i, err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatalf("step %d: %v", i, err)
	}
	st.want.hold(t, fmt.Sprintf("step %d", i), st.method, resp, string(body), start)
}

// hold compares every header and the body.
func (want response) hold(t *testing.T, what, method string, resp *http.Response, body string, start time.Time) {
	t.Helper()
	end := time.Now()
	if resp.StatusCode != want.status {
		t.Errorf("%s: status %d, want %d", what, resp.StatusCode, want.status)
	}
	got := resp.Header.Clone()
	if _, err := http.ParseTime(got.Get("Date")); err != nil {
		t.Errorf("%s: Date: %v", what, err)
	}
	delete(got, "Date")
	if want.body == own {
		delete(got, "Content-Type")
		delete(got, "Content-Length")
	} else {
		retry := got.Get("Retry-After")
		seconds, _ := strconv.ParseInt(retry, 10, 64)
		if w := strings.NewReplacer("{retry}", retry, "{wait}", words(seconds)).Replace(want.body); body != w {
			t.Errorf("%s: body\n got %q\nwant %q", what, body, w)
		}
		if method != "HEAD" && want.status != 204 && want.status != 304 {
			want.header = append(slices.Clone(want.header), "Content-Length: "+strconv.Itoa(len(body)))
		}
	}
	for _, line := range want.header {
		name, value, _ := strings.Cut(line, ": ")
		if want.body == own && name == "Content-Type" {
			continue
		}
		values := got[name]
		delete(got, name)
		if len(values) != 1 || !agrees(values[0], value, start, end) {
			t.Errorf("%s: %s is %q, want %q", what, name, values, value)
		}
	}
	for name, values := range got {
		t.Errorf("%s: there is a header %s: %q", what, name, values)
	}
}

// agrees compares a value with what is wanted, between start and end.
func agrees(got, want string, start, end time.Time) bool {
	if d, ok := strings.CutPrefix(want, "+"); ok {
		after, err := time.ParseDuration(d)
		n, err2 := strconv.ParseInt(got, 10, 64)
		return err == nil && err2 == nil && n >= ceil(start.Add(after)) && n <= ceil(end.Add(after))
	}
	if prefix, s, ok := strings.Cut(want, "~"); ok {
		most, err := strconv.Atoi(s)
		rest, ok := strings.CutPrefix(got, prefix)
		n, err2 := strconv.Atoi(rest)
		return ok && err == nil && err2 == nil && n <= most && n >= most-int(end.Sub(start)/time.Second)-1
	}
	return got == want
}
