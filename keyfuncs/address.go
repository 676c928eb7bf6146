package keyfuncs

// Functions whose user is an address: the peer's, or one from a header of a trusted proxy.

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

// RemoteIP returns the peer's address, from the request's RemoteAddr. It reads no header. Behind a
// proxy the peer is the proxy, so use [ForwardedIP] or [TrustedHeaderIP] there.
//
// The address becomes a key as follows. To use other lengths, see [Subnet].
//
//   - An IPv4 address is the key itself, such as 203.0.113.9. The IPv6 form ::ffff:203.0.113.9 has
//     the same key.
//   - The key of an IPv6 address is its first 64 bits, such as 2001:db8:1:2::/64, because one host
//     can use all addresses of a /64.
//   - The key of an address in 64:ff9b::/96 is the IPv4 address in it, because NAT64 puts all IPv4
//     clients into that prefix ([RFC 6052]). If your NAT64 has another prefix, see the package's
//     example "Nat64".
//
// If RemoteAddr is empty, or if the server listens on a unix socket, the error is [ErrNoKey]. If
// RemoteAddr does not parse, or is 0.0.0.0 or ::, the error is [ErrBadKey].
//
// [RFC 6052]: https://www.rfc-editor.org/rfc/rfc6052#section-2.1
func RemoteIP(r *http.Request) (string, error) { return remoteIP(r) }

var remoteIP = Subnet{}.Of(RemoteAddr)

// ClientIP is for adapters of frameworks, as the user of their PerIP. It returns [ForwardedIP] if
// there are trusted prefixes, and otherwise [RemoteIP]. maker is the function that the program has
// called, such as "nethttp.PerIP". Warnings and panics name it.
func ClientIP(maker string, trusted ...netip.Prefix) UserOf[*http.Request] {
	if len(trusted) > 0 {
		return Subnet{}.Of(forwarded(maker, mustTrust(maker, trusted)))
	}
	return Subnet{}.Of(func(r *http.Request) (netip.Addr, error) { return remote(r, maker) })
}

// ForwardedIP returns a function that reads the client's address from the header X-Forwarded-For or
// Forwarded ([RFC 7239]). Use it behind proxies that append the address of their peer to one of
// these headers. trusted are the prefixes of your proxies. Do not trust a private network in which
// there are other machines too. If the prefixes change while the program runs, use [Proxies].
//
// The function finds the client as follows. The client's address becomes a key as in [RemoteIP].
//
//   - If the peer is not trusted, the peer is the client. The header is ignored.
//   - If the peer is trusted, the function reads the header from right to left, past trusted
//     addresses. The first address that is not trusted is the client. The function ignores all
//     addresses to the left of that address, because the client may have invented them.
//   - If the peer is trusted, and the header is missing or has trusted addresses only, the peer is
//     the client. If the peer is on a unix socket, it has no address, and the error is [ErrNoKey].
//
// An address may have a port: 203.0.113.9, 203.0.113.9:51234, 2001:db8::1, [2001:db8::1] or
// [2001:db8::1]:51234. In Forwarded the address follows for=, with or without quotes. If the
// function reads an entry that is not such an address, the error is [ErrBadKey]. Examples are an
// empty entry, an element of Forwarded without for=, the addresses 0.0.0.0 and ::, the word
// unknown, and a name that hides the client, such as _hidden. The error is also ErrBadKey if the
// peer's address does not parse. If RemoteAddr is empty, or if the peer is on a unix socket that is
// not trusted, the error is ErrNoKey.
//
// Proxies that write one of the two headers usually pass on the other one as the client sent it. If
// the two headers of a request name different clients, or if one of them cannot be read, the
// function uses the header that your proxies write. It learns this from requests that came through
// your proxies with only one of the two headers: your proxies write that header. If the function
// has not learned this yet, or has seen requests with only the one header and requests with only
// the other, the error is ErrBadKey. There are two exceptions:
//
//   - If one of the headers has trusted addresses only, the function uses the other header.
//   - A Forwarded that is malformed or lacks for= is ignored beside an X-Forwarded-For, unless your
//     proxies are known to write Forwarded.
//
// So a client whose address is not trusted cannot choose its key by adding the other header.
//
// A peer in 64:ff9b::/96 is trusted by its IPv6 address: 64:ff9b::10.1.2.3 is not the trusted
// 10.1.2.3. A peer on a unix socket is trusted if [UnixSocket] is in trusted.
//
// ForwardedIP panics if trusted is empty, or if a prefix is invalid or contains all of IPv4 or
// IPv6, such as 0.0.0.0/0.
//
// [RFC 7239]: https://www.rfc-editor.org/rfc/rfc7239
func ForwardedIP(trusted ...netip.Prefix) UserOf[*http.Request] {
	return Subnet{}.Of(forwarded("ForwardedIP", mustTrust("ForwardedIP", trusted)))
}

// TrustedHeaderIP returns a function that reads the client's address from one header that an edge
// proxy sets, such as CF-Connecting-IP or X-Real-IP. trusted are the prefixes of the edge proxy. If
// a client sends the header, the edge proxy must overwrite it. Check this, because some edge
// proxies pass the client's value on.
//
// The function finds the client as follows. The client's address becomes a key as in [RemoteIP].
//
//   - If the peer is not trusted, the peer is the client. The header is ignored.
//   - If the peer is trusted, the client is the address in the header. If the header has several
//     lines, the last line counts.
//   - If the peer is trusted and the header is missing, the peer is the client.
//
// The rules for which peers are trusted, and for the form of the address, are those of
// [ForwardedIP]. If the header of a trusted peer is empty, a list, 0.0.0.0, :: or anything else
// that is not an address, the error is [ErrBadKey]. The error is also ErrBadKey if the peer's
// address does not parse. If RemoteAddr is empty, or if the peer is on a unix socket and is not
// trusted or sends no such header, the error is [ErrNoKey].
//
// TrustedHeaderIP panics if name cannot be the name of a header, or is Host, or is Forwarded, which
// ForwardedIP reads. It also panics if trusted is empty, or if a prefix is invalid or contains all
// of IPv4 or IPv6, such as 0.0.0.0/0.
func TrustedHeaderIP(name string, trusted ...netip.Prefix) UserOf[*http.Request] {
	return Subnet{}.Of(trustedHeader("TrustedHeaderIP", name, mustTrust("TrustedHeaderIP", trusted)))
}

// RemoteAddr returns the peer's whole address, where [RemoteIP] returns a key. So a program can
// look up the address in a list of prefixes. An IPv4 address is always in its IPv4 form, so the
// prefixes must be IPv4 prefixes too. The zone of an IPv6 address is removed. An address in
// 64:ff9b::/96 stays an IPv6 address, although its key is the IPv4 address in it. The errors are
// those of RemoteIP.
func RemoteAddr(r *http.Request) (netip.Addr, error) { return remote(r, remoteMaker) }

func remote(r *http.Request, maker string) (netip.Addr, error) {
	addr, err := peer(r)
	if err == nil {
		lookAtPeer(r, addr, maker)
	}
	return addr, err
}

// ForwardedAddr is like [ForwardedIP], but its function returns the client's whole address, in the
// form of [RemoteAddr].
func ForwardedAddr(trusted ...netip.Prefix) func(*http.Request) (netip.Addr, error) {
	return forwarded("ForwardedAddr", mustTrust("ForwardedAddr", trusted))
}

// TrustedHeaderAddr is like [TrustedHeaderIP], but its function returns the client's whole address,
// in the form of [RemoteAddr].
func TrustedHeaderAddr(name string, trusted ...netip.Prefix) func(*http.Request) (netip.Addr, error) {
	return trustedHeader("TrustedHeaderAddr", name, mustTrust("TrustedHeaderAddr", trusted))
}

// Subnet says how many bits of an address are in its key. All addresses with the same first bits
// have the same key, and so share one limit.
type Subnet struct {
	IPv4 int // from 1 to 32; 0 means 32, so that each address has a key of its own
	IPv6 int // from 1 to 128; 0 means 64
}

// Of returns a function that calls addr and returns the subnet of the address as the key. For
// example, these keys look like 2001:db8:1:200::/56:
//
//	user := keyfuncs.Subnet{IPv6: 56}.Of(keyfuncs.ForwardedAddr(proxies...))
//
// If addr returns an error, the function returns it. If the address is invalid, 0.0.0.0 or ::, the
// error is [ErrBadKey]. Of panics if addr is nil or a length is out of bounds.
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
// all bits. An IPv4 address must not be in its IPv6 form, because the subnet ::/64 would contain
// all of IPv4.
//
// If the key is an IPv4 address, and remote is this address and a port, the key is a substring of
// remote. This saves an allocation.
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
	addr, ok := parseAddress(s) // some middleware sets RemoteAddr to an address without a port
	if !ok {
		return netip.Addr{}, errBadPeer
	}
	return addr, nil
}

// onUnix reports whether the server listens on a unix socket. A peer there chooses its own name,
// and may choose a name that looks like an address, such as 10.0.0.1:1000.
func onUnix(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && strings.HasPrefix(local.Network(), "unix")
}

// parseAddress reads an IPv4 address with or without a port, an IPv6 address without a port, or an
// IPv6 address in brackets with or without a port. It accepts nothing else. It does not split an
// IPv6 address without brackets into address and port.
func parseAddress(s string) (netip.Addr, bool) {
	// netip.ParseAddrPort would add 12 ns to the 80 ns of RemoteIP.
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

// canonical returns the same Addr for all forms of an address. It reports false for an address that
// no client can have: an unspecified address, or the zero Addr that netip returns with an error.
func canonical(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is4() {
		addr = addr.Unmap().WithZone("")
	}
	return addr, addr.IsValid() && !addr.IsUnspecified()
}

// nat64 is the prefix of the IPv6 addresses in which NAT64 writes IPv4 addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// embedded returns the IPv4 address in a NAT64 address, and any other address as it is.
func embedded(addr netip.Addr) netip.Addr {
	if addr.Is6() && nat64.Contains(addr.WithZone("")) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}
