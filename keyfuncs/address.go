package keyfuncs

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

var (
	errNoPeer  = noKey("the peer has no address, as on a unix socket")
	errBadPeer = badKey("the peer's address does not parse")
	errBadXFF  = badKey("the header X-Forwarded-For does not parse")
)

// RemoteIP is the address of the peer, from the request's RemoteAddr (host and
// port, or an address alone). Headers have no say in it. Behind a proxy it is
// the proxy's; see [ForwardedIP] and [TrustedHeaderIP].
//
// An IPv4 address is a key of its own, "203.0.113.9", also where it is written
// as IPv6 (::ffff:203.0.113.9). Of an IPv6 address the first 64 bits are,
// "2001:db8:1:2::/64": that is the least that a site is given, and one host can
// use all of it.
//
// A RemoteAddr that is empty, or a unix socket's, is ErrNoKey; one that does
// not parse, or is unspecified (0.0.0.0 or ::), is ErrBadKey.
func RemoteIP(r *http.Request) (string, error) {
	addr, err := peer(r)
	if err != nil {
		return "", err
	}
	nobodyTrusts.look(r.Header)
	return addressKey(addr), nil
}

// ForwardedIP returns a Func that reads the client's address from
// X-Forwarded-For behind proxies that each append the address they see. trusted
// are the addresses of those proxies, and of nobody else: do not trust a whole
// private network in which others live.
//
// A peer who is not trusted is the client, whatever his header says. From a
// trusted one the header is read from the right, all lines of it, over trusted
// addresses to the first that is not: that is the client, and what stands left
// of it is his own invention, not looked at. If there is no such address, or no
// header, the client is the peer. Keys look as those of [RemoteIP].
//
// An entry that is not an address, before the client is found, is ErrBadKey: an
// address with a port, an empty entry, an unspecified address. So is a peer's
// address that does not parse; a peer without one is ErrNoKey. ForwardedIP
// panics if trusted is empty or holds an invalid prefix.
func ForwardedIP(trusted ...netip.Prefix) Func {
	proxies := newProxies("ForwardedIP", "X-Forwarded-For", trusted)
	return func(r *http.Request) (string, error) {
		addr, err := peer(r)
		if err != nil {
			return "", err
		}
		if !proxies.contain(addr) {
			proxies.stranger(r.Header)
			return addressKey(addr), nil
		}
		proxies.match()
		lines := r.Header["X-Forwarded-For"]
		for i := len(lines) - 1; i >= 0; i-- {
			for rest, more := lines[i], true; more; {
				entry := rest
				comma := strings.LastIndexByte(rest, ',')
				if more = comma >= 0; more {
					rest, entry = rest[:comma], rest[comma+1:]
				}
				hop, ok := parseAddress(trim(entry))
				if !ok {
					return "", errBadXFF
				}
				if !proxies.contain(hop) {
					return addressKey(hop), nil
				}
			}
		}
		return addressKey(addr), nil
	}
}

// TrustedHeaderIP returns a Func that reads the client's address from one
// header that the edge sets, such as CF-Connecting-IP or X-Real-IP. The edge
// must overwrite what a client sends in it; check that yours does, some pass
// such headers through. trusted are the addresses of the edge; its operator
// publishes them, and changes them.
//
// A peer who is not trusted is the client, whatever his header says. From a
// trusted one the header's address is, of several lines the last's; without the
// header it is the peer's. Keys look as those of [RemoteIP].
//
// A header that is not one address is ErrBadKey: an empty one, a list, an
// address with a port, an unspecified address. So is a peer's address that does
// not parse; a peer without one is ErrNoKey. TrustedHeaderIP panics if name is
// not a header's name, or if trusted is empty or holds an invalid prefix.
func TrustedHeaderIP(name string, trusted ...netip.Prefix) Func {
	name = headerName("TrustedHeaderIP", name)
	proxies := newProxies("TrustedHeaderIP", name, trusted)
	garbage := badKey("the header " + name + " does not parse")
	return func(r *http.Request) (string, error) {
		addr, err := peer(r)
		if err != nil {
			return "", err
		}
		if !proxies.contain(addr) {
			proxies.stranger(r.Header)
			return addressKey(addr), nil
		}
		proxies.match()
		lines := r.Header[name]
		if len(lines) == 0 {
			return addressKey(addr), nil
		}
		client, ok := parseAddress(trim(lines[len(lines)-1]))
		if !ok {
			return "", garbage
		}
		return addressKey(client), nil
	}
}

// peer returns the address at the other end of the connection.
func peer(r *http.Request) (netip.Addr, error) {
	s := r.RemoteAddr
	if s == "" || s[0] == '@' || s[0] == '/' {
		return netip.Addr{}, errNoPeer
	}
	var addr netip.Addr
	ok := false
	// One colon or a bracket: there is a port. netip would find that out too,
	// but allocates an error to say so.
	if s[0] == '[' || strings.Count(s, ":") == 1 {
		ap, err := netip.ParseAddrPort(s)
		addr, ok = canonical(ap.Addr())
		ok = ok && err == nil
	} else {
		addr, ok = parseAddress(s)
	}
	if !ok {
		return netip.Addr{}, errBadPeer
	}
	return addr, nil
}

// parseAddress reads an address and nothing else.
func parseAddress(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return canonical(addr)
}

// canonical brings all ways to write an address to one. It reports false if the
// address can be nobody's.
func canonical(addr netip.Addr) (netip.Addr, bool) {
	addr = addr.Unmap().WithZone("")
	return addr, addr.IsValid() && !addr.IsUnspecified()
}

// addressKey returns the key of a canonical address. Masking comes after the
// unmapping: the other way round all of IPv4 would be in ::/64.
func addressKey(addr netip.Addr) string {
	if addr.Is4() {
		return addr.String()
	}
	site, _ := addr.Prefix(64) // fails for lengths above 128 only
	var buf [len("ffff:ffff:ffff:ffff::/64")]byte
	return string(site.AppendTo(buf[:0]))
}

// proxies are prefixes of canonical addresses.
type proxies []netip.Prefix

func newProxies(maker, header string, trusted []netip.Prefix) *trust {
	if len(trusted) == 0 {
		panic("keyfuncs: " + maker + ` needs the prefixes of your proxies, such as netip.MustParsePrefix("10.1.2.0/24"); if there are none use RemoteIP`)
	}
	ps := make(proxies, 0, len(trusted))
	for i, p := range trusted {
		if !p.IsValid() {
			panic(fmt.Sprintf("keyfuncs: %s: prefix %d is not valid; make it with netip.MustParsePrefix", maker, i+1))
		}
		if p.Addr().Is4In6() {
			if p.Bits() < 96 {
				panic(fmt.Sprintf("keyfuncs: %s: prefix %d, %v, is more than all of IPv4; write IPv4 as IPv4, such as 10.1.2.0/24", maker, i+1, p))
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		ps = append(ps, p)
	}
	return &trust{proxies: ps, maker: maker, header: header}
}

func (ps proxies) contain(addr netip.Addr) bool {
	for _, p := range ps {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
