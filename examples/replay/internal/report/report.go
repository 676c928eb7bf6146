// Package report is what a replay found, as text, as JSON and as a page.
package report

import (
	"encoding/json"
	"time"

	"github.com/tailcut/tailcut/examples/replay/internal/fit"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
)

// A Report describes a log, and what the candidates would have done.
type Report struct {
	Lines    int64 // all lines, also blank ones
	Skipped  []Skipped
	Unrouted int64 // requests that match no route

	// Of those a ServeMux redirects some, such as //posts. The texts of the first ones are methods and paths.
	Redirected                     int64
	FirstRedirected, FirstUnrouted Place

	LeftOut []LeftOut // other requests that were not replayed, by action
	Hints   []string  // on how the log was read, and what it may be

	// The fields below are about the other requests, which were replayed.
	Requests     int64
	Users        int
	From, To     time.Time // of the first and the last, in UTC
	WholeSeconds bool      // no instant has a fraction of a second

	Limits  []Limit  // by candidate, then by action
	Actions []Action // in the order of the routes

	Comparison *Comparison // nil: no plans were compared

	ByAddress bool // users are addresses, which each request should have

	Offset int   // of the log's clock, in seconds east of UTC
	Damage error // what is wrong with the gzip stream; it was read up to there
}

// Skipped are lines that were not read as requests, for one reason.
type Skipped struct {
	Reason line.Outcome
	Lines  int64
	First  Place
}

// A Place is a line of a log.
type Place struct {
	Name string
	Line int64 // from 1 on
	Text string
}

// LeftOut are requests of an action that were not replayed.
type LeftOut struct {
	Action    string
	Anonymous int64 // that name no user
	Late      int64 // that ended more than an hour before a request above them
	Long      int64 // that began more than an hour before a request above them ended
}

// Lost is how many requests are lost, and which share of all requests: lines that may be requests, and requests
// that were left out for another reason than the routes.
func (r *Report) Lost() (n int64, share float64) {
	for _, s := range r.Skipped {
		if s.Reason.Lost() {
			n += s.Lines
		}
	}
	for _, l := range r.LeftOut {
		n += l.Late + l.Long
		if r.ByAddress {
			n += l.Anonymous
		}
	}
	return n, float64(n) / float64(max(1, n+r.Requests+r.Unrouted))
}

// A Limit says what a candidate would have done to one action.
type Limit struct {
	Action, Text string // Text is the limit, as core.ParseLimit reads it
	Requests     int64
	Refused      int64
	Users        int
	UsersRefused int           // users that were refused at least once
	Never        int64         // refusals of requests that can never pass: they cost more than the limit's quota
	LongestWait  time.Duration // the longest RetryAfter of the other refusals
	Hours        Hours         // refusals
	Most         []RefusedUser // the ten users with the most refusals
}

// Hours are counts by weekday, Sunday first, and hour of the log's clock.
type Hours [7][24]int64

// A RefusedUser is a user that a candidate would have refused.
type RefusedUser struct {
	Name    string // or a hash: see Options.ShowUsers
	Refused int64
	IDs     int // different user ids behind it, in all of its requests: see Options.IDs
}

// An Action describes the requests of one action in the log, and the limits that fit them. If
// there is no request, there is no fit.
type Action struct {
	Name     string
	Requests int64
	Users    int
	Hours    Hours // requests
	Windows  []fit.WindowFit
	Funnels  []fit.FunnelFit
}

// Add adds other counts.
func (h *Hours) Add(more *Hours) {
	for d := range h {
		for i := range h[d] {
			h[d][i] += more[d][i]
		}
	}
}

// Count counts something at an instant, by a clock that is zone seconds ahead of UTC.
func (h *Hours) Count(at int64, zone int32) {
	hours := uint64(at/1e6+int64(zone)+7*86400) / 3600
	h[(hours/24+4)%7][hours%24]++ // 1970-01-01 was a Thursday
}

// MarshalJSON returns the object that the command prints.
func (r *Report) MarshalJSON() ([]byte, error) {
	type limit struct {
		Action       string  `json:"action"`
		Limit        string  `json:"limit"`
		Requests     int64   `json:"requests"`
		Refused      int64   `json:"refused"`
		Users        int     `json:"users"`
		UsersRefused int     `json:"users_refused"`
		LongestWait  float64 `json:"longest_wait"`
		Never        int64   `json:"never"`
	}
	type fits struct {
		Action string    `json:"action"`
		Period string    `json:"period"`
		Max    fit.Least `json:"max"`
	}
	type leftOut struct {
		Action    string `json:"action"`
		Anonymous int64  `json:"anonymous"`
		Late      int64  `json:"late"`
		Long      int64  `json:"long"`
	}
	lost, share := r.Lost()
	object := struct {
		Lines     int64            `json:"lines"`
		Skipped   int64            `json:"skipped"`
		Reasons   map[string]int64 `json:"skipped_by_reason"`
		Late      int64            `json:"late"`
		Long      int64            `json:"long"`
		Anonymous int64            `json:"anonymous"`
		Unrouted  int64            `json:"unrouted"`
		Redirects int64            `json:"redirected"`
		LeftOut   []leftOut        `json:"left_out"`
		Lost      int64            `json:"lost"`
		Share     float64          `json:"lost_share"`
		Hints     []string         `json:"hints"`
		Requests  int64            `json:"requests"`
		Users     int              `json:"users"`
		From      time.Time        `json:"from"`
		To        time.Time        `json:"to"`
		Limits    []limit          `json:"limits"`
		Fit       []fits           `json:"fit"`
		Plans     *Comparison      `json:"plans,omitempty"`
	}{
		Lines: r.Lines, Reasons: map[string]int64{}, Unrouted: r.Unrouted, Redirects: r.Redirected, LeftOut: []leftOut{}, Lost: lost, Share: share, Hints: []string{},
		Requests: r.Requests, Users: r.Users, From: r.From, To: r.To, Limits: []limit{}, Fit: []fits{}, Plans: r.Comparison,
	}
	for _, s := range r.Skipped {
		object.Skipped += s.Lines
		object.Reasons[s.Reason.Key()] = s.Lines
	}
	for _, l := range r.LeftOut {
		object.LeftOut = append(object.LeftOut, leftOut(l))
		object.Late, object.Long, object.Anonymous = object.Late+l.Late, object.Long+l.Long, object.Anonymous+l.Anonymous
	}
	object.Hints = append(object.Hints, r.Hints...)
	for _, l := range r.Limits {
		object.Limits = append(object.Limits, limit{l.Action, l.Text, l.Requests, l.Refused, l.Users, l.UsersRefused, l.LongestWait.Seconds(), l.Never})
	}
	for _, a := range r.Actions {
		for _, w := range a.Windows {
			object.Fit = append(object.Fit, fits{a.Name, Brief(w.Period), w.Max})
		}
	}
	return json.Marshal(object)
}
