package trial

// The report, put together from the shards.

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/tailcut/tailcut/examples/replay/internal/fit"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
)

const mostRefused = 10

func (p *pipeline) report() *report.Report {
	r := &report.Report{
		Lines: p.sums.lines, Skipped: p.sums.skipped, Damage: p.damage, Offset: int(p.sums.zone.Offset), WholeSeconds: true,
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
	for i, name := range p.actions {
		r.Actions = append(r.Actions, action(name, totals[i], peaks[i]))
	}
	name := p.naming()
	for i, c := range p.options.Candidates {
		for a, action := range p.actions {
			if c.Action == "" || c.Action == action {
				row := report.Limit{Action: action, Text: c.String(), Requests: totals[a].requests, Users: len(peaks[a])}
				for _, s := range p.shards {
					addTo(&row, s.tally(i, a))
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

func action(name string, c counts, of []fit.Peaks) report.Action {
	a := report.Action{Name: name, Requests: c.requests, Users: len(of), Hours: c.hours}
	if len(of) > 0 {
		a.Windows, a.Funnels = fit.Windows(of), fit.Funnels(of)
	}
	return a
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
	c.hours.Add(&d.hours)
	c.from, c.to = min(c.from, d.from), max(c.to, d.to)
}

// peaks are the peaks of all members, by action.
func (p *pipeline) peaks() [][]fit.Peaks {
	all := make([][]fit.Peaks, len(p.actions))
	for _, s := range p.shards {
		for i := range s.members[1:] {
			m := &s.members[1+i]
			all[m.action] = append(all[m.action], m.Peaks)
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

func addTo(row *report.Limit, t *tally) {
	row.Refused += t.refused
	row.UsersRefused += len(t.users)
	row.Never += t.never
	row.LongestWait = max(row.LongestWait, t.wait)
	row.Hours.Add(&t.hours)
	for u, n := range t.users {
		who := &t.shard.users[u]
		row.Most = append(row.Most, report.RefusedUser{Name: who.name, Refused: n, IDs: int(who.ids)})
	}
}

func byRefusals(a, b report.RefusedUser) int {
	return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Name, b.Name))
}

// nothing returns the error that says why there is no request.
func nothing(r *report.Report, o Options) error {
	switch {
	case r.Damage != nil:
		return fmt.Errorf("%w: the gzip stream is damaged (%v); unpack the log by hand", ErrNoRequest, r.Damage)
	case r.Lines == 0:
		return fmt.Errorf("%w: the log is empty", ErrNoRequest)
	case r.Skipped == r.Lines:
		return fmt.Errorf("%w: none of the %d lines is a request; choose another format or name the fields", ErrNoRequest, r.Lines)
	case r.Anonymous > 0:
		return fmt.Errorf("%w: none of %d requests names a user by %s; choose another source of users", ErrNoRequest, r.Anonymous, cmp.Or(o.Line.User, line.UserAddress))
	default:
		return fmt.Errorf("%w: none of %d requests matches a route; compare the routes with the paths in the log", ErrNoRequest, r.Unrouted)
	}
}
