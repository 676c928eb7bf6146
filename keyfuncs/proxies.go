package keyfuncs

// The trusted proxies, and warnings if the prefixes look wrong.

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// UnixSocket, among the prefixes of [ForwardedIP], [TrustedHeaderIP] and their twins, trusts every peer on a
// unix socket, such as an nginx on the same host. Whoever may open the socket, by the permissions of its
// file, can then choose an address. Without the header such a request has no address, and the error is
// [ErrNoKey].
//
// Its value, ::/128, is no peer's address. A request whose RemoteAddr is empty is not trusted: some systems
// do not tell that a peer is on a unix socket.
var UnixSocket = netip.PrefixFrom(netip.IPv6Unspecified(), 128)

// proxies are the trusted prefixes of one Func. maker and header name it in warnings.
type proxies struct {
	prefixes      []netip.Prefix // of canonical addresses
	unix          bool           // whether unix sockets are trusted
	maker, header string
	trusted       presence    // of a trusted peer, among the requests with the header
	untrusted     atomic.Bool // whether an untrusted peer was reported
	alone         alone
}

func newProxies(maker, header string, trusted []netip.Prefix) *proxies {
	if len(trusted) == 0 {
		panic("keyfuncs: " + maker + ` needs the prefixes of your proxies, such as netip.MustParsePrefix("10.1.2.0/24"); if there are none use RemoteIP`)
	}
	ps := &proxies{maker: maker, header: header}
	for i, p := range trusted {
		if p == UnixSocket {
			ps.unix = true
			continue
		}
		if !p.IsValid() {
			panic(fmt.Sprintf("keyfuncs: %s: prefix %d is not valid; make it with netip.MustParsePrefix", maker, i+1))
		}
		canonical := p
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			canonical = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		switch {
		case canonical.Bits() == 0:
			panic(fmt.Sprintf("keyfuncs: %s: prefix %d, %v, trusts every peer, so that a client can choose its address; give the prefixes of your proxies", maker, i+1, p))
		case canonical.Addr().Is4In6():
			panic(fmt.Sprintf("keyfuncs: %s: prefix %d, %v, is more than all of IPv4; write IPv4 as IPv4, such as 10.1.2.0/24", maker, i+1, p))
		}
		ps.prefixes = append(ps.prefixes, canonical)
	}
	return ps
}

func (ps *proxies) contain(addr netip.Addr) bool {
	return slices.ContainsFunc(ps.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// untrustedPeer notes an untrusted peer, if its request has the header.
func (ps *proxies) untrustedPeer(h http.Header) {
	if _, there := h[ps.header]; !there {
		return
	}
	if !ps.untrusted.Swap(true) {
		warn("forwarded-untrusted", fmt.Sprintf(
			"a peer that %s does not trust sent the header %s, so the limit is on the peer's own address; if the peer is a proxy of yours, give its prefix to %[1]s",
			ps.maker, ps.header))
	}
	if ps.trusted.miss() {
		warn("trusted-never-matches", fmt.Sprintf(
			"%d requests had the header %s, and no peer was ever in the prefixes that %s was given; give it the prefixes from which your proxies connect",
			manyMisses, ps.header, ps.maker))
	}
}

// An alone suspects that the one client that many requests come from is a proxy that is not trusted: other
// addresses stand to its left. It does not suspect an office, whose own proxy names private addresses, or a
// client that always sends the same address.
type alone struct {
	over   atomic.Bool
	mu     sync.Mutex
	seen   int
	client netip.Addr
	others []netip.Addr // to its left, up to manyOthers
}

const manyOthers = 5

// note notes a client, and the rest of the header to its left. It reports true once: if that confirms it.
func (a *alone) note(client netip.Addr, rest string) bool {
	if a.over.Load() {
		return false
	}
	other, ok := parseAddress(trim(rest[strings.LastIndexByte(rest, ',')+1:]))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !ok || !other.IsGlobalUnicast() || other.IsPrivate() || a.seen > 0 && client != a.client {
		a.over.Store(true)
		return false
	}
	a.client = client
	if len(a.others) < manyOthers && !slices.Contains(a.others, other) {
		a.others = append(a.others, other)
	}
	if a.seen++; a.seen < manyMisses {
		return false
	}
	return !a.over.Swap(true) && len(a.others) == manyOthers
}

// oneClient notes the client of a request through trusted proxies, and what is to its left in the header.
func (ps *proxies) oneClient(client netip.Addr, rest string) {
	if ps.alone.note(client, rest) {
		warn("one-client", fmt.Sprintf(
			"%d requests through trusted proxies all have one client by %s, and other addresses to its left in %s; if that client is a proxy or load balancer of yours, as with Google's, all clients behind it share one limit: give its address to %[2]s too",
			manyMisses, ps.maker, ps.header))
	}
}
