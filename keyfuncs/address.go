package keyfuncs

// Users that are addresses: of the peer, or from a header of a trusted proxy.

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

var (
	errNoPeer  = noKey("the peer has no address")
	errOnUnix  = noKey("the peer is on a unix socket; if it is your proxy, use ForwardedIP or TrustedHeaderIP and trust UnixSocket")
	errBadPeer = badKey("the peer's address does not parse")
	errBadAddr = badKey("the client's address is invalid or unspecified")
)

// RemoteIP returns the address of the peer, from the request's RemoteAddr. It reads no header.
// Behind a proxy that is the proxy's address: use [ForwardedIP] or [TrustedHeaderIP] there.
//
// The key of an IPv4 address is the address, "203.0.113.9", even if it is written as IPv6
// (::ffff:203.0.113.9). The key of an IPv6 address is its first 64 bits, "2001:db8:1:2::/64",
// because one host can use all addresses of a /64. [Subnet] changes these lengths. NAT64 puts all
// IPv4 clients in 64:ff9b::/96: the key of such an address is its IPv4 address ([RFC 6052]). For
// another prefix of NAT64 see the package's example "Nat64".
//
// If RemoteAddr is empty, or if the server listens on a unix socket, the error is [ErrNoKey]. If
// RemoteAddr does not parse, or is unspecified (0.0.0.0 or ::), the error is [ErrBadKey].
//
// [RFC 6052]: https://www.rfc-editor.org/rfc/rfc6052#section-2.1
func RemoteIP(r *http.Request) (string, error) { return remoteIP(r) }

var remoteIP = Subnet{}.Of(RemoteAddr)

// ClientIP is for adapters of frameworks, whose PerIP takes the prefixes of proxies. It returns
// [ForwardedIP] if there are prefixes, and otherwise [RemoteIP]. Its warnings and panics name
// maker, the function that the program has called, such as "nethttp.PerIP".
func ClientIP(maker string, trusted ...netip.Prefix) UserOf[*http.Request] {
	if len(trusted) > 0 {
		return Subnet{}.Of(forwarded(maker, mustTrust(maker, trusted)))
	}
	return Subnet{}.Of(func(r *http.Request) (netip.Addr, error) { return remote(r, maker) })
}

// ForwardedIP returns a function that reads the client's address from X-Forwarded-For or Forwarded
// ([RFC 7239]), behind proxies that each append the address they see. trusted are the addresses of these
// proxies and of nothing else. Do not trust a whole private network that other machines
// are in too. If the prefixes change while the program runs, use [Proxies].
//
// If the peer is not trusted, the peer is the client, whatever the header says. If it is
// trusted, the function reads the header from right to left, past trusted addresses. The first
// address that is not trusted is the client. The function reads no further: the client may have
// invented the rest. If there is no such address, or no header, the peer is the client. The
// keys are like those of [RemoteIP].
//
// An entry is an address, and may have a port: 203.0.113.9, 203.0.113.9:51234, 2001:db8::1,
// [2001:db8::1] or [2001:db8::1]:51234. An element of Forwarded has it after for=, in quotes or not. If an
// entry that it reads is anything else, the error is [ErrBadKey]: an empty entry, an element without for,
// an unspecified address, unknown, or a name that hides the client, such as _hidden. The error is also
// ErrBadKey if the peer's address does not parse. If neither an entry nor the peer has an address, the error
// is [ErrNoKey].
//
// A proxy passes the header that it does not write on from the client. So if a request has both headers,
// and they name different clients, the function reads the one that your proxies write: the one that came
// alone in other requests through them. As long as there was no such request, or if each of the two came
// alone, the error is ErrBadKey. No client gains by adding the other header. If one of the two has trusted
// addresses only, the other one is read.
//
// A peer is trusted by its address as it came: 64:ff9b::10.1.2.3 is not the trusted 10.1.2.3. A peer on
// a unix socket is trusted if [UnixSocket] is in trusted.
//
// ForwardedIP panics if trusted is empty, or if a prefix is invalid or trusts every peer,
// as 0.0.0.0/0 does.
//
// [RFC 7239]: https://www.rfc-editor.org/rfc/rfc7239
func ForwardedIP(trusted ...netip.Prefix) UserOf[*http.Request] {
	return Subnet{}.Of(forwarded("ForwardedIP", mustTrust("ForwardedIP", trusted)))
}

// TrustedHeaderIP returns a function that reads the client's address from one header that the edge
// sets, such as CF-Connecting-IP or X-Real-IP. trusted are the addresses of the edge, which its
// operator publishes. The edge must overwrite this header if a client sends it. Check that yours
// does: some pass it on.
//
// If the peer is not trusted, the peer is the client, whatever the header says. If the peer is
// trusted, the client is the address in the header, or the peer if the header is missing. If the
// header has several lines, the last one counts. The keys are like those of [RemoteIP]. Peers are
// trusted as in [ForwardedIP].
//
// The address may have a port, as in ForwardedIP. The error is [ErrBadKey] if the header is empty,
// a list, an unspecified address or anything else, or if the peer's address does not parse. The
// error is [ErrNoKey] if neither the header nor the peer has an address.
//
// TrustedHeaderIP panics if name is not the name of a header, or is Forwarded, which ForwardedIP
// reads. It also panics if trusted is empty, or if a prefix is invalid or trusts every peer, as
// 0.0.0.0/0 does.
func TrustedHeaderIP(name string, trusted ...netip.Prefix) UserOf[*http.Request] {
	return Subnet{}.Of(trustedHeader("TrustedHeaderIP", name, mustTrust("TrustedHeaderIP", trusted)))
}

// RemoteAddr returns the whole address, where [RemoteIP] returns the key, so that a program can
// look it up in a list of prefixes. The address is never an IPv4 address written as IPv6, and has
// no zone. So write prefixes of IPv4 as IPv4. An address in 64:ff9b::/96 stays as it is: only its
// key is the IPv4 address.
func RemoteAddr(r *http.Request) (netip.Addr, error) { return remote(r, remoteMaker) }

func remote(r *http.Request, maker string) (netip.Addr, error) {
	addr, err := peer(r)
	if err == nil {
		lookAtPeer(r, addr, maker)
	}
	return addr, err
}

// ForwardedAddr is [ForwardedIP] with the whole address, like [RemoteAddr].
func ForwardedAddr(trusted ...netip.Prefix) func(*http.Request) (netip.Addr, error) {
	return forwarded("ForwardedAddr", mustTrust("ForwardedAddr", trusted))
}

// TrustedHeaderAddr is [TrustedHeaderIP] with the whole address, like [RemoteAddr].
func TrustedHeaderAddr(name string, trusted ...netip.Prefix) func(*http.Request) (netip.Addr, error) {
	return trustedHeader("TrustedHeaderAddr", name, mustTrust("TrustedHeaderAddr", trusted))
}

// Subnet says how many bits of an address the key has. All addresses with the same first bits share
// one limit.
type Subnet struct {
	IPv4 int // 1 to 32; 0 is 32: each address is a key
	IPv6 int // 1 to 128; 0 is 64
}

// Of returns a function whose key is the subnet of the address that addr reads:
//
//	user := keyfuncs.Subnet{IPv6: 56}.Of(keyfuncs.ForwardedAddr(proxies...)) // keys such as 2001:db8:1:200::/56
//
// If the address is invalid or unspecified, the error is [ErrBadKey]. Of panics if addr is nil or
// a length is out of bounds.
func (s Subnet) Of(addr func(*http.Request) (netip.Addr, error)) UserOf[*http.Request] {
	s.IPv4, s.IPv6 = cmp.Or(s.IPv4, 32), cmp.Or(s.IPv6, 64)
	switch {
	case addr == nil:
		panic("keyfuncs: Subnet.Of: the function is nil; use one that reads an address, such as RemoteAddr")
	case s.IPv4 < 1 || s.IPv4 > 32:
		panic(fmt.Sprintf("keyfuncs: Subnet: IPv4 is %d bits; use 1 to 32, or 0 for 32", s.IPv4))
	case s.IPv6 < 1 || s.IPv6 > 128:
		panic(fmt.Sprintf("keyfuncs: Subnet: IPv6 is %d bits; use 1 to 128, or 0 for 64", s.IPv6))
	}
	return func(r *http.Request) (string, error) {
		found, err := addr(r)
		if err != nil {
			return "", err
		}
		found, ok := canonical(embedded(found))
		if !ok {
			return "", errBadAddr
		}
		return s.key(found, r.RemoteAddr), nil
	}
}

// key returns the key of a canonical address: its subnet, or the address itself if the subnet has
// all bits. An IPv4 address must not be in the form of IPv6, where the subnet ::/64 would contain
// all of IPv4.
//
// If remote begins with the text of the key, as with IPv4, the key is a part of remote, and no new
// string.
func (s Subnet) key(addr netip.Addr, remote string) string {
	bits := s.IPv6
	if addr.Is4() {
		bits = s.IPv4
	}
	if bits != addr.BitLen() {
		subnet, _ := addr.Prefix(bits) // fails only for a length out of bounds
		return string(subnet.AppendTo(make([]byte, 0, len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128"))))
	}
	if addr.Is4() {
		text := addr.AppendTo(make([]byte, 0, len("255.255.255.255")))
		if n := len(text); n < len(remote) && remote[n] == ':' && remote[:n] == string(text) {
			return remote[:n]
		}
		return string(text)
	}
	return addr.String()
}

// peer returns the address at the other end of the connection.
func peer(r *http.Request) (netip.Addr, error) {
	s := r.RemoteAddr
	switch {
	case s == "":
		return netip.Addr{}, errNoPeer
	case s[0] == '@' || s[0] == '/' || onUnix(r):
		return netip.Addr{}, errOnUnix
	}
	addr, ok := parseAddress(s) // without a port if a middleware has set the address alone
	if !ok {
		return netip.Addr{}, errBadPeer
	}
	return addr, nil
}

// onUnix reports whether the server listens on a unix socket. The name of a peer there is a file of
// its choice, such as 10.0.0.1:1000, which looks like an address.
func onUnix(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && strings.HasPrefix(local.Network(), "unix")
}

// parseAddress reads an address, IPv4 with a port, or IPv6 in brackets with or without a port, and
// nothing else. An IPv6 address without brackets is never split.
func parseAddress(s string) (netip.Addr, bool) {
	// netip.ParseAddrPort would take 12 ns longer, of 80 for RemoteIP.
	if strings.HasPrefix(s, "[") {
		end := strings.LastIndexByte(s, ']')
		if end < 0 || end+1 < len(s) && (s[end+1] != ':' || !isPort(s[end+2:])) {
			return netip.Addr{}, false
		}
		addr, _ := netip.ParseAddr(s[1:end])
		if addr.Is4() {
			return netip.Addr{}, false
		}
		return canonical(addr)
	}
	if host, port, _ := strings.Cut(s, ":"); isPort(port) {
		s = host
	}
	addr, _ := netip.ParseAddr(s)
	return canonical(addr)
}

func isPort(s string) bool {
	n := 0
	for _, c := range []byte(s) {
		if n = 10*n + int(c-'0'); c < '0' || c > '9' || n > 65535 {
			return false
		}
	}
	return s != ""
}

// canonical returns one form of all spellings of an address. It reports false for an address that
// no client has, such as the zero Addr that a parser returns together with an error.
func canonical(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is4() {
		addr = addr.Unmap().WithZone("")
	}
	return addr, addr.IsValid() && !addr.IsUnspecified()
}

// nat64 is the prefix in which NAT64 writes IPv4 addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded is the IPv4 address in one of NAT64, or else addr itself.
func embedded(addr netip.Addr) netip.Addr {
	if addr.Is6() && nat64.Contains(addr.WithZone("")) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}
