package line

// Common and Combined Log Format.

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
)

// A combined reads lines such as
//
//	203.0.113.9 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "-" "curl"
//
// with or without the fields after the size. There may be a virtual host in front.
type combined struct {
	user, id  origin
	addresses *addresses

	// Lines of one second follow each other: the last instant is kept.
	text [26]byte
	last Instant
}

// An origin is the number of the field that names a user, from 1 on. The time has one number, and so
// has a text in quotes. A virtual host in front has none.
type origin int

const (
	fromNowhere origin = 0
	fromAddress origin = 1
	fromAuth    origin = 3
	fromStatus  origin = 6 // and from those that follow
)

// originOf is that of a user or an id of Options.
func originOf(user string) origin {
	switch user {
	case UserAddress:
		return fromAddress
	case UserAuth:
		return fromAuth
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(user, userField))
	return origin(n)
}

func (p *combined) parse(line []byte, r *Request) bool {
	// The first " [" that a date follows, since users may have spaces and brackets.
	open := 0
	for {
		i := bytes.Index(line[open:], []byte(" ["))
		if i < 0 || open+i+31 > len(line) {
			return false
		}
		if open += i + 2; line[open+2] == '/' && line[open+26] == ']' && line[open+27] == ' ' && line[open+28] == '"' {
			break
		}
	}
	if !p.instant(line[open:open+26], r) {
		return false
	}
	text := line[open+29:]
	quote := closingQuote(text)
	if quote < 0 || !r.requestLine(text[:quote]) || !statusAndSize(text[quote+1:]) {
		return false
	}
	r.Cost = 1
	return p.who(line[:open-2], text[quote+1:], r)
}

func (p *combined) instant(b []byte, r *Request) bool {
	if string(p.text[:]) != string(b) {
		t, ok := clfInstant(b)
		if !ok {
			return false
		}
		p.last = t
		copy(p.text[:], b)
	}
	r.Instant = p.last
	return true
}

// who reads the user from "address ident authuser", or from what follows the request.
func (p *combined) who(b, tail []byte, r *Request) bool {
	host, rest, ok := bytes.Cut(b, []byte{' '})
	if !ok || len(host) == 0 {
		return false
	}
	second, user, ok := bytes.Cut(rest, []byte{' '})
	if !ok || len(second) == 0 || len(user) == 0 {
		return false
	}
	if len(second) > 1 && !p.addresses.is(host) && p.addresses.is(second) { // vhost_combined
		host = second
		if _, user, ok = bytes.Cut(user, []byte{' '}); !ok || len(user) == 0 {
			return false
		}
	}
	r.User, r.ID = p.from(p.user, host, user, tail), p.from(p.id, host, user, tail)
	return true
}

func (p *combined) from(o origin, host, user, tail []byte) []byte {
	switch {
	case o == fromAddress:
		return p.addresses.canonical(host)
	case o == fromAuth && string(user) != `""`:
		return named(user)
	case o >= fromStatus:
		return named(nth(tail, int(o-fromStatus)))
	}
	return nil
}

// nth is the n-th of the fields of b, from 0 on, without quotes. Each has a space in front.
func nth(b []byte, n int) []byte {
	for ; len(b) > 1; n-- {
		quoted := b[1] == '"'
		end := bytes.IndexByte(b[1:], ' ')
		if quoted {
			if end = closingQuote(b[2:]); end < 0 {
				return nil
			}
			b = b[1:]
		}
		if end < 0 {
			end = len(b) - 1
		}
		if n == 0 {
			return b[1 : 1+end]
		}
		if b = b[1+end:]; quoted {
			b = b[1:]
		}
	}
	return nil
}

// closingQuote is where a quoted text ends. A quote within it follows a backslash.
func closingQuote(b []byte) int {
	for i := 0; ; i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return -1
		}
		i += j
		slashes := 0
		for i-slashes > 0 && b[i-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// statusAndSize is whether b starts with a status and a size: " 200 2326" or " 304 -".
func statusAndSize(b []byte) bool {
	if len(b) < 6 || b[0] != ' ' || b[4] != ' ' {
		return false
	}
	if _, ok := digits(b[1:4]); !ok {
		return false
	}
	size, _, _ := bytes.Cut(b[5:], []byte{' '})
	_, ok := digits(size)
	return ok || string(size) == "-"
}

// addresses turns addresses into users as package keyfuncs does: IPv6 by /64. It has a cache, so
// that few IPv6 addresses are parsed.
type addresses struct {
	known map[string][]byte
}

const (
	knownAddresses = 1 << 14
	longestAddress = 64
)

// canonical is the user of an address, which may have a port. A host name stays as it is, and "-"
// and "" are no user.
func (a *addresses) canonical(b []byte) []byte {
	if n := leadingIPv4(b); n == len(b) || n > 0 && isPort(b[n:]) {
		return b[:n]
	}
	if len(b) == 0 || string(b) == "-" {
		return nil
	}
	if bytes.IndexByte(b, ':') < 0 {
		return b
	}
	user, ok := a.known[string(b)]
	if !ok {
		if len(a.known) >= knownAddresses || a.known == nil {
			a.known = make(map[string][]byte)
		}
		raw := string(b)
		user = []byte(canonical(raw))
		if len(raw) <= longestAddress { // what is longer is no address, but something hostile
			a.known[raw] = user
		}
	}
	return user
}

func canonical(raw string) string {
	addr, err := netip.ParseAddr(raw)
	if err != nil {
		withPort, err := netip.ParseAddrPort(raw)
		if err != nil {
			return raw
		}
		addr = withPort.Addr()
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	site, _ := addr.Prefix(64) // fails for lengths above 128 only
	return site.String()
}

// is reports whether b is an address.
func (a *addresses) is(b []byte) bool {
	if leadingIPv4(b) == len(b) {
		return true
	}
	if bytes.IndexByte(b, ':') < 0 {
		return false
	}
	_, err := netip.ParseAddr(string(b))
	return err == nil
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
