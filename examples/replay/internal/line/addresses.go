package line

// Addresses of clients, as users.

import (
	"bytes"
	"net/netip"
)

// addresses turns addresses into users as package keyfuncs does: IPv6 by /64. It has a cache, so
// that few IPv6 addresses are parsed.
type addresses struct {
	known map[string]address
	pick  pick  // of those of a line
	seen  *seen // not nil: the line is one of a sample
}

type address struct {
	user []byte
	is   bool // an address
	own  bool // of a private network, or of the machine itself
}

const (
	knownAddresses = 1 << 14
	longestAddress = 64
)

// user is that of the client's address, which may have a port, or be a list of X-Forwarded-For. A host name
// stays as it is, and "-" and "" are no user.
func (a *addresses) user(b []byte) []byte {
	if n := leadingIPv4(b); n > 0 && (n == len(b) || isPort(b[n:])) {
		return b[:n]
	}
	if len(b) == 0 || string(b) == "-" {
		return nil
	}
	if user, ok := a.client(b); ok {
		return user
	}
	if i := bytes.LastIndexByte(b, ':'); i > 0 && isPort(b[i:]) && bytes.IndexByte(b, ':') == i { // NAME:PORT
		return b[:i]
	}
	return b
}

// client is the user of an address or of a list of them.
func (a *addresses) client(b []byte) (user []byte, ok bool) {
	if n := leadingIPv4(b); n > 0 && (n == len(b) || isPort(b[n:])) {
		return b[:n], true
	}
	if len(b) < 2 {
		return nil, false
	}
	if bytes.IndexByte(b, ',') >= 0 {
		user, ok = a.list(b)
		if a.seen != nil && ok {
			a.seen.lists = true
		}
		return user, ok
	}
	one := a.look(b)
	return one.user, one.is
}

// list is the first public address of a list, or else the first one.
func (a *addresses) list(b []byte) (user []byte, ok bool) {
	for member := range bytes.SplitSeq(b, []byte{','}) {
		member = bytes.Trim(member, ` "'`)
		if len(member) == 0 || string(member) == "-" || string(member) == "unknown" {
			continue
		}
		one := a.look(member)
		switch {
		case !one.is:
			return nil, false
		case !one.own:
			return one.user, true
		case user == nil:
			user = one.user
		}
	}
	return user, user != nil
}

func (a *addresses) look(b []byte) address {
	if one, ok := a.known[string(b)]; ok {
		return one
	}
	one := parseAddress(b)
	if len(b) <= longestAddress { // what is longer is no address, but something hostile
		if len(a.known) >= knownAddresses || a.known == nil {
			a.known = make(map[string]address)
		}
		a.known[string(b)] = one
	}
	return one
}

// parseAddress reads an address with or without a port, in brackets or not. HAProxy writes IPv6 with a port and
// without brackets: what is no address as it is may be one with a port.
func parseAddress(b []byte) address {
	if len(b) > 4 && bytes.EqualFold(b[:4], []byte("for=")) { // of the header Forwarded
		b, _, _ = bytes.Cut(b[4:], []byte{';'})
		b = bytes.Trim(b, `"`)
	}
	if len(b) > longestAddress {
		return address{}
	}
	addr, err := netip.ParseAddr(string(b))
	if err != nil && len(b) > 2 && b[0] == '[' && b[len(b)-1] == ']' {
		addr, err = netip.ParseAddr(string(b[1 : len(b)-1]))
	}
	if err != nil {
		withPort, err := netip.ParseAddrPort(string(b))
		if addr = withPort.Addr(); err != nil {
			i := bytes.LastIndexByte(b, ':')
			if i < 0 || !isPort(b[i:]) {
				return address{}
			}
			if addr, err = netip.ParseAddr(string(b[:i])); err != nil {
				return address{}
			}
		}
	}
	addr = addr.Unmap().WithZone("")
	own := addr.IsPrivate() || addr.IsLoopback() || addr.IsLinkLocalUnicast() || addr.IsUnspecified()
	if addr.Is4() {
		return address{[]byte(addr.String()), true, own}
	}
	site, _ := addr.Prefix(64) // fails for lengths above 128 only
	return address{[]byte(site.String()), true, own}
}

// leadingIPv4 is the length of the IPv4 address that b starts with, 0 if there is none.
func leadingIPv4(b []byte) int {
	i := 0
	for part := range 4 {
		if part > 0 {
			if i >= len(b) || b[i] != '.' {
				return 0
			}
			i++
		}
		start, n := i, 0
		for i < len(b) && i-start < 3 && '0' <= b[i] && b[i] <= '9' {
			n = n*10 + int(b[i]-'0')
			i++
		}
		if i == start || n > 255 || i-start > 1 && b[start] == '0' {
			return 0
		}
	}
	return i
}

func isPort(b []byte) bool {
	if len(b) < 2 || len(b) > 6 || b[0] != ':' {
		return false
	}
	_, ok := digits(b[1:])
	return ok
}

// isHost reports whether b is a host name with a dot.
func isHost(b []byte) bool {
	dots := 0
	for i, c := range b {
		switch {
		case c == '.' && i > 0:
			dots++
		case c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z':
		default:
			return false
		}
	}
	return dots > 0
}
