package keyfuncs

// How the two headers to which proxies append are parsed: X-Forwarded-For, and Forwarded of RFC
// 7239.

import (
	"net/netip"
	"strings"
)

// A list is a header to which proxies append.
type list struct {
	name     string
	bit      uint32 // stands for this header in written
	elements bool   // the entries are elements of Forwarded, and not addresses
	bad      error  // returned if an entry is not an address
}

// A reading is what a list header says. client is the rightmost address that is not trusted, and
// invalid if there is none. left is the text to the left of the client's entry: the rest of its
// line, or the line before.
type reading struct {
	list   *list // nil if the request has no such header
	client netip.Addr
	left   string
	err    error
	junk   bool // an entry is not in a form that a proxy writes
}

// empty reports whether the header names no client: all of its addresses are trusted, or the header
// is missing.
func (r *reading) empty() bool { return r.err == nil && !r.client.IsValid() }

// read reads the list from right to left, past trusted addresses.
func (l *list) read(t *trust, lines []string) reading {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, comma := lines[i], 0; comma >= 0; {
			node, before, ok := l.last(rest)
			hop, valid := parseAddress(node)
			if !valid {
				return reading{list: l, err: l.bad, junk: !ok}
			}
			rest, comma = rest[:max(0, before)], before
			if !t.contains(hop) {
				if comma < 0 && i > 0 {
					rest = lines[i-1]
				}
				return reading{list: l, client: hop, left: rest}
			}
		}
	}
	if len(lines) == 0 {
		return reading{}
	}
	return reading{list: l}
}

// last returns the address in the last entry of a line, and the position of the comma before that
// entry, or -1 if there is no comma. If a proxy would not write such an entry, ok is false and node
// is empty.
func (l *list) last(line string) (node string, comma int, ok bool) {
	if l.elements {
		return lastElement(line)
	}
	comma = strings.LastIndexByte(line, ',')
	return trim(line[comma+1:]), comma, true
}

// lastElement is last for Forwarded, whose elements look like for="[2001:db8::1]:80";proto=https.
// If the element has no for=, or is malformed, ok is false. lastElement starts at the end of the
// line, which a proxy has written. So an open quote in an earlier element, which a client has sent,
// does not matter. Quotes are optional, because many proxies omit quotes that the standard
// requires.
func lastElement(line string) (node string, comma int, ok bool) {
	found := false
	for s := line; ; s = s[:len(s)-1] {
		s = trimRight(s)
		var value, name string
		open := openingQuote(s)
		if open >= 0 {
			value, s = s[open+1:len(s)-1], s[:open]
		} else {
			value, s = lastWord(s)
		}
		if strings.HasSuffix(s, "=") {
			name, s = lastWord(s[:len(s)-1])
			isFor := strings.EqualFold(name, "for")
			switch {
			case name == "" || isFor && found: // a second for in one element
				return "", -1, false
			case isFor:
				if open >= 0 && strings.Contains(value, `\`) {
					value = backslashes.Replace(value)
				}
				node, found = withoutName(value), true
			}
		} else if open >= 0 || value != "" {
			return "", -1, false
		}
		s = trimRight(s)
		switch {
		case s == "":
			return node, -1, found
		case s[len(s)-1] == ',':
			return node, len(s) - 1, found
		case s[len(s)-1] != ';':
			return "", -1, false
		}
	}
}

// lastWord splits s after its last separator.
func lastWord(s string) (word, rest string) {
	i := strings.LastIndexAny(s, `,;=" `+"\t") + 1
	return s[i:], s[:i]
}

// openingQuote returns the position of the opening quote of the quoted string that s ends with, or
// -1 if s ends with something else.
func openingQuote(s string) int {
	if !strings.HasSuffix(s, `"`) || escaped(s[:len(s)-1]) {
		return -1
	}
	i := strings.LastIndexByte(s[:len(s)-1], '"')
	for i >= 0 && escaped(s[:i]) {
		i = strings.LastIndexByte(s[:i], '"')
	}
	return i
}

// escaped reports whether the byte after s is escaped: whether s ends with an odd number of
// backslashes.
func escaped(s string) bool { return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1 }

// backslashes removes the escaping backslashes of a quoted string.
var backslashes = strings.NewReplacer(`\\`, `\`, `\`, ``)

// withoutName removes a port that is a name instead of a number, as in 203.0.113.9:_hidden.
func withoutName(node string) string {
	const characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	host, port, _ := strings.Cut(node, ":_")
	if port == "" || strings.Trim(port, characters) != "" || strings.Contains(host, ":") && !strings.HasSuffix(host, "]") {
		return node
	}
	return host
}
