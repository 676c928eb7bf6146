package keyfuncs

// Warnings about a setup that looks wrong. Each is logged once.

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/notice"
)

// warn logs a warning with its code. The package's documentation lists the codes.
func warn(code, text string, args ...any) {
	slog.Default().Warn("keyfuncs: "+text, append([]any{"code", code}, args...)...)
}

// warnOnce logs a warning, unless it has been logged before.
func warnOnce(said *notice.Once, code, text string) {
	if said.Due() {
		warn(code, text)
	}
}

var (
	unchecked notice.Once // the warning of lookAtPeer
	looked    sample
	peers     crowd
	misread   notice.Once // the warning of warnAddress
)

// In warnings remoteMaker stands for the function that reads the peer, unless that function is an
// adapter's PerIP.
const remoteMaker = "RemoteIP or RemoteAddr"

// addressHeaders are the headers in which proxies send the client's address.
var addressHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// warnAddress warns once if the program has called Header for a header with the client's address.
func warnAddress(name string) {
	if slices.Contains(addressHeaders[:], name) {
		warnOnce(&misread, "forwarded-untrusted", "Header reads the header "+name+", in which any client can send any address and so choose its quota; use ForwardedIP or TrustedHeaderIP with your proxies' prefixes")
	}
}

// A sample selects the requests that a check looks at: the first 1,000, and then about one in 64.
// So a setup without mistakes pays almost nothing for the check.
type sample struct{ looks atomic.Int32 }

func (s *sample) next() bool {
	if s.looks.Load() < 1000 {
		s.looks.Add(1)
		return true
	}
	return rand.Uint32()%64 == 0
}

// lookAtPeer checks a sample of the requests whose user is their peer. It passes addr, the peer's
// address, to the crowd. If a request has a header with a client's address, lookAtPeer warns, and
// checks no more requests after that. maker is the function that reads the peer.
func lookAtPeer(r *http.Request, addr netip.Addr, maker string) {
	if unchecked.Load() || !looked.next() {
		return
	}
	peers.note(addr, r.RemoteAddr, maker)
	for _, name := range addressHeaders {
		if _, there := r.Header[name]; there {
			warnOnce(&unchecked, "forwarded-untrusted", "a request whose address "+maker+" reads has the header "+name+unread(r.RemoteAddr, name, maker))
		}
	}
}

// unread is the end of lookAtPeer's warning: what is wrong, and what to do.
func unread(remote, header, maker string) string {
	cure := "use ForwardedIP"
	switch list, perIP := header == xForwardedFor.name || header == forwardedList.name, maker != remoteMaker; {
	case list && perIP:
		cure = "call " + maker
	case perIP:
		cure = "write Limit with TrustedHeaderIP"
	case !list:
		cure = "use TrustedHeaderIP"
	}
	// A server sets RemoteAddr to an address and a port. If RemoteAddr has no port, middleware has
	// probably copied it from a header.
	if _, err := netip.ParseAddrPort(remote); err != nil {
		return " and a RemoteAddr without a port, as if middleware such as chi's RealIP had copied the address of a header; a client that sends the header can then choose its address and so its quota: remove that middleware, and " + cure + " with your proxies' prefixes"
	}
	return "; if a proxy of yours sets it, all clients behind the proxy share one limit: " + cure + " with the proxy's prefix"
}

// manyMisses is the number of misses without a single hit after which a warning is logged.
const manyMisses = 1000

// routeOf returns the route of a request of net/http, Gin or Echo, or "" if the route is not known.
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
