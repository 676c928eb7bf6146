package gate

// The headers of a decision or a failure.

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"time"

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

// Headers says which headers show a decision. A refusal has Retry-After and Cache-Control in any case.
type Headers int

// The values of [Headers].
const (
	XRateLimit        Headers = iota // X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
	XRateLimitDelta                  // the same, with X-RateLimit-Reset in seconds from now instead of since 1970
	IETF                             // RateLimit and RateLimit-Policy, as in draft 11 of May 2026
	XRateLimitAndIETF                // those of XRateLimit and of IETF
	NoHeaders                        // none
)

func (hs Headers) x() bool    { return hs != IETF && hs != NoHeaders }
func (hs Headers) ietf() bool { return hs == IETF || hs == XRateLimitAndIETF }

func (hs Headers) check() error {
	if hs < XRateLimit || hs > NoHeaders {
		return fmt.Errorf("Headers is %d; use a constant of package gate, such as gate.IETF", hs)
	}
	return nil
}

// headers writes the headers of decisions.
type headers struct {
	Headers
	policy policy // of the limiter that usually decides, or none
}

// write sets the headers of an attempt. If the store has failed, they show the first limit with
// nothing left. outer is what the headers of a limit further out show: they then show the tighter
// of the two decisions. write returns the decision that the headers are about.
func (hs *headers) write(h http.Header, outer *shown, a *attempt) (d *core.Decision) {
	d = a.told(&hs.policy)
	if f := a.failure; f != nil && f.Status == http.StatusServiceUnavailable {
		const retry = retrySeconds * time.Second
		d = &core.Decision{Limit: a.limiter.Limits()[0].Quota(), RetryAfter: retry, ResetAfter: retry}
	} else if f != nil {
		h[headerCache] = []string{"no-store"}
		return d
	}
	if now := time.Now(); hs.Headers != NoHeaders && (!d.Allowed || outer.looser(d, now)) {
		if outer.there { // they would not agree with the numbers set now
			for _, name := range [...]string{headerLimit, headerRemaining, headerReset, headerPolicy, headerIETF} {
				delete(h, name)
			}
		}
		if hs.x() {
			hs.numbers(h, d, now)
		}
		if hs.ietf() {
			hs.policy.of(a).write(h, d)
		}
	}
	if d.Allowed {
		return d
	}
	h[headerCache] = []string{"no-store"}
	delete(h, headerRetryAfter)
	if d.RetryAfter != core.Never {
		h[headerRetryAfter] = []string{strconv.FormatInt(ceilSeconds(d.RetryAfter), 10)}
	}
	return d
}

// soon is when a slot of InFlight may be free again. Nobody knows when: the actions that have the
// slots may take much less time than their leases.
const soon = time.Second

// told is the decision as the client is told it. If InFlight binds, the client is told to look again
// soon: a client that waits for the end of a lease would waste the slots that are released before.
//
// If the wait is spread, it is longer by a part that is always the same for the user, on every
// server. So of two refusals the later one tells the user no later time.
//
// p is the policy of the limiter that usually decides.
func (a *attempt) told(p *policy) *core.Decision {
	d := &a.decision
	if a.lease != 0 && a.slotBinds(p) {
		slot := *d
		slot.ResetAfter = soon
		if !d.Allowed {
			slot.RetryAfter = soon
		}
		return &slot
	}
	if !a.spread || d.Allowed || d.RetryAfter == core.Never {
		return d
	}
	spread := *d
	share := float64(crc32.ChecksumIEEE([]byte(a.user))) / (1 << 32) / 10
	spread.RetryAfter += min(time.Duration(share*float64(d.RetryAfter)), core.Never-1-d.RetryAfter)
	spread.ResetAfter = max(d.ResetAfter, spread.RetryAfter)
	return &spread
}

// slotBinds reports whether the binding limit is InFlight.
func (a *attempt) slotBinds(p *policy) bool {
	if !a.decision.Allowed {
		return a.decision.Reason == core.ReasonInFlight
	}
	p = p.of(a)
	return p.limits[p.binding(&a.decision)].Rule().TakesSlots()
}

// numbers sets the three headers that begin with X-RateLimit.
func (hs Headers) numbers(h http.Header, d *core.Decision, now time.Time) {
	b := strconv.AppendInt(make([]byte, 0, 64), int64(d.Limit), 10)
	limit := len(b)
	b = strconv.AppendInt(b, int64(max(0, d.Remaining)), 10)
	remaining := len(b)
	text := string(strconv.AppendInt(b, hs.reset(now, d.ResetAfter), 10))
	v := []string{text[:limit], text[limit:remaining], text[remaining:]}
	h[headerLimit], h[headerRemaining], h[headerReset] = v[:1:1], v[1:2:2], v[2:]
}

// reset is the value of X-RateLimit-Reset for an instant that is that long after at. Seconds since
// 1970 are by the process's clock, as in the Date header.
func (hs Headers) reset(at time.Time, after time.Duration) int64 {
	if hs == XRateLimit || hs == XRateLimitAndIETF {
		return secondsUp(at.UnixNano(), after)
	}
	return secondsUp(0, after)
}

// secondsUp is the time d after now, in seconds and rounded up. It does not overflow for any
// d. A negative d counts as 0.
func secondsUp(now int64, d time.Duration) int64 {
	return int64((uint64(now) + uint64(max(0, d)) + uint64(time.Second) - 1) / uint64(time.Second))
}

// ceilSeconds rounds up, to at least 1: with 0 a client would retry at once.
func ceilSeconds(d time.Duration) int64 { return max(1, secondsUp(0, d)) }
