package gate

// The headers of a decision or a failure.

import (
	"fmt"
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

// Headers says which headers show a decision. A refusal has Cache-Control in any case, and Retry-After
// unless the action can never pass.
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

// write sets the headers of what the client is told. outer is what a limit further out has shown: it stays
// if it is tighter. A failure has no numbers, unless it is the store's. room is for the values, or nil.
func (hs *headers) write(h http.Header, room *values, outer *shown, a *attempt, told *core.Decision) {
	if !told.Allowed {
		h[headerCache] = []string{"no-store"}
	}
	if a.failure != nil && !a.failure.down() {
		return
	}
	if hs.Headers != NoHeaders {
		hs.show(h, room, outer, a, told)
	}
	if !told.Allowed {
		setRetryAfter(h, told.RetryAfter)
	}
}

// show sets the headers with numbers.
func (hs *headers) show(h http.Header, room *values, outer *shown, a *attempt, told *core.Decision) {
	if outer.there {
		if told.Allowed && !outer.looser(told.Remaining, outer.headers.reset(a, told.ResetAfter)) {
			return
		}
		removeNumbers(h)
	}
	if hs.x() {
		numbers(h, room, hs.policy.quota(told.Limit), told, hs.reset(a, told.ResetAfter))
		if told.Reason == core.ReasonNothing {
			delete(h, headerReset) // there will never be more
		}
	}
	if hs.ietf() {
		hs.policy.of(a).write(h, told)
	}
}

func setRetryAfter(h http.Header, d time.Duration) {
	delete(h, headerRetryAfter)
	if d != core.Never {
		h[headerRetryAfter] = []string{strconv.FormatInt(ceilSeconds(d), 10)}
	}
}

// values are those of three headers, and the digits of two, in one allocation.
type values struct {
	of     [3]string
	digits [19 + 11]byte // of an int, and of 2^64 ns in seconds
}

// numbers sets the three headers that begin with X-RateLimit.
func numbers(h http.Header, v *values, limit string, d *core.Decision, reset int64) {
	if v == nil {
		v = new(values)
	}
	v.of[0] = limit
	end := v.put(1, len(v.digits), uint64(max(0, d.Remaining)))
	v.put(2, end, uint64(reset))
	h[headerLimit], h[headerRemaining], h[headerReset] = v.of[:1:1], v.of[1:2:2], v.of[2:]
}

// put makes value i of n. Its digits end at end, and put returns where they begin. strconv would write them
// elsewhere first.
func (v *values) put(i, end int, n uint64) int {
	at := end - 1
	for ; n >= 10; at-- {
		tens := n / 10
		v.digits[at] = '0' + byte(n-10*tens)
		n = tens
	}
	v.digits[at] = '0' + byte(n)
	v.of[i] = unsafe.String(&v.digits[at], end-at) // nobody changes the digits any more
	return at
}

// reset is the value of X-RateLimit-Reset for an instant that is that long after the decision. Seconds since
// 1970 are by the process's clock, as in the Date header. Now is a little later than the decision, so a boundary
// of a calendar, a whole second, would be rounded up to the next one.
func (hs Headers) reset(a *attempt, after time.Duration) int64 {
	if hs != XRateLimit && hs != XRateLimitAndIETF {
		return secondsUp(0, after)
	}
	now := time.Now().UnixNano()
	if a.calendar != nil {
		const second = 1e6
		start, end := a.calendar.Period(now / 1000)
		for _, boundary := range [...]int64{start, end} { // start, if it has passed since the decision
			if late := (now+int64(after))/1000 - boundary; late >= 0 && late < second {
				return boundary / second
			}
		}
	}
	return secondsUp(now, after)
}

// secondsUp is the time d after now, in seconds and rounded up. It does not overflow for any
// d. A negative d counts as 0.
func secondsUp(now int64, d time.Duration) int64 {
	return int64((uint64(now) + uint64(max(0, d)) + uint64(time.Second) - 1) / uint64(time.Second))
}

// ceilSeconds rounds up, to at least 1: with 0 a client would retry at once.
func ceilSeconds(d time.Duration) int64 { return max(1, secondsUp(0, d)) }
