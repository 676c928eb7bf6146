package keyfuncs

// What is said once in the log: a setup that looks wrong and causes no error.

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
	codeNobody    = "never-a-user"
)

// A warning is said once.
type warning struct{ said atomic.Bool }

func (w *warning) say(code, text string) {
	if w.said.CompareAndSwap(false, true) {
		slog.Default().Warn("keyfuncs: "+text, "code", code)
	}
}

// forwardedHeaders are those in which proxies pass on the client's address.
var forwardedHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// A lookout looks for these headers in the requests that RemoteIP serves. It looks at the
// first requests and then at a sample: a proxy adds its header to every request.
type lookout struct {
	warning
	looked atomic.Int32
}

var unchecked lookout

const (
	firstLooks = 1000
	sample     = 64 // one of so many
)

func (l *lookout) look(r *http.Request) {
	if l.said.Load() {
		return
	}
	if l.looked.Load() < firstLooks {
		l.looked.Add(1)
	} else if rand.Uint32()%sample != 0 {
		return
	}
	for _, name := range forwardedHeaders {
		if _, there := r.Header[name]; !there {
			continue
		}
		// A server writes host and port. Middleware that believes a header writes the
		// address alone.
		if hasPort(r.RemoteAddr) {
			l.say(codeUntrusted, "a request that RemoteIP limits has the header "+name+
				"; if a proxy of yours sets it, all clients behind the proxy share one limit: use ForwardedIP or TrustedHeaderIP with the proxy's prefix")
		} else {
			l.say(codeUntrusted, "a request that RemoteIP limits has the header "+name+
				" and a RemoteAddr without a port, as if middleware such as chi's RealIP had copied the address of a header; a client that sends the header can then choose its address and so its quota: take that middleware away, and use ForwardedIP or TrustedHeaderIP with your proxies' prefixes")
		}
		return
	}
}

// fewUsers is the number of requests without a key of First's first function, and never
// one with it, after which that function is said to be in the wrong place.
const fewUsers = 1000

// A presence watches whether First's first function ever finds a key.
type presence struct {
	found  atomic.Bool
	misses atomic.Int32
}

func (p *presence) find() {
	if !p.found.Load() {
		p.found.Store(true)
	}
}

// miss notes a request c in which there was no key, and why.
func (p *presence) miss(c any, why error) {
	if p.found.Load() || p.misses.Load() >= fewUsers || p.misses.Add(1) != fewUsers {
		return
	}
	slog.Default().Warn(fmt.Sprintf(
		"keyfuncs: the first function of a First has found no key in %d requests, and never one, so all these users count as those of a later function; is the limit mounted before the login?", fewUsers),
		"code", codeNobody, "first", why, "route", routeOf(c))
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
