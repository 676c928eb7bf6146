package keyfuncs

// The trusted proxies, and warnings if the prefixes look wrong.

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
)

// proxies are the trusted prefixes of one Func. maker and header name it in warnings.
type proxies struct {
	prefixes      []netip.Prefix // of canonical addresses
	maker, header string
	trusted       presence    // of a trusted peer, among the requests with the header
	untrusted     atomic.Bool // whether an untrusted peer was reported
}

func newProxies(maker, header string, trusted []netip.Prefix) *proxies {
	if len(trusted) == 0 {
		panic("keyfuncs: " + maker + ` needs the prefixes of your proxies, such as netip.MustParsePrefix("10.1.2.0/24"); if there are none use RemoteIP`)
	}
	ps := &proxies{maker: maker, header: header}
	for i, p := range trusted {
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
