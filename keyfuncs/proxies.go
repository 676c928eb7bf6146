package keyfuncs

// The trusted proxies, and warnings if the prefixes look wrong.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/notice"
)

// UnixSocket trusts every peer on a unix socket, such as an nginx on the same host. Give it to
// [ForwardedIP], [TrustedHeaderIP] and the functions like them, among the prefixes. Every process
// that may open the socket, by the permissions of its file, can then choose an address. A request
// without the header has no address: the error is [ErrNoKey].
//
// The value is ::/128, which is the address of no peer. A request with an empty RemoteAddr is not
// trusted. On some systems RemoteAddr is empty on a unix socket.
var UnixSocket = netip.PrefixFrom(netip.IPv6Unspecified(), 128)

// Proxies is a set of trusted prefixes that the program can replace while it runs, such as those
// that a CDN publishes. The zero value trusts no peer. Proxies must not be copied.
type Proxies struct{ trust atomic.Pointer[trust] }

// Set replaces the trusted prefixes. If there are none, or if one is invalid or trusts every peer,
// as 0.0.0.0/0 does, Set returns an error, and the old prefixes stay.
func (p *Proxies) Set(trusted ...netip.Prefix) error {
	t, err := newTrust("Proxies.Set", trusted)
	if err == nil {
		p.trust.Store(t)
	}
	return err
}

// ForwardedAddr is the function [ForwardedAddr] with these prefixes.
func (p *Proxies) ForwardedAddr() func(*http.Request) (netip.Addr, error) {
	return forwarded("Proxies.ForwardedAddr", p)
}

// TrustedHeaderAddr is the function [TrustedHeaderAddr] with these prefixes.
func (p *Proxies) TrustedHeaderAddr(name string) func(*http.Request) (netip.Addr, error) {
	return trustedHeader("Proxies.TrustedHeaderAddr", name, p)
}

// mustTrust makes the Proxies of a function that is given its prefixes. It panics if they are wrong.
func mustTrust(maker string, trusted []netip.Prefix) *Proxies {
	t, err := newTrust(maker, trusted)
	if err != nil {
		panic(err.Error())
	}
	p := new(Proxies)
	p.trust.Store(t)
	return p
}

// A trust is who is trusted. It does not change.
type trust struct {
	prefixes []netip.Prefix // of canonical addresses
	unix     bool           // whether unix sockets are trusted
}

func newTrust(maker string, trusted []netip.Prefix) (*trust, error) {
	if len(trusted) == 0 {
		return nil, errors.New("keyfuncs: " + maker + ` needs the prefixes of your proxies, such as netip.MustParsePrefix("10.1.2.0/24"); if there are none use RemoteIP`)
	}
	t := new(trust)
	for i, p := range trusted {
		if p == UnixSocket {
			t.unix = true
			continue
		}
		if !p.IsValid() {
			return nil, fmt.Errorf("keyfuncs: %s: prefix %d is not valid; make it with netip.MustParsePrefix", maker, i+1)
		}
		canonical := p
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			canonical = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		switch {
		case canonical.Bits() == 0:
			return nil, fmt.Errorf("keyfuncs: %s: prefix %d, %v, trusts every peer, so that a client can choose its address; give the prefixes of your proxies", maker, i+1, p)
		case canonical.Addr().Is4In6():
			return nil, fmt.Errorf("keyfuncs: %s: prefix %d, %v, is more than all of IPv4; write IPv4 as IPv4, such as 10.1.2.0/24", maker, i+1, p)
		}
		t.prefixes = append(t.prefixes, canonical)
	}
	return t, nil
}

func (t *trust) contains(addr netip.Addr) bool {
	for i := range t.prefixes {
		if t.prefixes[i].Contains(addr) {
			return true
		}
	}
	return false
}

// A source reads addresses behind proxies, and warns if they look wrong. maker is the function that
// the program has called. headers are the headers that this function reads.
type source struct {
	proxies   *Proxies
	maker     string
	headers   []string
	strangers atomic.Int32 // at how many requests of untrusted peers it has looked, up to manyLooks
	trusted   notice.Never // of a trusted peer, among the requests with a header
	untrusted notice.Once  // whether an untrusted peer was reported
	two       notice.Once  // whether two headers were reported
	suspects  suspects
	crowd     crowd
}

// untrustedPeer notes an untrusted peer, if its request has a header. After many requests it looks at one in 64.
func (s *source) untrustedPeer(addr netip.Addr, h http.Header) {
	if s.strangers.Load() < manyLooks {
		s.strangers.Add(1)
	} else if rand.Uint32()%64 > 0 {
		return
	}
	for _, name := range s.headers {
		lines, there := h[name]
		if !there {
			continue
		}
		if s.untrusted.Due() {
			warn("forwarded-untrusted", fmt.Sprintf(
				"a peer that %s does not trust sent the header %s, so the limit is on the peer's own address; if the peer is a proxy of yours, give its prefix to %[1]s",
				s.maker, name))
		}
		if s.trusted.Due(manyMisses) {
			warn("trusted-never-matches", fmt.Sprintf(
				"%d requests had the header %s, and no peer was ever in the prefixes that %s was given; give it the prefixes from which your proxies connect",
				manyMisses, name, s.maker))
		}
		if len(lines) > 0 {
			l := forwardedList
			if name != l.name {
				l = &list{name: name}
			}
			s.noteLeft(addr, l, lines[len(lines)-1])
		}
		return
	}
}

// warnTwoClients warns once that a request has two headers, and it is not known which one to read.
func (s *source) warnTwoClients() {
	if s.two.Due() {
		warn("two-clients", "a request through trusted proxies had X-Forwarded-For and Forwarded, which name different clients, and was answered 400: "+s.maker+" does not know which one your proxies write, as there was no other request with that one alone; have them remove the header that they do not write")
	}
}
