package gate

// This file has the reasons why a request does not pass, and the body of its answer.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A Failure says why a request got no decision. Config.Fail gets it as its error.
type Failure struct {
	// Status is the status of the default answer:
	//
	//   - 400 if the request does not say who acts, what the action is or what it costs, or says it
	//     in a way that cannot be read
	//   - 503 if the store gives no answer
	//   - 500 if the program is at fault, such as a function that was given to the middleware
	Status int
	Err    error

	adapter, asking string
}

// Error returns the adapter's name, what the limit needed to know, and the text of Err. What it
// needed is user, action, limiter, cost, skip, headers or store.
func (f *Failure) Error() string { return f.adapter + ": " + f.asking + ": " + f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// down reports whether the store gave no answer.
func (f *Failure) down() bool { return f.Status == http.StatusServiceUnavailable }

// statusOf returns 400 if the request is at fault, and 500 if the server is.
func statusOf(err error) int {
	if errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

func panicked(v any) error { return fmt.Errorf("panic: %v\n%s", v, debug.Stack()) }

// log logs a failure, unless the request is at fault or the client has disconnected.
func (f *Failure) log(ctx context.Context, l *failureLog) {
	due, text, code := interface{ Due() bool }(&l.broken), ": a request cannot be limited", "not-limited"
	switch {
	case f.Status == http.StatusBadRequest, f.down() && ctx.Err() != nil:
		return
	case errors.Is(f, keyfuncs.ErrNoRoute):
		due = &l.unrouted
	case f.down():
		due, text, code = &l.down, ": the store has no answer; requests are answered 503", "no-answer"
	}
	if due.Due() {
		slog.Default().Error(f.adapter+text, "code", code, "error", f)
	}
}

// A failureLog remembers when failures were logged, because each kind is logged once, or at most
// once a minute.
type failureLog struct {
	unrouted     notice.Once // ErrNoRoute
	nothing      notice.Once // a refusal by core.Nothing
	down, broken rarely
}

// handlers is the failureLog of Allow, which has no gate.
var handlers failureLog

// rarely logs errors, at most one a minute.
type rarely struct{ notice.Rarely }

// log is deferred. It logs *err, and a panic as an error. It does not log that a lease has ended,
// because that is not a failure.
func (r *rarely) log(adapter, text, code string, err *error) {
	if v := recover(); v != nil {
		*err = panicked(v)
	}
	if *err != nil && !errors.Is(*err, core.ErrLeaseEnded) && r.Due() {
		slog.Default().Error(adapter+text, "code", code, "error", *err)
	}
}

// A Problem is the body of the answer to a request that does not pass, as in [RFC 9457]. It has
// neither the user nor the text of an error.
//
// [RFC 9457]: https://www.rfc-editor.org/rfc/rfc9457
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	// RetryAfter is the value of the header Retry-After, for scripts that cannot read headers. It
	// is 0 if there is no such header.
	RetryAfter int64 `json:"retry_after,omitempty"`
}

const problemType = "application/problem+json" // the Content-Type

// refusal returns the problem of a refused action. forbid is Config.Forbid.
func refusal(t *told, forbid bool) Problem {
	limit := "limit" + t.name() + " of " + strconv.Itoa(t.Limit) + t.period()
	p := Problem{Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Too many requests", Status: http.StatusTooManyRequests}
	switch {
	case t.Reason == core.ReasonNothing:
		p.Type, p.Title = "https://github.com/tailcut/tailcut#not-included", "Not included"
		p.Detail = "This action is not included in your plan, or it is switched off."
		if forbid {
			p.Status = http.StatusForbidden
		}
		return p
	case t.RetryAfter == core.Never:
		p.Detail = "This asks for more at once than the " + limit + " can ever allow."
		return p
	case t.Reason == core.ReasonBanned:
		p.Type, p.Title = "https://github.com/tailcut/tailcut#banned", "Banned"
		p.Detail = "You are temporarily banned from this action."
	case t.Reason == core.ReasonInFlight:
		p.Type, p.Title = "https://github.com/tailcut/tailcut#in-flight", "Too many requests at the same time"
		p.Detail = "The " + limit + " at the same time is reached."
	case t.Reason == core.ReasonFull:
		p.Detail = "Too many users are being limited at present."
	default:
		p.Detail = "The " + limit + " has no room for this at present."
	}
	p.retry(ceilSeconds(t.RetryAfter))
	return p
}

// name returns what tells the limit of a refusal from other limits: its name, or, if there are
// several subjects, the action.
func (t *told) name() string {
	if t.bound != nil && t.bound.Name() != "" {
		return " " + strconv.Quote(t.bound.Name())
	} else if t.whose != "" {
		return " on " + strconv.Quote(t.whose)
	}
	return ""
}

// period returns the period of the limit of a refusal in words, if the limit is a window.
func (t *told) period() string {
	const day = 24 * time.Hour
	if t.bound == nil || t.bound.TakesSlots() {
		return ""
	}
	if rate, _ := t.bound.Rate(); rate > 0 {
		return ""
	}
	period := t.bound.Period()
	words := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", day: "day", 7 * day: "week", 31 * day: "month", 366 * day: "year"}[period]
	switch {
	case t.bound.Kind() == "calendar":
		return " this " + words
	case words == "" && period%time.Second == 0, period == 31*day:
		words = inWords(int64(period / time.Second))
	case words == "":
		words = period.String()
	}
	return " per " + words
}

// Problem returns the problem of a failure.
func (f *Failure) Problem() Problem {
	p := Problem{Type: "about:blank", Title: http.StatusText(f.Status), Status: f.Status}
	asks := "which " + f.asking + " it is for"
	if f.asking == "cost" {
		asks = "what it costs"
	}
	switch {
	case f.down():
		p.Type = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
		p.Detail = "The limit on this action cannot be checked at present."
		p.retry(retrySeconds)
	case f.Status != http.StatusBadRequest:
		p.Detail = "The server could not determine the limit for this action."
	case errors.Is(f, keyfuncs.ErrNoKey):
		p.Detail = "The request does not say " + asks + "."
	default:
		p.Detail = "The request says " + asks + " in a way that cannot be read."
	}
	return p
}

func (p *Problem) retry(seconds int64) {
	p.RetryAfter = min(seconds, mostRetry)
	p.Detail += " Try again in " + inWords(seconds) + "."
}

// inWords returns a wait in its two largest units, such as 3 days 13 hours. It leaves out smaller
// units. A wait below 120 seconds is in seconds.
func inWords(seconds int64) string {
	units := []struct {
		name    string
		seconds int64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}}
	first := 0
	for first < len(units)-1 && (seconds < units[first].seconds || seconds < 120) {
		first++
	}
	var words []string
	for _, u := range units[first:min(first+2, len(units))] {
		if n := seconds / u.seconds; n > 0 {
			words = append(words, strconv.FormatInt(n, 10)+" "+u.name+"s"[:min(1, n-1)])
		}
		seconds %= u.seconds
	}
	return strings.Join(words, " ")
}

// Write answers the request with the problem. Call [ClearBody] before Write.
func (p Problem) Write(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Type"] = []string{problemType}
	w.WriteHeader(p.Status)
	if r.Method == http.MethodHead {
		return
	}
	body, _ := json.Marshal(&p) // strings and numbers only: it cannot fail
	_, _ = w.Write(append(body, '\n'))
}

// A SentProblem is a Problem for a framework whose central error handler sends errors as JSON. If
// the handler sends the SentProblem, the Content-Type of the response becomes problem+json. A
// handler that sends another body keeps its own Content-Type. To send the problem as a part of its
// own JSON, the handler encodes the field Problem.
type SentProblem struct {
	Problem
	header http.Header // of the response
	sent   string      // the Content-Type with which the framework sends the problem
	sends  bool
}

// NewSentProblem returns p for the response to r. h is the header of the response.
func NewSentProblem(p Problem, r *http.Request, h http.Header) SentProblem {
	return SentProblem{Problem: p, header: h, sends: r.Method == http.MethodHead} // a response to HEAD has no body
}

// MarshalJSON encodes the problem. If the problem has no type, MarshalJSON writes about:blank.
func (p *SentProblem) MarshalJSON() ([]byte, error) {
	// A framework sets the Content-Type before it encodes the problem to send it. A handler that
	// only logs the problem does not.
	if p.header.Get("Content-Type") == "application/json" {
		p.sends, p.sent = true, "application/json"
	}
	problem := p.Problem
	problem.Type = cmp.Or(problem.Type, "about:blank")
	return json.Marshal(problem)
}

// BeforeHeader sets the Content-Type. Call it with the status, before the framework sends the
// header.
func (p *SentProblem) BeforeHeader(status int) {
	if p.sends && status == p.Status && p.header.Get("Content-Type") == p.sent {
		p.header["Content-Type"] = []string{problemType}
	}
}
