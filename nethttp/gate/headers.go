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

// headers writes the headers of decisions.
type headers struct {
	in     set
	policy *policy // of the limiter that usually decides
}

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

// write sets the headers of what the client is told. outer is what is there already: it stays if it is
// tighter. A failure has no numbers, unless it is the store's. room is for the values, or nil.
func (hs *headers) write(h http.Header, room *values, outer *shown, a *attempt, t *told) {
	if !t.allowed {
		h[headerCache] = []string{"no-store"}
	}
	if a.failure != nil && !a.failure.down() {
		return
	}
	if hs.in != 0 && (outer.in == 0 || !t.allowed || outer.looser(t)) {
		hs.show(h, room, outer.in, a, t)
	}
	if !t.allowed {
		delete(h, headerRetryAfter)
		if t.retryAfter != core.Never {
			h[headerRetryAfter] = []string{strconv.FormatInt(min(ceilSeconds(t.retryAfter), mostRetry), 10)}
		}
	}
}

// show sets the headers with numbers. Those that are there would not agree with them.
func (hs *headers) show(h http.Header, room *values, there set, a *attempt, t *told) {
	if there != 0 {
		for _, key := range exposedKeys {
			delete(h, key)
		}
	}
	if hs.in&(xSince1970|xDelta) != 0 {
		writeX(h, room, hs.policy, t, hs.in&xSince1970 != 0)
	}
	if hs.in&inIETF != 0 {
		writeIETF(h, a.policy(hs.policy), t)
	}
}
