package keyfuncs

// The prefixes of trusted proxies, which a program can replace while it runs.

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
)

// UnixSocket makes every peer on a unix socket trusted, such as an nginx on the same host. Pass it
// as one of the prefixes to [ForwardedIP], [TrustedHeaderIP], [Proxies.Set] or another function
// with trusted prefixes. Then every process that may open the socket's file can choose its address.
// If a request on the socket has no client in its header, the error is [ErrNoKey].
//
// The value is ::/128, which no peer can have as its address. A request with an empty RemoteAddr is
// not trusted. On some systems RemoteAddr is empty on a unix socket.
var UnixSocket = netip.PrefixFrom(netip.IPv6Unspecified(), 128)

// Proxies is a set of trusted prefixes that the program can replace while it runs, such as the
// prefixes that a CDN publishes. The zero value trusts no peer. A Proxies must not be copied.
type Proxies struct{ trust atomic.Pointer[trust] }

// Set replaces the trusted prefixes. If there are none, or if one is invalid or contains all of
// IPv4 or IPv6, such as 0.0.0.0/0, Set returns an error and keeps the previous prefixes.
func (p *Proxies) Set(trusted ...netip.Prefix) error {
	return p.set("Proxies.Set", trusted)
}

// ForwardedAddr is like the function [ForwardedAddr], but trusts the prefixes of p at the time of
// each request.
func (p *Proxies) ForwardedAddr() func(*http.Request) (netip.Addr, error) {
	return forwarded("Proxies.ForwardedAddr", p)
}

// TrustedHeaderAddr is like the function [TrustedHeaderAddr], but trusts the prefixes of p at the
// time of each request.
func (p *Proxies) TrustedHeaderAddr(name string) func(*http.Request) (netip.Addr, error) {
	return trustedHeader("Proxies.TrustedHeaderAddr", name, p)
}

// mustTrust returns a Proxies with these prefixes, or panics with the error of set. maker is the
// function that the program has called.
func mustTrust(maker string, trusted []netip.Prefix) *Proxies {
	p := new(Proxies)
	if err := p.set(maker, trusted); err != nil {
		panic(err.Error())
	}
	return p
}

// A trust is an immutable set of trusted peers.
type trust struct {
	prefixes []netip.Prefix // of canonical addresses
	unix     bool           // peers on unix sockets are trusted
}

func (p *Proxies) set(maker string, trusted []netip.Prefix) error {
	if len(trusted) == 0 {
		return errors.New("keyfuncs: " + maker + ` needs the prefixes of your proxies, such as netip.MustParsePrefix("10.1.2.0/24"); if there are none use RemoteIP`)
	}
	t := new(trust)
	for i, prefix := range trusted {
		canonical := prefix
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			canonical = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		switch {
		case prefix == UnixSocket:
			t.unix = true
			continue
		case !prefix.IsValid():
			return fmt.Errorf("keyfuncs: %s: prefix %d is not valid; make it with netip.MustParsePrefix", maker, i+1)
		case canonical.Bits() == 0:
			return fmt.Errorf("keyfuncs: %s: prefix %d, %v, trusts every peer, so that a client can choose its address; give the prefixes of your proxies", maker, i+1, prefix)
		case canonical.Addr().Is4In6():
			return fmt.Errorf("keyfuncs: %s: prefix %d, %v, is more than all of IPv4; write IPv4 as IPv4, such as 10.1.2.0/24", maker, i+1, prefix)
		}
		t.prefixes = append(t.prefixes, canonical)
	}
	p.trust.Store(t)
	return nil
}

func (t *trust) contains(addr netip.Addr) bool {
	return slices.ContainsFunc(t.prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
