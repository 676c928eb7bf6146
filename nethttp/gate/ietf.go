package gate

// The headers RateLimit-Policy and RateLimit, as in [draft 11].
//
// [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// A policy is what the two headers say of the limiters of all subjects.
type policy struct {
	limiters []*core.Limiter
	first    []int // the first limit of each
	limits   []core.Limit
	names    []string // in quotes
	quotas   []string // in digits
	text     string   // RateLimit-Policy
	dated    bool     // whether one is a CalendarWindow
}

func newPolicy(limiters []*core.Limiter) policy {
	p := policy{limiters: limiters}
	for _, l := range limiters {
		p.first = append(p.first, len(p.limits))
		p.limits = append(p.limits, l.Limits()...)
	}
	var items []string
	for i := range p.limits {
		l := &p.limits[i]
		name := p.unlike(cmp.Or(l.Name(), l.Identity()))
		quota := strconv.Itoa(l.Quota())
		item := name + ";q=" + quota
		// The draft has whole seconds only. A calendar window's periods differ: with the longest, a
		// client that spreads q over w never sends too much.
		if period := l.Period(); l.Rule().TakesSlots() {
			item += `;qu="concurrent-requests"`
		} else if period >= time.Second {
			item += ";w=" + strconv.FormatInt(ceilSeconds(period), 10)
		}
		p.dated = p.dated || l.Rule().Calendar != nil
		p.names, p.quotas, items = append(p.names, name), append(p.quotas, quota), append(items, item)
	}
	p.text = strings.Join(items, ", ")
	return p
}

// unlike returns name in quotes, with a number if another limit has it already. The draft wants
// distinct names, and limits of different kinds may have the same one.
func (p *policy) unlike(name string) string {
	quoted := `"` + name + `"`
	for n := 2; slices.Contains(p.names, quoted); n++ {
		quoted = `"` + name + "-" + strconv.Itoa(n) + `"`
	}
	return quoted
}

// of is p, unless Config.Limiter has picked another limiter for the attempt, Allow was given one, or an
// optional subject has no user.
func (p *policy) of(a *attempt) *policy {
	for _, made := range []*policy{p, a.policy} {
		if made != nil && len(made.limiters) == 1+len(a.further) && made.limiters[0] == a.limiter {
			return made
		}
	}
	var limiters []*core.Limiter
	for _, s := range a.subjects() {
		limiters = append(limiters, s.limiter)
	}
	picked := newPolicy(limiters)
	return &picked
}

// calendar returns the calendar of the limit that the attempt's decision is about, or nil.
func (p *policy) calendar(a *attempt) *machine.Calendar {
	l, d := a.limiter, &a.decision
	if n := d.Subject; n > 0 && n <= len(a.further) {
		l = a.further[n-1].limiter
	}
	for _, made := range []*policy{p, a.policy} {
		if made == nil || !made.dated {
			continue
		}
		if i := slices.Index(made.limiters, l); i >= 0 {
			if at := made.first[i] + d.Binding; at >= 0 && at < len(made.limits) { // a foreign store may set any
				return made.limits[at].Rule().Calendar
			}
		}
	}
	return nil
}

// binding is the index of the limit that a decision is about.
func (p *policy) binding(d *core.Decision) int {
	i := d.Binding
	if n := d.Subject; n > 0 && n < len(p.first) {
		i += p.first[n]
	}
	if i < 0 || i >= len(p.limits) { // a foreign store may set any
		return 0
	}
	return i
}

// quota is n in digits.
func (p *policy) quota(n int) string {
	for i := range p.limits {
		if p.limits[i].Quota() == n {
			return p.quotas[i]
		}
	}
	return strconv.Itoa(n) // of Allow, or of a store that has changed it
}

func (p *policy) write(h http.Header, d *core.Decision) {
	i := p.binding(d)
	l, name := &p.limits[i], p.names[i]
	item := name + ";r=" + strconv.Itoa(d.Remaining)
	// t is the time until more than r can be used. For an allowed action, only the decision of a
	// fixed, elastic or calendar window tells it: such a window gets its quota back at once.
	if t := d.RetryAfter; d.Allowed && l.Rule().AtOnce() {
		item += ";t=" + strconv.FormatInt(secondsUp(0, d.ResetAfter), 10)
	} else if !d.Allowed && t != core.Never {
		item += ";t=" + strconv.FormatInt(secondsUp(0, t), 10)
	}
	text := p.text
	if d.Limit != l.Quota() { // core.Divide has changed the quota
		text = strings.Replace(text, name+";q="+p.quotas[i], name+";q="+strconv.Itoa(d.Limit), 1)
	}
	h[headerPolicy], h[headerIETF] = []string{text}, []string{item}
}
