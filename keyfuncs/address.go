package keyfuncs

// Users that are addresses: of the peer, or from a header of a trusted proxy.

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

var (
	errNoPeer  = noKey("the peer has no address, as on a unix socket")
	errBadPeer = badKey("the peer's address does not parse")
)

// RemoteIP returns the address of the peer, from the request's RemoteAddr. It reads no
// header. Behind a proxy it is the proxy's address: use [ForwardedIP] or
// [TrustedHeaderIP] there.
//
// An IPv4 address is one key, "203.0.113.9", also if it is written as IPv6 (::ffff:203.0.113.9).
// Of an IPv6 address the first 64 bits are the key, "2001:db8:1:2::/64", since one host can use
// all addresses of a /64. [Subnet] changes these lengths.
//
// If RemoteAddr is empty or that of a unix socket, the error is [ErrNoKey]. If it does not
// parse, or is unspecified (0.0.0.0 or ::), the error is [ErrBadKey].
func RemoteIP(r *http.Request) (string, error) { return addresses.remoteIP(r) }

// ForwardedIP returns a Func that reads the client's address from X-Forwarded-For, behind
// proxies that each append the address they see. trusted are the addresses of these
// proxies and of nothing else. Do not trust a whole private network that other machines
// are in too.
//
// If the peer is not trusted, the peer is the client, whatever the header says. If it is
// trusted, the Func reads the header from right to left, past trusted addresses. The first
// address that is not trusted is the client. The Func reads no further: the client may have
// invented the rest. If there is no such address, or no header, the peer is the client. The
// keys are like those of [RemoteIP].
//
// If an entry that it reads is not an address, the error is [ErrBadKey]: an address with a
// port, an empty entry, an unspecified address. The error is also ErrBadKey if the peer's
// address does not parse. If the peer has no address, the error is [ErrNoKey].
//
// ForwardedIP panics if trusted is empty, or if a prefix is invalid or trusts every peer,
// as 0.0.0.0/0 does.
func ForwardedIP(trusted ...netip.Prefix) Func { return Subnet{}.ForwardedIP(trusted...) }

// TrustedHeaderIP returns a Func that reads the client's address from one header that the
// edge sets, such as CF-Connecting-IP or X-Real-IP. trusted are the addresses of the
// edge; its operator publishes them. The edge must overwrite what a client sends in that
// header. Check that yours does: some let it through.
//
// If the peer is not trusted, the peer is the client, whatever the header says. If it is
// trusted, the client is the address in the header, in its last line if there are several.
// Without the header the peer is the client. The keys are like those of [RemoteIP].
//
// If the header is not one address, the error is [ErrBadKey]: an empty header, a list, an
// address with a port, an unspecified address. The error is also ErrBadKey if the peer's
// address does not parse. If the peer has no address, the error is [ErrNoKey].
//
// TrustedHeaderIP panics if name is not the name of a header, if trusted is empty, or if
// a prefix is invalid or trusts every peer, as 0.0.0.0/0 does.
func TrustedHeaderIP(name string, trusted ...netip.Prefix) Func {
	return Subnet{}.TrustedHeaderIP(name, trusted...)
}

// Subnet is the long form of [RemoteIP], [ForwardedIP] and [TrustedHeaderIP]: it says how
// many bits of an address are the key. All addresses that have these bits in common share
// one limit.
//
//	user := keyfuncs.Subnet{IPv6: 56}.ForwardedIP(proxies...) // keys such as 2001:db8:1:200::/56
//
// Its methods panic if a length is out of bounds.
type Subnet struct {
	IPv4 int // 1 to 32; 0 is 32: each address is a key
	IPv6 int // 1 to 128; 0 is 64
}

// RemoteIP returns [RemoteIP] with these lengths.
func (s Subnet) RemoteIP() Func { return s.checked("RemoteIP").remoteIP }

// ForwardedIP is [ForwardedIP] with these lengths.
func (s Subnet) ForwardedIP(trusted ...netip.Prefix) Func {
	s = s.checked("ForwardedIP")
	proxies := newProxies("ForwardedIP", "X-Forwarded-For", trusted)
	return s.behind(proxies, func(lines []string) (hop netip.Addr, ok bool) {
		for i := len(lines) - 1; i >= 0; i-- {
			for rest, comma := lines[i], 0; comma >= 0; rest = rest[:max(0, comma)] {
				comma = strings.LastIndexByte(rest, ',')
				if hop, ok = parseAddress(trim(rest[comma+1:])); !ok || !proxies.contain(hop) {
					return hop, ok
				}
			}
		}
		return netip.Addr{}, true
	})
}

// TrustedHeaderIP is [TrustedHeaderIP] with these lengths.
func (s Subnet) TrustedHeaderIP(name string, trusted ...netip.Prefix) Func {
	s = s.checked("TrustedHeaderIP")
	proxies := newProxies("TrustedHeaderIP", headerName("TrustedHeaderIP", name), trusted)
	return s.behind(proxies, func(lines []string) (netip.Addr, bool) { return parseAddress(trim(lines[len(lines)-1])) })
}

// behind returns a Func that reads the client's address from the proxies' header. read returns an
// invalid address if no line of it names a client, and false if one does not parse.
func (s Subnet) behind(proxies *proxies, read func(lines []string) (netip.Addr, bool)) Func {
	bad := badKey("the header " + proxies.header + " does not parse")
	return func(r *http.Request) (string, error) {
		addr, err := peer(r)
		if err != nil {
			return "", err
		}
		if !proxies.contain(addr) {
			proxies.untrustedPeer(r.Header)
			return s.key(addr), nil
		}
		proxies.trusted.find()
		if lines := r.Header[proxies.header]; len(lines) > 0 {
			client, ok := read(lines)
			if !ok {
				return "", bad
			}
			if client.IsValid() {
				addr = client
			}
		}
		return s.key(addr), nil
	}
}

// addresses are the default lengths.
var addresses = Subnet{}.checked("RemoteIP")

// checked fills in the defaults.
func (s Subnet) checked(method string) Subnet {
	s.IPv4, s.IPv6 = cmp.Or(s.IPv4, 32), cmp.Or(s.IPv6, 64)
	if s.IPv4 < 1 || s.IPv4 > 32 {
		panic(fmt.Sprintf("keyfuncs: Subnet.%s: IPv4 is %d bits; use 1 to 32, or 0 for 32", method, s.IPv4))
	}
	if s.IPv6 < 1 || s.IPv6 > 128 {
		panic(fmt.Sprintf("keyfuncs: Subnet.%s: IPv6 is %d bits; use 1 to 128, or 0 for 64", method, s.IPv6))
	}
	return s
}

func (s Subnet) remoteIP(r *http.Request) (string, error) {
	addr, err := peer(r)
	if err != nil {
		return "", err
	}
	lookForHeaders(r)
	return s.key(addr), nil
}

// key returns the key of a canonical address: its subnet, or the address itself if the
// length is that of the address. The address is unmapped: else all of IPv4 would be ::/64.
func (s Subnet) key(addr netip.Addr) string {
	bits := s.IPv6
	if addr.Is4() {
		bits = s.IPv4
	}
	if bits == addr.BitLen() {
		return addr.String()
	}
	subnet, _ := addr.Prefix(bits) // fails only for a length out of bounds
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	return string(subnet.AppendTo(buf[:0])) // String allocates twice
}

// peer returns the address at the other end of the connection.
func peer(r *http.Request) (netip.Addr, error) {
	s := r.RemoteAddr
	if s == "" || s[0] == '@' || s[0] == '/' {
		return netip.Addr{}, errNoPeer
	}
	addr, ok := netip.Addr{}, false
	if hasPort(s) { // trying both parsers would allocate an error for the one that fails
		ap, _ := netip.ParseAddrPort(s)
		addr, ok = canonical(ap.Addr())
	} else {
		addr, ok = parseAddress(s)
	}
	if !ok {
		return netip.Addr{}, errBadPeer
	}
	return addr, nil
}

// hasPort reports whether an address has a port: it is in brackets, or has one colon.
func hasPort(s string) bool { return s[0] == '[' || strings.Count(s, ":") == 1 }

// parseAddress reads an address and nothing else.
func parseAddress(s string) (netip.Addr, bool) {
	addr, _ := netip.ParseAddr(s)
	return canonical(addr)
}

// canonical makes all spellings of an address equal. It reports false if the address
// cannot be a client's, as the zero Addr that a parser returns beside an error.
func canonical(addr netip.Addr) (netip.Addr, bool) {
	addr = addr.Unmap().WithZone("")
	return addr, addr.IsValid() && !addr.IsUnspecified()
}
