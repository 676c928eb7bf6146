// Package report is what a replay found, as text, as JSON and as a page.
package report

import (
	"encoding/json"
	"time"

	"github.com/tailcut/tailcut/examples/replay/internal/fit"
)

// A Report describes a log, and what the candidates would have done. As JSON it is one object
// with the keys lines, skipped, late, requests, users, from, to, limits and fit.
type Report struct {
	Lines   int64 // all lines, also blank ones
	Skipped int64 // lines that are not requests
	Late    int64 // requests more than an hour before the newest one above them

	Unrouted  int64 // requests that match no route
	Anonymous int64 // requests that name no user

	// The fields below are about the other requests, which were replayed.
	Requests     int64
	Users        int
	From, To     time.Time // of the first and the last, in UTC
	WholeSeconds bool      // no instant has a fraction of a second

	Limits  []Limit  // by candidate, then by action
	Actions []Action // in the order of the routes

	Offset int   // of the log's clock, in seconds east of UTC
	Damage error // what is wrong with the gzip stream; it was read up to there
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
	object := struct {
		Lines    int64     `json:"lines"`
		Skipped  int64     `json:"skipped"`
		Late     int64     `json:"late"`
		Requests int64     `json:"requests"`
		Users    int       `json:"users"`
		From     time.Time `json:"from"`
		To       time.Time `json:"to"`
		Limits   []limit   `json:"limits"`
		Fit      []fits    `json:"fit"`
	}{r.Lines, r.Skipped, r.Late, r.Requests, r.Users, r.From, r.To, []limit{}, []fits{}}
	for _, l := range r.Limits {
		object.Limits = append(object.Limits, limit{l.Action, l.Text, l.Requests, l.Refused, l.Users, l.UsersRefused, l.LongestWait.Seconds(), l.Never})
	}
	for _, a := range r.Actions {
		for _, w := range a.Windows {
			object.Fit = append(object.Fit, fits{a.Name, brief(w.Period), w.Max})
		}
	}
	return json.Marshal(object)
}
