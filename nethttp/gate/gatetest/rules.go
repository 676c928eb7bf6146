package gatetest

// What the rules are made of: responses, routes and stores. The file of each group has its rules.

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
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

	asked []string // what the store was asked: user, action, cost; nil is "alice reply 1" for each step
	runs  int      // how often a handler ran; 0 is once for each step whose status is 200, and -1 is never
	log   []string
}

var none = []string{} // the store was not asked

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

	longest = 20 * 24 * 3600 // a Retry-After

	noRoom  = "The limit of 5 per minute has no room for this at present."
	tooMuch = "This asks for more at once than the limit of 5 per minute can ever allow."
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
		r.header = append(r.header, fmt.Sprintf("Retry-After: %d", min(retry, longest)))
	}
	return r
}

// full is 429 until a minute has passed since the rule began.
func full(limit, remaining int) response {
	return response{
		status: 429,
		header: limited(limit, remaining, "+60s", noStore, problems, "Retry-After: ~60"),
		body: fmt.Sprintf(`{"type":"%s","title":"Too many requests","status":429,"detail":"The limit of %d per minute has no room for this at present. Try again in {wait}.","retry_after":{retry}}`+"\n",
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
		again = fmt.Sprintf(`,"retry_after":%d`, min(retry, longest))
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

// one is a rule of one request to reply.
func one(name string, store func() core.Store, cfg *nethttp.Config, want response, limits ...core.Limit) rule {
	return rule{name: name, store: store, routes: reply(cfg, limits...), steps: []step{{want: want}}}
}

// two is a rule of one request to stacked, about which both limits decide.
func two(name string, outer, inner core.Decision, outerConfig, innerConfig *nethttp.Config, want response) rule {
	r := one(name, each(outer, inner), nil, want)
	r.routes, r.asked = stacked(outerConfig, innerConfig), []string{"alice outer 1", "alice inner 1"}
	return r
}

// unasked is a rule of one request that is answered before the store is asked.
func unasked(name string, routes func(core.Store) []Route, want response) rule {
	return rule{name: name, store: Decides(allowed), routes: routes, steps: []step{{want: want}}, asked: none}
}

func (r rule) logs(line string) rule { r.log = []string{line}; return r }

const cannot = "ERROR adapter: a request cannot be limited | not-limited | adapter: "
