package keyfuncs

// The client's address behind trusted proxies: how a header is read, and which of two headers
// counts.

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/notice"
)

var (
	xForwardedFor = newList("X-Forwarded-For", x)
	forwardedList = newList("Forwarded", f)
	errTwoClients = badKey("X-Forwarded-For and Forwarded name different clients, and it is not known which of them your proxies write")
)

func newList(name string, bit uint32) *list {
	return &list{name, bit, bit == f, badKey("the header " + name + " does not name a client's address")}
}

// written remembers which of the two headers the proxies write. If only one of the headers names a
// client, the proxies have written that header, because a client cannot remove what a proxy has
// written.
type written struct{ atomic.Uint32 }

const x, f uint32 = 1, 2

func forwarded(maker string, trusted *Proxies) func(*http.Request) (netip.Addr, error) {
	s := &source{proxies: trusted, maker: maker, headers: []*list{xForwardedFor, forwardedList}}
	var w written
	return s.behind(func(t *trust, h http.Header) (netip.Addr, error) {
		one := xForwardedFor.read(t, h[xForwardedFor.name])
		if w.Load() != x || one.empty() { // otherwise Forwarded would change nothing
			one = w.choose(one, forwardedList.read(t, h[forwardedList.name]))
			if one.err == errTwoClients && s.two.Due() {
				warn("two-clients", "a request through trusted proxies had X-Forwarded-For and Forwarded, which name different clients, and was answered 400: "+maker+" does not know which one your proxies write, as there was no other request with that one alone; have them remove the header that they do not write")
			}
		}
		if one.left != "" || s.suspects.any.Load() && one.client.IsValid() {
			s.noteLeft(one.list, one.client, one.left)
		}
		return one.client, one.err
	})
}

// choose returns the reading of the header to use. If one header names a client, and the other
// header is missing or has trusted addresses only, choose remembers that the proxies write the
// header that names the client.
func (w *written) choose(byX, byF reading) reading {
	named, one := w.Load(), byX
	switch {
	case byX.client == byF.client && byX.err == byF.err, named == x && !byX.empty(), byF.junk && byX.list != nil && named&f == 0:
		return byX
	case named == f && !byF.empty():
		return byF
	case byF.empty():
	case byX.empty():
		one = byF
	default:
		return reading{err: errTwoClients}
	}
	if one.err == nil && named&one.list.bit == 0 {
		w.Or(one.list.bit)
	}
	return one
}

func trustedHeader(maker, name string, trusted *Proxies) func(*http.Request) (netip.Addr, error) {
	name = headerName(maker, name)
	if name == forwardedList.name {
		panic("keyfuncs: " + maker + `("Forwarded"): that header is a list, which ForwardedIP reads; use ForwardedIP or ForwardedAddr`)
	}
	s := &source{proxies: trusted, maker: maker, headers: []*list{{name: name}}}
	bad := badKey("the header " + name + " does not parse")
	return s.behind(func(_ *trust, h http.Header) (netip.Addr, error) {
		lines := h[name]
		if len(lines) == 0 {
			return netip.Addr{}, nil
		}
		client, ok := parseAddress(trim(lines[len(lines)-1]))
		if !ok {
			return netip.Addr{}, bad
		}
		return client, nil
	})
}

// A source reads addresses behind proxies, and warns if they look wrong. maker is the function that
// the program has called. headers are the headers that this function reads.
type source struct {
	proxies   *Proxies
	maker     string
	headers   []*list
	strangers sample
	trusted   notice.Never // requests with a header but without a trusted peer
	untrusted notice.Once  // warning: an untrusted peer has sent a header
	two       notice.Once  // warning: two headers name different clients
	suspects  suspects
	crowd     crowd
}

// behind returns a function that reads the client's address behind trusted proxies. If the peer is
// trusted, the function calls the argument read with the headers. read returns the client's
// address, or an invalid address if the headers name no client.
func (s *source) behind(read func(*trust, http.Header) (netip.Addr, error)) func(*http.Request) (netip.Addr, error) {
	return func(r *http.Request) (netip.Addr, error) {
		addr, err := peer(r)
		t := s.proxies.trust.Load() // nil before Set
		switch {
		case err == errOnUnix && t != nil && t.unix: // the peer has no address, so err stays if the header names no client
		case err != nil:
			return netip.Addr{}, err
		case t == nil || !t.contains(addr):
			if s.strangers.next() {
				s.untrustedPeer(addr, r.Header)
			}
			return addr, nil
		}
		s.trusted.Seen()
		client, bad := read(t, r.Header)
		switch {
		case bad != nil:
			return netip.Addr{}, bad
		case client.IsValid():
			addr, err = client, nil
		}
		if err == nil && !s.crowd.over.Load() {
			s.crowd.note(addr, r.RemoteAddr, s.maker)
		}
		return addr, err
	}
}

// untrustedPeer warns about an untrusted peer if its request has one of the headers.
func (s *source) untrustedPeer(addr netip.Addr, h http.Header) {
	for _, l := range s.headers {
		lines := h[l.name]
		if len(lines) == 0 {
			continue
		}
		if s.untrusted.Due() {
			warn("forwarded-untrusted", "a peer that "+s.maker+" does not trust sent the header "+l.name+", so the limit is on the peer's own address; if the peer is a proxy of yours, give its prefix to "+s.maker)
		}
		if s.trusted.Due(manyMisses) {
			warn("trusted-never-matches", fmt.Sprintf(
				"%d requests had the header %s, and no peer was ever in the prefixes that %s was given; give it the prefixes from which your proxies connect",
				manyMisses, l.name, s.maker))
		}
		s.noteLeft(l, addr, lines[len(lines)-1])
		return
	}
}
