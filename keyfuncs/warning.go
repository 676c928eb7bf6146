package keyfuncs

// Warnings, logged once, of a setup that looks wrong and causes no error.

import (
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

// warnOnce warns if said is due.
func warnOnce(said *notice.Once, code, text string) {
	if said.Due() {
		warn(code, text)
	}
}

var (
	unchecked notice.Once // whether lookAtPeer has warned of a header
	looked    sample
	peers     crowd
	misread   notice.Once // whether warnAddress has warned
)

// remoteMaker names what reads the peer in warnings, but for an adapter's PerIP.
const remoteMaker = "RemoteIP or RemoteAddr"

// addressHeaders are the headers in which proxies send the client's address.
var addressHeaders = [...]string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip"}

// warnAddress warns once if Header reads a client's address.
func warnAddress(name string) {
	if slices.Contains(addressHeaders[:], name) {
		warnOnce(&misread, "forwarded-untrusted", "Header reads the header "+name+", in which any client can send any address and so choose its quota; use ForwardedIP or TrustedHeaderIP with your proxies' prefixes")
	}
}

// A sample says which requests something looks at: the first 1,000, and later one in 64, so that a
// right setup pays almost nothing for it.
type sample struct{ looks atomic.Int32 }

func (s *sample) next() bool {
	if s.looks.Load() < 1000 {
		s.looks.Add(1)
		return true
	}
	return rand.Uint32()%64 == 0
}

// lookAtPeer warns once if a request whose user is its peer has a header with a client's address,
// or if a crowd is detected. maker reads the peer.
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

// unread says what is wrong if the peer is the user, and its request has the header, and what to do.
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
	// A server sets RemoteAddr to host and port. Middleware that copies a header sets it to the address alone.
	if _, err := netip.ParseAddrPort(remote); err != nil {
		return " and a RemoteAddr without a port, as if middleware such as chi's RealIP had copied the address of a header; a client that sends the header can then choose its address and so its quota: remove that middleware, and " + cure + " with your proxies' prefixes"
	}
	return "; if a proxy of yours sets it, all clients behind the proxy share one limit: " + cure + " with the proxy's prefix"
}

// manyMisses is the number of misses after which a setup in which nothing was ever found is reported as wrong.
const manyMisses = 1000

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
