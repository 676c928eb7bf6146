package gate

// This file writes and reads RateLimit-Policy and RateLimit, as in [draft 11].
//
// [draft 11]: https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tailcut/tailcut/core"
)

const (
	headerPolicy = "Ratelimit-Policy"
	headerIETF   = "Ratelimit"
)

const inIETF set = 4

var ietf = format{[]string{"RateLimit", "RateLimit-Policy"}, headerIETF, readIETF}

func writeIETF(h http.Header, p *policy, t *told) {
	i := p.bound(t.Subject, t.Binding)
	l, name := &p.limits[i], p.names[i]
	item := name + ";r=" + strconv.Itoa(t.Remaining)
	// The parameter t is the time until more than r can be used. If the action is allowed, only
	// a fixed, elastic or calendar window tells this time, because it gets its whole quota back
	// at one instant.
	if t.Allowed && l.ResetsAtOnce() {
		item += ";t=" + strconv.FormatInt(secondsUp(0, t.ResetAfter), 10)
	} else if !t.Allowed && t.RetryAfter != core.Never {
		item += ";t=" + strconv.FormatInt(secondsUp(0, t.RetryAfter), 10)
	}
	text := p.text
	if t.Limit != l.Quota() { // core.Divide has changed the quota
		text = strings.Replace(text, name+";q="+p.quotas[i], name+";q="+strconv.Itoa(t.Limit), 1)
	}
	h[headerPolicy], h[headerIETF] = []string{text}, []string{item}
}

// readIETF reads the parameters r and t of a RateLimit that writeIETF has written. If there is no
// t, the reset is 0.
func readIETF(h http.Header) (s shown) {
	item := h[headerIETF]
	if len(item) != 1 {
		return s
	}
	_, numbers, _ := strings.Cut(item[0], `";r=`)
	r, t, _ := strings.Cut(numbers, ";t=")
	var err error
	s.remaining, err = strconv.ParseInt(r, 10, 64)
	s.reset, _ = strconv.ParseInt(t, 10, 64)
	if err == nil {
		s.in = inIETF
	}
	return s
}
