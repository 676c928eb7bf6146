package replay

// The report, and how it is put together from the shards.

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
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

	Limits  []LimitReport  // by candidate, then by action
	Actions []ActionReport // in the order of the routes

	Offset int   // of the log's clock, in seconds east of UTC
	Damage error // what is wrong with the gzip stream; it was read up to there
}

// A LimitReport says what a candidate would have done to one action.
type LimitReport struct {
	Action, Limit string
	Requests      int64
	Refused       int64
	Users         int
	UsersRefused  int           // users that were refused at least once
	Never         int64         // refusals of requests that can never pass: they cost more than the limit's quota
	LongestWait   time.Duration // the longest RetryAfter of the other refusals
	Hours         Hours         // refusals
	Most          []RefusedUser // the ten users with the most refusals
}

// Hours are counts by weekday, Sunday first, and hour of the log's clock.
type Hours [7][24]int64

// A RefusedUser is a user that a candidate would have refused.
type RefusedUser struct {
	Name    string // or a hash: see Options.ShowUsers
	Refused int64
	IDs     int // different user ids behind it, in all of its requests: see Options.IDs
}

// An ActionReport describes the requests of one action in the log, and the limits that fit them. If
// there is no request, there is no fit.
type ActionReport struct {
	Action   string
	Requests int64
	Users    int
	Hours    Hours // requests
	Windows  []WindowFit
	Funnels  []FunnelFit
}

// A WindowFit says how high the max of a SlidingWindow must be.
type WindowFit struct {
	Period time.Duration
	Max    Least
	Curve  []Point // the share of users touched by max, falling to 0
}

// A FunnelFit says how high the capacity of a Funnel must be.
type FunnelFit struct {
	Rate     core.Rate
	Capacity Least
}

// Least has the smallest numbers that refuse no user, at most one user in a thousand, and at most
// one in a hundred.
type Least struct {
	Nobody   int `json:"nobody"`
	PerMille int `json:"0.1%"`
	Percent  int `json:"1%"`
}

// A Point says which share of users a max touches, from 0 to 1.
type Point struct {
	Max   int
	Share float64
}

const mostRefused = 10

func (p *pipeline) report() *Report {
	r := &Report{
		Lines: p.sums.lines, Skipped: p.sums.skipped, Damage: p.damage, Offset: int(p.sums.zone.offset), WholeSeconds: true,
	}
	totals := make([]counts, len(p.actions))
	for _, s := range p.shards {
		r.Late += s.late
		r.Unrouted += s.unrouted
		r.Anonymous += s.anonymous
		r.Users += len(s.users)
		r.WholeSeconds = r.WholeSeconds && !s.fine
		for i := range s.counts {
			totals[i].add(s.counts[i])
		}
	}
	var all counts
	for _, c := range totals {
		all.add(c)
	}
	r.Requests, r.From, r.To = all.requests, time.UnixMicro(all.from).UTC(), time.UnixMicro(all.to).UTC()
	peaks := p.peaks()
	for i, action := range p.actions {
		r.Actions = append(r.Actions, fit(ActionReport{Action: action, Requests: totals[i].requests, Users: len(peaks[i]), Hours: totals[i].hours}, peaks[i]))
	}
	name := p.naming()
	for i, c := range p.options.Candidates {
		for a, action := range p.actions {
			if c.Action == "" || c.Action == action {
				row := LimitReport{Action: action, Limit: c.String(), Requests: totals[a].requests, Users: len(peaks[a])}
				for _, s := range p.shards {
					row.add(s.tally(i, a))
				}
				slices.SortFunc(row.Most, byRefusals)
				row.Most = slices.Clone(row.Most[:min(len(row.Most), mostRefused)])
				for m := range row.Most {
					row.Most[m].Name = name(row.Most[m].Name)
				}
				r.Limits = append(r.Limits, row)
			}
		}
	}
	return r
}

func (c *counts) add(d counts) {
	switch {
	case d.requests == 0:
		return
	case c.requests == 0:
		*c = d
		return
	}
	c.requests += d.requests
	c.hours.add(&d.hours)
	c.from, c.to = min(c.from, d.from), max(c.to, d.to)
}

// peaks are the peaks of all members, by action.
func (p *pipeline) peaks() [][]peaks {
	all := make([][]peaks, len(p.actions))
	for _, s := range p.shards {
		for i := range s.members[1:] {
			m := &s.members[1+i]
			all[m.action] = append(all[m.action], m.peaks)
		}
	}
	return all
}

// naming makes the names of users in the report.
func (p *pipeline) naming() func(string) string {
	if p.options.ShowUsers {
		return func(name string) string { return name }
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return func(name string) string {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(name))
		return hex.EncodeToString(mac.Sum(nil)[:6])
	}
}

func (row *LimitReport) add(t *tally) {
	row.Refused += t.refused
	row.UsersRefused += len(t.users)
	row.Never += t.never
	row.LongestWait = max(row.LongestWait, t.wait)
	row.Hours.add(&t.hours)
	for u, n := range t.users {
		who := &t.shard.users[u]
		row.Most = append(row.Most, RefusedUser{who.name, n, int(who.ids)})
	}
}

func (h *Hours) add(more *Hours) {
	for d := range h {
		for i := range h[d] {
			h[d][i] += more[d][i]
		}
	}
}

func byRefusals(a, b RefusedUser) int {
	return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Name, b.Name))
}

// fit adds to a report what fits the users of the action.
func fit(r ActionReport, of []peaks) ActionReport {
	if len(of) == 0 {
		return r
	}
	numbers := make([]int64, len(of))
	for i, period := range fitPeriods {
		for u := range of {
			numbers[u] = of[u].window[i]
		}
		slices.Sort(numbers)
		r.Windows = append(r.Windows, WindowFit{time.Duration(period) * time.Microsecond, least(numbers), curve(numbers)})
	}
	for i, rate := range fitRates {
		for u := range of {
			numbers[u] = of[u].funnel[i]
		}
		slices.Sort(numbers)
		r.Funnels = append(r.Funnels, FunnelFit{rate.Rate, least(numbers)})
	}
	return r
}

// least finds the numbers in the sorted needs of the users.
func least(needs []int64) Least {
	n := len(needs)
	without := func(users int) int { return number(max(1, needs[n-1-users])) }
	return Least{without(0), without(n / 1000), without(n / 100)}
}

// number is n as an int, which may have 32 bits.
func number(n int64) int { return int(min(n, math.MaxInt)) }

// curve is the share of users who need more than a max, at some of the maxima at which it changes.
func curve(needs []int64) []Point {
	n := len(needs)
	points := []Point{}
	next := 0.0
	for i := 0; i < n; {
		m := needs[i]
		j := i + 1
		for j < n && needs[j] == m {
			j++
		}
		if i = j; float64(m) >= next || j == n {
			points = append(points, Point{number(m), float64(n-j) / float64(n)})
			next = float64(m) * 1.05 // so there are 400 points at most
		}
	}
	return points
}

// nothing returns the error that says why there is no request.
func (r *Report) nothing(o Options) error {
	switch {
	case r.Damage != nil:
		return fmt.Errorf("%w: the gzip stream is damaged (%v); unpack the log by hand", ErrNoRequest, r.Damage)
	case r.Lines == 0:
		return fmt.Errorf("%w: the log is empty", ErrNoRequest)
	case r.Skipped == r.Lines:
		return fmt.Errorf("%w: none of the %d lines is a request; choose another format or name the fields", ErrNoRequest, r.Lines)
	case r.Anonymous > 0:
		return fmt.Errorf("%w: none of %d requests names a user by %s; choose another source of users", ErrNoRequest, r.Anonymous, cmp.Or(o.User, UserAddress))
	default:
		return fmt.Errorf("%w: none of %d requests matches a route; compare the routes with the paths in the log", ErrNoRequest, r.Unrouted)
	}
}

// brief is a period without the zero units that its String has.
func brief(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
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
	type fit struct {
		Action string `json:"action"`
		Period string `json:"period"`
		Max    Least  `json:"max"`
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
		Fit      []fit     `json:"fit"`
	}{r.Lines, r.Skipped, r.Late, r.Requests, r.Users, r.From, r.To, []limit{}, []fit{}}
	for _, l := range r.Limits {
		object.Limits = append(object.Limits, limit{l.Action, l.Limit, l.Requests, l.Refused, l.Users, l.UsersRefused, l.LongestWait.Seconds(), l.Never})
	}
	for _, a := range r.Actions {
		for _, w := range a.Windows {
			object.Fit = append(object.Fit, fit{a.Action, brief(w.Period), w.Max})
		}
	}
	return json.Marshal(object)
}
