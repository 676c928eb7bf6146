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

// A warning is logged once.
type warning struct{ said atomic.Bool }

func (w *warning) say(code, text string) {
	if w.said.CompareAndSwap(false, true) {
		slog.Default().Warn("keyfuncs: "+text, "code", code)
	}
}

// forwardedHeaders are the headers in which proxies pass on the client's address.
var forwardedHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// A headerWatch looks for these headers in the requests that RemoteIP serves. It looks at the
// first requests and then at a sample: a proxy adds its header to every request.
type headerWatch struct {
	warning
	looked atomic.Int32
}

var unchecked headerWatch

const (
	firstLooks = 1000
	sample     = 64 // then one request in 64
)

func (l *headerWatch) look(r *http.Request) {
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
		// A server sets RemoteAddr to host and port. Middleware that copies a header sets
		// it to the address alone.
		if hasPort(r.RemoteAddr) {
			l.say(codeUntrusted, "a request that RemoteIP limits has the header "+name+
				"; if a proxy of yours sets it, all clients behind the proxy share one limit: use ForwardedIP or TrustedHeaderIP with the proxy's prefix")
		} else {
			l.say(codeUntrusted, "a request that RemoteIP limits has the header "+name+
				" and a RemoteAddr without a port, as if middleware such as chi's RealIP had copied the address of a header; a client that sends the header can then choose its address and so its quota: remove that middleware, and use ForwardedIP or TrustedHeaderIP with your proxies' prefixes")
		}
		return
	}
}

// manyMisses is the number of requests without a key after which First's first function is reported
// as being in the wrong place, if it has never found one.
const manyMisses = 1000

// A presence records whether First's first function ever finds a key.
type presence struct {
	found  atomic.Bool
	misses atomic.Int32
}

func (p *presence) find() {
	if !p.found.Load() {
		p.found.Store(true)
	}
}

// miss notes a request c without a key, and why.
func (p *presence) miss(c any, why error) {
	if p.found.Load() || p.misses.Load() >= manyMisses || p.misses.Add(1) != manyMisses {
		return
	}
	slog.Default().Warn(fmt.Sprintf(
		"keyfuncs: the first function of a First has found no key in %d requests, and never one, so all these users count as those of a later function; is the limit mounted before the login?", manyMisses),
		"code", codeNoUser, "first", why, "route", routeOf(c))
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
