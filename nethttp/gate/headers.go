package gate

// The headers of a decision or a failure.

import (
	"net/http"
	"strconv"
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

// A style says in what form the headers tell a decision.
type style struct {
	delta bool // X-RateLimit-Reset in seconds from now, not since 1970
	ietf  bool // RateLimit and RateLimit-Policy in addition
}

func (cfg *Config[C]) style() style { return style{delta: cfg.ResetDelta, ietf: cfg.IETF} }

// headers writes the headers of decisions.
type headers struct {
	style
	policy policy // of the limiter that usually decides, or none
}

// values are the values of the three headers in one allocation instead of two, which saves 8 % of a
// request: see BenchmarkMiddleware of package nethttp.
type values struct {
	lines [3]string
	text  [60]byte // any three numbers have room
}

// write sets the headers of a decision. outer is the X-RateLimit-Remaining that a limit further out
// has set, if any: they then show the tighter of the two decisions.
func (hs *headers) write(h http.Header, outer []string, limiter *core.Limiter, d *core.Decision) {
	now := time.Now()
	if was, stacked := number(outer); stacked {
		if d.Allowed && !tighter(d, now, was, h) {
			return
		}
		delete(h, headerPolicy) // they would not agree with the numbers set now
		delete(h, headerIETF)
	}
	v := new(values)
	b := strconv.AppendInt(v.text[:0], int64(d.Limit), 10)
	limit := len(b)
	b = strconv.AppendInt(b, int64(max(0, d.Remaining)), 10)
	remaining := len(b)
	b = strconv.AppendInt(b, hs.reset(now, d.ResetAfter), 10)
	text := unsafe.String(&v.text[0], len(b)) // which is not written to again
	v.lines = [3]string{text[:limit], text[limit:remaining], text[remaining:]}
	h[headerLimit], h[headerRemaining], h[headerReset] = v.lines[:1:1], v.lines[1:2:2], v.lines[2:]
	if hs.ietf {
		p := &hs.policy
		if limiter != p.limiter {
			other := newPolicy(limiter)
			p = &other
		}
		p.write(h, d)
	}
	if d.Allowed {
		return
	}
	h[headerCache] = []string{"no-store"}
	delete(h, headerRetryAfter)
	if d.RetryAfter != core.Never {
		h[headerRetryAfter] = []string{strconv.FormatInt(ceilSeconds(d.RetryAfter), 10)}
	}
}

// fail sets the headers of a failure. If the store failed, they show the first limit with
// nothing left.
func (hs *headers) fail(h http.Header, a *attempt) {
	if a.failure.Status != http.StatusServiceUnavailable {
		h[headerCache] = []string{"no-store"}
		return
	}
	const retry = retrySeconds * time.Second
	hs.write(h, h[headerRemaining], a.limiter, &core.Decision{Limit: a.limiter.Limits()[0].Quota(), RetryAfter: retry, ResetAfter: retry})
}

// reset is the value of X-RateLimit-Reset for an instant that is that long after at. Seconds since
// 1970 are by the process's clock, as in the Date header.
func (s style) reset(at time.Time, after time.Duration) int64 {
	if s.delta {
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
func tighter(d *core.Decision, now time.Time, was int64, h http.Header) bool {
	if remaining := int64(d.Remaining); remaining != was {
		return remaining < was
	}
	wasReset, _ := number(h[headerReset])
	return styleOf(h, wasReset).reset(now, d.ResetAfter) > wasReset
}

// styleOf is the style of the headers that are set already, with that X-RateLimit-Reset.
func styleOf(h http.Header, reset int64) style {
	const longAgo = 800_000_000 // 1995, in seconds since 1970: an instant would be now or later
	return style{delta: reset < longAgo, ietf: h[headerIETF] != nil}
}

func number(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}
