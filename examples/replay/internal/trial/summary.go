package trial

// The report, put together from the shards.

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/tailcut/tailcut/examples/replay/internal/fit"
	"github.com/tailcut/tailcut/examples/replay/internal/line"
	"github.com/tailcut/tailcut/examples/replay/internal/report"
)

const mostRefused = 10

func (p *pipeline) report() *report.Report {
	sums := &p.sums
	r := &report.Report{Lines: sums.lines, Damage: p.damage, Offset: int(sums.zone.Offset), WholeSeconds: true}
	r.ByAddress = cmp.Or(p.options.Line.User, line.UserAddress) == line.UserAddress
	for o, n := range sums.outcomes {
		if o := line.Outcome(o); n > 0 && o != line.Part {
			r.Skipped = append(r.Skipped, report.Skipped{Reason: o, Lines: n, First: sums.examples[o].place()})
		}
	}
	r.Redirected, r.FirstRedirected, r.FirstUnrouted = sums.redirected.n, sums.redirected.first.place(), sums.noRoute.first.place()
	for _, name := range p.actions {
		r.LeftOut = append(r.LeftOut, report.LeftOut{Action: name})
	}
	totals := make([]counts, len(p.actions))
	var early int64
	for _, s := range p.shards {
		r.Unrouted += s.unrouted
		early += s.early
		r.Users += len(s.users)
		r.WholeSeconds = r.WholeSeconds && !s.fine
		for i := range s.counts {
			totals[i].add(s.counts[i])
			r.LeftOut[i].Anonymous += s.left[i].Anonymous
			r.LeftOut[i].Late += s.left[i].Late
			r.LeftOut[i].Long += s.left[i].Long
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
	r.Hints = p.hints(r, early)
	if p.options.Plans.To != nil {
		r.Comparison = &report.Comparison{Impacts: p.impacts(name)}
	}
	return r
}

func (e example) place() report.Place {
	return report.Place{Name: e.name, Line: e.line, Text: string(e.text)}
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
