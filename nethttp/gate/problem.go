package gate

// This file has the body of the answer to a request that does not pass.

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

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

// name returns the name of the limit that refuses. If that limit has no name, and there are several
// subjects, it returns the action of the subject that refuses.
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
	if t.bound == nil || t.bound.TakesSlots() {
		return ""
	}
	if rate, _ := t.bound.Rate(); rate > 0 {
		return ""
	}
	period := t.bound.Period()
	words := periods[period]
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

const day = 24 * time.Hour

// periods has the words for periods. A month and a year are periods of a CalendarWindow.
var periods = map[time.Duration]string{
	time.Second: "second", time.Minute: "minute", time.Hour: "hour",
	day: "day", 7 * day: "week", 31 * day: "month", 366 * day: "year",
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
