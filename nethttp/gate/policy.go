package gate

// What headers say of limits before any decision: names, quotas, and the text of RateLimit-Policy.

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A policy has the limits of the limiters of all subjects.
type policy struct {
	limiters []*core.Limiter
	first    []int // the first limit of each
	limits   []core.Limit
	names    []string // in quotes
	quotas   []string // in digits
	text     string   // RateLimit-Policy
}

func newPolicy(limiters []*core.Limiter) *policy {
	p := &policy{limiters: limiters}
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
		if period := l.Period(); l.TakesSlots() {
			item += `;qu="concurrent-requests"`
		} else if period >= time.Second {
			item += ";w=" + strconv.FormatInt(ceilSeconds(period), 10)
		}
		p.names, p.quotas, items = append(p.names, name), append(p.quotas, quota), append(items, item)
	}
	p.text = strings.Join(items, ", ")
	return p
}

var limiterSeed = maphash.MakeSeed()

// unlike returns name in quotes, with a number if another limit has it already. The draft wants
// distinct names, and limits of different kinds may have the same one.
func (p *policy) unlike(name string) string {
	quoted := `"` + name + `"`
	for n := 2; slices.Contains(p.names, quoted); n++ {
		quoted = `"` + name + "-" + strconv.Itoa(n) + `"`
	}
	return quoted
}

// bound is the index of the limit that binds: the one of that index of a subject's. Subjects are counted as core.All
// does.
func (p *policy) bound(subject, binding int) int {
	if subject > 0 && subject < len(p.first) {
		binding += p.first[subject]
	}
	if binding < 0 || binding >= len(p.limits) { // a foreign store may set any
		return 0
	}
	return binding
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

// A pick is a limiter that Config.Limiter has picked, and what is made of it once.
type pick struct {
	of, limiter *core.Limiter // as picked, and as it decides
	policy      *policy       // of all subjects
}

// secondsUp is the time d after now, in seconds and rounded up. It does not overflow for any
// d. A negative d counts as 0.
func secondsUp(now int64, d time.Duration) int64 {
	return int64((uint64(now) + uint64(max(0, d)) + uint64(time.Second) - 1) / uint64(time.Second))
}

// ceilSeconds rounds up, to at least 1: with 0 a client would retry at once.
func ceilSeconds(d time.Duration) int64 { return max(1, secondsUp(0, d)) }
