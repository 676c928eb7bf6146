package gate

// This file writes and reads X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.

import (
	"net/http"

	"github.com/tailcut/tailcut/core"
)

// The keys of http.Header. On the wire their case does not matter.
const (
	headerLimit     = "X-Ratelimit-Limit"
	headerRemaining = "X-Ratelimit-Remaining"
	headerReset     = "X-Ratelimit-Reset"
)

// The two ways to tell the reset: in seconds since 1970, or from now.
const (
	xSince1970 set = 1
	xDelta     set = 2
)

var xRateLimit = format{[]string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}, headerRemaining, readX}

func writeX(h http.Header, v *values, p *policy, t *told, since1970 bool) {
	if v == nil {
		v = new(values)
	}
	v.of[0] = p.quota(t.Limit)
	end := v.put(1, len(v.digits), uint64(max(0, t.Remaining)))
	h[headerLimit], h[headerRemaining] = v.of[:1:1], v.of[1:2:2]
	if t.Reason == core.ReasonNothing {
		delete(h, headerReset) // the limit never gets a quota
		return
	}
	v.put(2, end, uint64(t.reset(since1970)))
	h[headerReset] = v.of[2:]
}

func readX(h http.Header) (s shown) {
	const longAgo = 800_000_000 // in seconds since 1970 this is 1995, and a reset is later
	var ok bool
	if s.remaining, ok = number(h[headerRemaining]); !ok {
		return s
	}
	s.limit, _ = number(h[headerLimit])
	s.reset, _ = number(h[headerReset])
	if s.in = xDelta; s.reset >= longAgo {
		s.in, s.since1970 = xSince1970, true
	}
	return s
}
