package gate

// The headers of a decision or a failure.

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/tailcut/tailcut/core"
)

// The headers as http.Header keeps them; on the wire their case does not matter.
const (
	headerLimit      = "X-Ratelimit-Limit"
	headerRemaining  = "X-Ratelimit-Remaining"
	headerReset      = "X-Ratelimit-Reset"
	headerRetryAfter = "Retry-After"
	headerPolicy     = "Ratelimit-Policy"
	headerIETF       = "Ratelimit"
	headerCache      = "Cache-Control"
)

// retrySeconds is the Retry-After of a store failure.
const retrySeconds = 1

// headers writes the headers of decisions. It keeps the strings that are the same for all
// responses. Each response has slices of its own around them.
type headers struct {
	limiter *core.Limiter // whose texts these are
	style   Style
	quotas  []quota // by the binding limit
	policy  string  // RateLimit-Policy
}

// A quota is what the headers say about a limit.
type quota struct {
	n      int
	text   string // n, at an address of its own: see warnTwice
	name   string // in RateLimit
	atOnce bool   // the full quota comes back at once
}

func newHeaders(limiter *core.Limiter, style Style) headers {
	limits := limiter.Limits()
	h := headers{limiter: limiter, style: style, quotas: make([]quota, len(limits))}
	names, policies := policyNames(limits), make([]string, len(limits))
	for i, l := range limits {
		h.quotas[i] = quota{
			n: l.Quota(), text: strings.Clone(strconv.Itoa(l.Quota())), name: names[i],
			atOnce: l.Rule().AtOnce(),
		}
		policies[i] = names[i] + ";q=" + h.quotas[i].text
		if p := l.Period(); p >= time.Second { // the draft has whole seconds only
			policies[i] += ";w=" + strconv.FormatInt(ceilSeconds(p), 10)
		}
	}
	h.policy = strings.Join(policies, ", ")
	return h
}

// policyNames names the limits for RateLimit-Policy. [draft 10] wants distinct names, and
// limits of different kinds may have the same one.
//
// [draft 10]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10
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

// write sets the headers of a decision. outer is the Remaining that a limit further out
// has set, if any: the headers then show the tighter of the two decisions.
func (hs *headers) write(h http.Header, outer []string, o *Outcome) {
	d, limiter := &o.Decision, o.charge.limiter
	if was, stacked := number(outer); stacked {
		if d.Allowed && !tighter(o, was, h) {
			return
		}
		delete(h, headerPolicy) // they would not agree with the numbers set now
		delete(h, headerIETF)
	}
	of := hs
	if limiter != hs.limiter && hs.style.IETF {
		other := newHeaders(limiter, hs.style)
		of = &other
	}
	var limit string
	if limiter == of.limiter && of.binding(d).n == d.Limit {
		limit = of.binding(d).text
	} else { // the limiter was picked, or core.Divide has changed the quota
		limit = strconv.Itoa(d.Limit)
	}
	var vs *values
	if o.Kept != nil {
		vs = &o.Kept.values
	} else {
		vs = new(values)
	}
	vs.set(h, limit, int64(d.Remaining), hs.style.reset(o.at, d.ResetAfter))
	if hs.style.IETF {
		of.ietf(h, d)
	}
	if !d.Allowed {
		retry := int64(0)
		if d.RetryAfter != core.Never {
			retry = ceilSeconds(d.RetryAfter)
		}
		refuse(h, retry)
	}
}

// binding returns the limit that binds. A foreign store may set any Binding.
func (hs *headers) binding(d *core.Decision) *quota {
	if uint(d.Binding) < uint(len(hs.quotas)) {
		return &hs.quotas[d.Binding]
	}
	return &hs.quotas[0]
}

func (hs *headers) ietf(h http.Header, d *core.Decision) {
	q := hs.binding(d)
	item := q.name + ";r=" + strconv.Itoa(d.Remaining)
	// t is when the quota grows. Only a fixed or elastic window gets it back at once; for
	// the others the draft has no value.
	if t := d.RetryAfter; d.Allowed && q.atOnce {
		item += ";t=" + strconv.FormatInt(secondsUp(0, d.ResetAfter), 10)
	} else if !d.Allowed && t != core.Never {
		item += ";t=" + strconv.FormatInt(secondsUp(0, t), 10)
	}
	policy := hs.policy
	if d.Limit != q.n { // core.Divide has changed the quota
		policy = strings.Replace(policy, q.name+";q="+q.text, q.name+";q="+strconv.Itoa(d.Limit), 1)
	}
	setTwo(h, headerPolicy, policy, headerIETF, item)
}

// refuse sets the headers of every refusal. If retry is 0, there is no Retry-After.
func refuse(h http.Header, retry int64) {
	if retry == 0 {
		h[headerCache] = []string{"no-store"}
		delete(h, headerRetryAfter)
		return
	}
	setTwo(h, headerCache, "no-store", headerRetryAfter, strconv.FormatInt(retry, 10))
}

// fail sets the headers of a failure. If the store failed, they show the first limit with
// nothing left.
func (hs *headers) fail(h http.Header, limiter *core.Limiter, f *Failure) {
	if f.Status != http.StatusServiceUnavailable {
		h[headerCache] = []string{"no-store"}
		return
	}
	delete(h, headerPolicy)
	delete(h, headerIETF)
	limits := limiter.Limits()
	new(values).set(h, strconv.Itoa(limits[0].Quota()), 0, hs.style.reset(time.Now(), retrySeconds*time.Second))
	if hs.style.IETF {
		of := newHeaders(limiter, hs.style)
		of.ietf(h, &core.Decision{Limit: limits[0].Quota(), RetryAfter: retrySeconds * time.Second})
	}
	refuse(h, retrySeconds)
}

// values are the three values of a response and the digits of two of them, in one
// allocation instead of five.
type values struct {
	lines  [3]string
	digits [32]byte // any two numbers have room: 20 and 12
}

// set sets the three headers. It is called once.
func (vs *values) set(h http.Header, limit string, remaining, reset int64) {
	middle := vs.write(len(vs.digits), remaining)
	first := vs.write(middle, reset)
	s := unsafe.String(&vs.digits[0], len(vs.digits)) // digits is not written to again
	vs.lines[0], vs.lines[1], vs.lines[2] = limit, s[middle:], s[first:middle]
	h[headerLimit] = vs.lines[:1:1]
	h[headerRemaining] = vs.lines[1:2:2]
	h[headerReset] = vs.lines[2:]
}

// write writes a number so that it stops before end, and returns where it begins. It saves
// 16 of 240 ns against strconv. No number is negative.
func (vs *values) write(end int, number int64) int {
	for n := uint64(max(0, number)); ; n /= 100 {
		end -= 2
		*(*[2]byte)(vs.digits[end:]) = pairs[n%100]
		if n < 100 {
			break
		}
	}
	if vs.digits[end] == '0' {
		end++
	}
	return end
}

// pairs are the digits of 00 to 99.
var pairs = func() (p [100][2]byte) {
	for i := range p {
		p[i] = [2]byte{byte('0' + i/10), byte('0' + i%10)}
	}
	return p
}()

// setTwo sets two headers with one allocation.
func setTwo(h http.Header, name1, value1, name2, value2 string) {
	lines := &[2]string{value1, value2}
	h[name1] = lines[:1:1]
	h[name2] = lines[1:]
}

// reset is the value of X-RateLimit-Reset for an instant that is that long after at. Seconds since
// 1970 are by the process's clock, as in the Date header.
func (s Style) reset(at time.Time, after time.Duration) int64 {
	if s.ResetDelta {
		return secondsUp(0, after)
	}
	return secondsUp(at.UnixNano(), after)
}

// secondsUp is the time d after now, in seconds and rounded up. It does not overflow for any
// d. A negative d counts as 0.
func secondsUp(now int64, d time.Duration) int64 {
	return int64((uint64(now) + uint64(max(0, d)) + uint64(time.Second) - 1) / uint64(time.Second))
}

// ceilSeconds rounds up, to at least 1: with 0 a client would retry at once.
func ceilSeconds(d time.Duration) int64 { return max(1, secondsUp(0, d)) }

// tighter reports whether a decision is tighter than the one that has set the headers: less
// remains, or the same and for longer.
func tighter(o *Outcome, was int64, h http.Header) bool {
	d := &o.Decision
	if remaining := int64(d.Remaining); remaining != was {
		return remaining < was
	}
	wasReset, _ := number(h[headerReset])
	return styleOf(h, wasReset).reset(o.at, d.ResetAfter) > wasReset
}

// styleOf is the style of the headers that are set already, with that X-RateLimit-Reset.
func styleOf(h http.Header, reset int64) Style {
	const longAgo = 800_000_000 // 1995, in seconds since 1970: an instant would be now or later
	return Style{ResetDelta: reset < longAgo, IETF: h[headerIETF] != nil}
}

func number(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}
