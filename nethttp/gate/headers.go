package gate

// The headers of a decision or a failure.

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

var (
	formats = [...]*format{&xRateLimit, &ietf}
	sets    = [...]set{XRateLimit: xSince1970, XRateLimitDelta: xDelta, IETF: inIETF, XRateLimitAndIETF: xSince1970 | inIETF, NoHeaders: 0}
)

// set has none of unknown Headers, which check refuses.
func (hs Headers) set() set {
	if hs.check() != nil {
		return 0
	}
	return sets[hs]
}

func (hs Headers) check() error {
	if hs < 0 || int(hs) >= len(sets) {
		return fmt.Errorf("Headers is %d; use a constant of package gate, such as gate.IETF", hs)
	}
	return nil
}

// exposed are the headers of all formats, and their keys are those of http.Header.
var exposed, exposedKeys = func() (names, keys []string) {
	for _, f := range formats {
		for _, name := range f.names {
			names, keys = append(names, name), append(keys, http.CanonicalHeaderKey(name))
		}
	}
	return names, keys
}()

// ExposedHeaders is an adapter's function ExposedHeaders: see nethttp.ExposedHeaders.
func ExposedHeaders() []string { return append([]string{headerRetryAfter}, exposed...) }

// look returns what the headers of a response show already: in all formats, and the numbers of the first one.
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

// write sets the headers of what the client is told, in the formats of the set. outer is what is there already: it
// stays if it is tighter. A failure has no numbers, unless it is the store's. room is for the values, or nil.
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
