package keyfuncs

// Warnings, logged once, of a setup that looks wrong and causes no error.

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/notice"
)

// warn logs a warning with its code, which doc.go documents.
func warn(code, text string, args ...any) {
	slog.Default().Warn("keyfuncs: "+text, append([]any{"code", code}, args...)...)
}

var (
	unchecked notice.Once  // whether lookAtPeer has warned of a header
	looked    atomic.Int32 // at how many requests it has looked, up to manyLooks
	peers     crowd        // of these requests
	misread   notice.Once  // whether warnAddress has warned
)

// remoteMaker names what reads the peer in warnings, but for an adapter's PerIP.
const remoteMaker = "RemoteIP or RemoteAddr"

// addressHeaders are the headers in which proxies send the client's address.
var addressHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// warnAddress warns once if Header reads a client's address.
func warnAddress(name string) {
	if slices.Contains(addressHeaders[:], name) && misread.Due() {
		warn("forwarded-untrusted", "Header reads the header "+name+", in which any client can send any address and so choose its quota; use ForwardedIP or TrustedHeaderIP with your proxies' prefixes")
	}
}

// manyLooks is at how many requests something looks before it leaves most out.
const manyLooks = 1000

// lookAtPeer warns once if a request whose user is its peer has a header with a client's address,
// or if a crowd is detected. maker reads the peer. After many requests without such a header it
// looks at one request in 64, so that a right setup pays almost nothing for it.
func lookAtPeer(r *http.Request, addr netip.Addr, maker string) {
	if unchecked.Load() {
		return
	}
	if looked.Load() < manyLooks {
		looked.Add(1)
		if peers.note(addr, r.RemoteAddr) {
			peers.warn(maker)
		}
	} else if rand.Uint32()%64 > 0 {
		return
	}
	for _, name := range addressHeaders {
		if _, there := r.Header[name]; there && unchecked.Due() {
			warn("forwarded-untrusted", "a request whose address "+maker+" reads has the header "+name+unread(r.RemoteAddr, name, maker))
		}
	}
}

// unread says what is wrong if the peer is the user, and its request has the header, and what to do.
func unread(remote, header, maker string) string {
	list := header == xForwardedFor.name || header == forwardedList.name
	cure := "use TrustedHeaderIP"
	switch {
	case list && maker != remoteMaker:
		cure = "call " + maker
	case list:
		cure = "use ForwardedIP"
	case maker != remoteMaker:
		cure = "write Limit with TrustedHeaderIP"
	}
	// A server sets RemoteAddr to host and port. Middleware that copies a header sets it to the address alone.
	if _, err := netip.ParseAddrPort(remote); err != nil {
		return " and a RemoteAddr without a port, as if middleware such as chi's RealIP had copied the address of a header; a client that sends the header can then choose its address and so its quota: remove that middleware, and " + cure + " with your proxies' prefixes"
	}
	return "; if a proxy of yours sets it, all clients behind the proxy share one limit: " + cure + " with the proxy's prefix"
}

// manyMisses is the number of misses after which a setup in which nothing was ever found is reported as wrong.
const manyMisses = 1000

// warnNoUser is for a First whose first function finds no key, at a request c.
func warnNoUser(c any, why error) {
	warn("never-a-user", fmt.Sprintf(
		"the first function of a First has found no key in %d requests, and never one, so all these users are keyed by a later function; is the limit mounted before the login?", manyMisses),
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
