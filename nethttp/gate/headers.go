package gate

// This file sets the headers of a decision or a failure.

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/tailcut/tailcut/core"
)

const (
	headerRetryAfter = "Retry-After"
	headerCache      = "Cache-Control"
)

// Headers selects the headers that show a decision. With every value, a refusal has Cache-Control.
// If the action can pass later, the refusal also has Retry-After.
type Headers int

// The values of [Headers].
const (
	XRateLimit        Headers = iota // X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
	XRateLimitDelta                  // as XRateLimit, but X-RateLimit-Reset is in seconds from now instead of since 1970
	IETF                             // RateLimit and RateLimit-Policy, as in draft 11 of May 2026
	XRateLimitAndIETF                // the headers of XRateLimit and of IETF
	NoHeaders                        // no headers that show a decision
)

var (
	formats = [...]*format{&xRateLimit, &ietf}
	sets    = map[Headers]set{XRateLimit: xSince1970, XRateLimitDelta: xDelta, IETF: inIETF, XRateLimitAndIETF: xSince1970 | inIETF, NoHeaders: 0}
)

func (hs Headers) check() error {
	if _, known := sets[hs]; !known {
		return fmt.Errorf("Headers is %d; use a constant of package gate, such as gate.IETF", hs)
	}
	return nil
}

// exposed has the headers of all formats, and exposedKeys has their keys in http.Header.
var exposed, exposedKeys = func() (names, keys []string) {
	for _, f := range formats {
		for _, name := range f.names {
			names, keys = append(names, name), append(keys, http.CanonicalHeaderKey(name))
		}
	}
	return names, keys
}()

// ExposedHeaders implements the function ExposedHeaders of an adapter: see nethttp.ExposedHeaders.
func ExposedHeaders() []string { return append([]string{headerRetryAfter}, exposed...) }

// look returns what the headers of a response show already. The set of the result has all formats
// that were found, and the numbers are those of the first one.
func look(h http.Header) (s shown) {
	for _, f := range formats {
		if h[f.tells] == nil {
			continue
		}
		if of := f.read(h); s.in == 0 {
			s = of
		} else {
			s.in |= of.in
		}
	}
	return s
}

// write sets the headers that show t, in the formats of the argument in. outer is what the headers
// show already. If t is allowed, and outer is as tight or tighter, the old headers stay. If there is
// no decision because the request or a function of the limit is at fault, write sets no numbers. If
// the store has failed, write sets the first limit's quota, no remaining units, and a fixed time to
// retry. room is for the values of the headers, or nil.
func write(h http.Header, in set, room *values, outer *shown, a *attempt, t *told) {
	if !t.Allowed {
		h[headerCache] = []string{"no-store"}
	}
	if a.failure != nil && !a.failure.down() {
		return
	}
	if in != 0 && (outer.in == 0 || !t.Allowed || outer.looser(t)) {
		if outer.in != 0 { // the numbers that are there would not agree with these
			for _, key := range exposedKeys {
				delete(h, key)
			}
		}
		show(h, in, room, a, t)
	}
	if !t.Allowed {
		delete(h, headerRetryAfter)
		if t.RetryAfter != core.Never {
			h[headerRetryAfter] = []string{strconv.FormatInt(min(ceilSeconds(t.RetryAfter), mostRetry), 10)}
		}
	}
}

// show sets the headers with numbers.
func show(h http.Header, in set, room *values, a *attempt, t *told) {
	if in&(xSince1970|xDelta) != 0 {
		writeX(h, room, a.policies[0], t, in&xSince1970 != 0)
	}
	if in&inIETF != 0 {
		writeIETF(h, a.policy(), t)
	}
}
