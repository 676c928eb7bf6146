package nethttp

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

var noStore = []string{"no-store"}

// ExposedHeaders are the headers that a browser must be allowed to read for a
// script of another origin to see its limits: give them to the CORS middleware,
// such as cors.Options{ExposedHeaders: nethttp.ExposedHeaders()} of rs/cors. Mount
// that middleware outside Limit, so that a refusal bears its headers too.
func ExposedHeaders() []string {
	return []string{headerRetryAfter, "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"}
}

// retrySeconds is the Retry-After of a store failure.
const retrySeconds = 1

// headers writes the headers of decisions. The values that never change are made
// once.
type headers struct {
	limiter    *core.Limiter
	resetDelta bool
	ietf       bool
	quotas     []quota  // by the binding limit
	names      []string // of the limits, as RateLimit gives them
	atOnce     []bool   // their quota is whole again at once
	policy     []string // RateLimit-Policy
}

// A quota is a limit's, and X-RateLimit-Limit as it tells it.
type quota struct {
	n      int
	header []string
}

func newHeaders(limiter *core.Limiter, resetDelta, ietf bool) headers {
	h := headers{limiter: limiter, resetDelta: resetDelta, ietf: ietf}
	var policies []string
	for _, l := range limiter.Limits() {
		h.quotas = append(h.quotas, quota{l.Quota(), []string{strconv.Itoa(l.Quota())}})
		name, policy := ietfPolicy(l)
		h.names = append(h.names, name)
		h.atOnce = append(h.atOnce, l.Kind() == core.KindFixedWindow || l.Kind() == core.KindElasticWindow)
		policies = append(policies, policy)
	}
	h.policy = []string{strings.Join(policies, ", ")}
	return h
}

// ietfPolicy is a limit as an item of RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers-10). A window of less than a second cannot
// be told there.
func ietfPolicy(l core.Limit) (name, policy string) {
	name = l.Name()
	if name == "" {
		name = l.Identity()
	}
	name = `"` + name + `"`
	policy = name + ";q=" + strconv.Itoa(l.Quota())
	if p := l.Period(); p >= time.Second {
		policy += ";w=" + strconv.FormatInt(ceilSeconds(p), 10)
	}
	return name, policy
}

// write sets the headers of a decision, unless a decision that is tighter has set
// them before: of stacked limits the tightest shows. It returns the Remaining that
// was set before. own is where the numbers go, if there is a place for them already.
func (hs *headers) write(h http.Header, limiter *core.Limiter, d *core.Decision, own *numbers) (outer []string) {
	reset := hs.reset(d.ResetAfter)
	outer = h[headerRemaining]
	if was, stacked := number(outer); stacked {
		if wasReset, _ := number(h[headerReset]); d.Allowed && !tighter(d, reset, was, wasReset) {
			return outer
		}
		clearIETF(h)
	}
	mine := hs
	if limiter != hs.limiter && hs.ietf {
		other := newHeaders(limiter, hs.resetDelta, hs.ietf)
		mine = &other
	}
	if limiter == mine.limiter && mine.quotas[d.Binding].n == d.Limit {
		h[headerLimit] = mine.quotas[d.Binding].header
	} else { // a limiter that was picked, or a share of core.Divide's
		h[headerLimit] = []string{strconv.Itoa(d.Limit)}
	}
	if own == nil {
		own = new(numbers)
	}
	own.set(h, int64(d.Remaining), reset)
	if hs.ietf {
		h[headerPolicy] = mine.policy
		h[headerIETF] = []string{mine.names[d.Binding] + ";r=" + strconv.Itoa(d.Remaining) + mine.more(d)}
	}
	if !d.Allowed {
		refuse(h, d)
	}
	return outer
}

// more is when there is more quota than now, if that is known: with a window that
// ends at once it is its end, with others it comes little by little.
func (hs *headers) more(d *core.Decision) string {
	t := d.RetryAfter
	if d.Allowed && hs.atOnce[d.Binding] {
		t = d.ResetAfter
	} else if d.Allowed || t == core.Never {
		return ""
	}
	return ";t=" + strconv.FormatInt(int64(t/time.Second)+partOfSecond(t), 10)
}

func refuse(h http.Header, d *core.Decision) {
	h[headerCache] = noStore
	if d.RetryAfter == core.Never {
		delete(h, headerRetryAfter)
		return
	}
	h[headerRetryAfter] = []string{strconv.FormatInt(ceilSeconds(d.RetryAfter), 10)}
}

// fail sets the headers of a failure: for a store's the first limit's, with nothing
// left.
func (hs *headers) fail(h http.Header, limiter *core.Limiter, f *Failure) {
	h[headerCache] = noStore
	if f.Status != http.StatusServiceUnavailable {
		return
	}
	clearIETF(h)
	h[headerLimit] = []string{strconv.Itoa(limiter.Limits()[0].Quota())}
	new(numbers).set(h, 0, hs.reset(retrySeconds*time.Second))
	h[headerRetryAfter] = []string{strconv.Itoa(retrySeconds)}
}

// numbers are the two values that differ from response to response, with their digits,
// of which any two have room: one allocation, where strings would need two.
type numbers struct {
	lines  [2]string
	digits [32]byte
}

// set sets the two headers. It is called once.
func (ns *numbers) set(h http.Header, remaining, reset int64) {
	b := strconv.AppendInt(ns.digits[:0], remaining, 10)
	n := len(b)
	b = strconv.AppendInt(b, reset, 10)
	s := unsafe.String(unsafe.SliceData(b), len(b)) // b is not written to again
	ns.lines = [2]string{s[:n], s[n:]}
	h[headerRemaining] = ns.lines[:1:1]
	h[headerReset] = ns.lines[1:]
}

// reset is the value of X-RateLimit-Reset: the second in which the limit is whole,
// since 1970 by the process's clock, as the Date header gives it.
func (hs *headers) reset(after time.Duration) int64 {
	if hs.resetDelta {
		return int64(after/time.Second) + partOfSecond(after)
	}
	now := time.Now()
	nanos := time.Duration(now.Nanosecond()) + after%time.Second
	return now.Unix() + int64(after/time.Second) + int64(nanos/time.Second) + partOfSecond(nanos)
}

func partOfSecond(d time.Duration) int64 {
	if d%time.Second > 0 {
		return 1
	}
	return 0
}

// ceilSeconds rounds up, to at least 1: a client told 0 would come back at once.
func ceilSeconds(d time.Duration) int64 {
	return max(1, int64(d/time.Second)+partOfSecond(d))
}

// tighter is whether a decision is tighter than the one further out that has set
// the headers: less remains, or as much for longer.
func tighter(d *core.Decision, reset, was, wasReset int64) bool {
	remaining := int64(d.Remaining)
	return remaining < was || remaining == was && reset > wasReset
}

// clearIETF takes away what would not agree with the numbers that are set now.
func clearIETF(h http.Header) {
	delete(h, headerPolicy)
	delete(h, headerIETF)
}

func number(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}
