package gate

// What a limit further out has shown: the headers that a response has already when this one has decided.
// What a function of this one has set, such as a Cost that calls Allow, counts as shown further out.

import (
	"net/http"
	"strconv"
	"strings"
)

// shown is what the headers of a response show already, if there are any.
type shown struct {
	there                   bool
	headers                 Headers
	limit, remaining, reset int64 // with IETF the limit is 0; reset is in the unit of headers
}

// read reads the headers of a response.
func (s *shown) read(h http.Header) {
	const longAgo = 800_000_000 // 1995, in seconds since 1970: an instant would be now or later
	item := h[headerIETF]
	if s.remaining, s.there = number(h[headerRemaining]); s.there {
		s.limit, _ = number(h[headerLimit])
		s.reset, _ = number(h[headerReset])
		switch {
		case item != nil:
			s.headers = XRateLimitAndIETF
		case s.reset < longAgo:
			s.headers = XRateLimitDelta
		}
	} else if len(item) == 1 {
		s.headers = IETF
		s.remaining, s.reset, s.there = parseItem(item[0])
	}
}

func number(values []string) (int64, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return n, err == nil
}

// parseItem returns the parameters r and t of a RateLimit that policy.write has made. Without a t it
// is 0.
func parseItem(item string) (r, t int64, ok bool) {
	_, numbers, _ := strings.Cut(item, `";r=`)
	first, second, _ := strings.Cut(numbers, ";t=")
	r, err := strconv.ParseInt(first, 10, 64)
	t, _ = strconv.ParseInt(second, 10, 64)
	return r, t, err == nil
}

// looser reports whether what is shown is looser than a decision: more remains, or the same and for a
// shorter time.
func (s *shown) looser(remaining int, reset int64) bool {
	if remaining := int64(remaining); remaining != s.remaining {
		return remaining < s.remaining
	}
	return reset > s.reset
}

// removeNumbers deletes the headers. They would not agree with the numbers that are set now.
func removeNumbers(h http.Header) {
	for _, name := range [...]string{headerLimit, headerRemaining, headerReset, headerPolicy, headerIETF} {
		delete(h, name)
	}
}
