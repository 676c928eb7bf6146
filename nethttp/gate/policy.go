package gate

// The headers RateLimit-Policy and RateLimit, as in [draft 10].
//
// [draft 10]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A policy is what the two headers say of a limiter.
type policy struct {
	limiter *core.Limiter
	limits  []core.Limit
	names   []string // in quotes
	text    string   // RateLimit-Policy
}

func newPolicy(limiter *core.Limiter) policy {
	limits := limiter.Limits()
	p := policy{limiter: limiter, limits: limits, names: policyNames(limits)}
	var items []string
	for i, l := range limits {
		item := p.names[i] + ";q=" + strconv.Itoa(l.Quota())
		if period := l.Period(); period >= time.Second { // the draft has whole seconds only
			item += ";w=" + strconv.FormatInt(ceilSeconds(period), 10)
		}
		items = append(items, item)
	}
	p.text = strings.Join(items, ", ")
	return p
}

// policyNames names the limits. The draft wants distinct names, and limits of different kinds may
// have the same one.
func policyNames(limits []core.Limit) []string {
	names, taken := make([]string, len(limits)), map[string]bool{}
	for i, l := range limits {
		name := l.Name()
		if name == "" {
			name = l.Identity()
		}
		names[i] = `"` + name + `"`
		for n := 2; taken[names[i]]; n++ {
			names[i] = `"` + name + "-" + strconv.Itoa(n) + `"`
		}
		taken[names[i]] = true
	}
	return names
}

func (p *policy) write(h http.Header, d *core.Decision) {
	i := d.Binding
	if i < 0 || i >= len(p.limits) { // a foreign store may set any
		i = 0
	}
	l, name := p.limits[i], p.names[i]
	item := name + ";r=" + strconv.Itoa(d.Remaining)
	// t is when the quota grows. Only a fixed or elastic window gets it back at once; for
	// the others the draft has no value.
	if t := d.RetryAfter; d.Allowed && l.Rule().AtOnce() {
		item += ";t=" + strconv.FormatInt(secondsUp(0, d.ResetAfter), 10)
	} else if !d.Allowed && t != core.Never {
		item += ";t=" + strconv.FormatInt(secondsUp(0, t), 10)
	}
	text := p.text
	if d.Limit != l.Quota() { // core.Divide has changed the quota
		text = strings.Replace(text, name+";q="+strconv.Itoa(l.Quota()), name+";q="+strconv.Itoa(d.Limit), 1)
	}
	h[headerPolicy], h[headerIETF] = []string{text}, []string{item}
}
