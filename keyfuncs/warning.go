package keyfuncs

// Warnings, logged once, of a setup that looks wrong and causes no error.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
)

// The codes, which package nethttp documents.
const (
	codeUntrusted = "forwarded-untrusted"
	codeNever     = "trusted-never-matches"
	codeNoUser    = "never-a-user"
)

// warn logs a warning with its code.
func warn(code, text string, args ...any) {
	slog.Default().Warn("keyfuncs: "+text, append([]any{"code", code}, args...)...)
}

// A warning is logged once.
type warning struct{ said atomic.Bool }

// first reports, once, that the warning has not been logged.
func (w *warning) first() bool { return !w.said.Load() && w.said.CompareAndSwap(false, true) }

// forwardedHeaders are the headers in which proxies pass on the client's address.
var forwardedHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// unchecked is the warning that a request of RemoteIP has one of these headers.
var unchecked warning

// looked is at how many requests lookForHeaders has looked, up to manyMisses.
var looked atomic.Int32

// lookForHeaders warns once if the request has a header with a client's address. After many
// requests without one it looks at one in 64, so that a right setup does not pay for it.
func lookForHeaders(r *http.Request) {
	if unchecked.said.Load() {
		return
	}
	if looked.Load() < manyMisses {
		looked.Add(1)
	} else if rand.Uint32N(64) > 0 {
		return
	}
	for _, name := range forwardedHeaders {
		if _, there := r.Header[name]; !there || !unchecked.first() {
			continue
		}
		// A server sets RemoteAddr to host and port. Middleware that copies a header sets
		// it to the address alone.
		if hasPort(r.RemoteAddr) {
			warn(codeUntrusted, "a request that RemoteIP limits has the header "+name+
				"; if a proxy of yours sets it, all clients behind the proxy share one limit: use ForwardedIP or TrustedHeaderIP with the proxy's prefix")
		} else {
			warn(codeUntrusted, "a request that RemoteIP limits has the header "+name+
				" and a RemoteAddr without a port, as if middleware such as chi's RealIP had copied the address of a header; a client that sends the header can then choose its address and so its quota: remove that middleware, and use ForwardedIP or TrustedHeaderIP with your proxies' prefixes")
		}
	}
}

// manyMisses is the number of misses after which a presence that has found nothing reports a wrong setup.
const manyMisses = 1000

// A presence records whether something is ever found.
type presence struct {
	found  atomic.Bool
	misses atomic.Int32
}

func (p *presence) find() {
	if !p.found.Load() {
		p.found.Store(true)
	}
}

// miss counts a miss. It reports true once: if this is number manyMisses, and nothing was ever found.
func (p *presence) miss() bool {
	return !p.found.Load() && p.misses.Load() < manyMisses && p.misses.Add(1) == manyMisses
}

// warnNoUser is for a First whose first function finds no key, at a request c.
func warnNoUser(c any, why error) {
	warn(codeNoUser, fmt.Sprintf(
		"the first function of a First has found no key in %d requests, and never one, so all these users count as those of a later function; is the limit mounted before the login?", manyMisses),
		"first", why, "route", routeOf(c))
}

// routeOf names the route of a request of net/http, Gin or Echo, if it is known.
func routeOf(c any) string {
	switch c := c.(type) {
	case *http.Request:
		return c.Pattern
	case interface{ FullPath() string }:
		return c.FullPath()
	case interface{ Path() string }:
		return c.Path()
	}
	return ""
}
