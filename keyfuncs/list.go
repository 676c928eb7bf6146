package keyfuncs

// The lists to which proxies append: X-Forwarded-For, and Forwarded of RFC 7239.

import (
	"net/netip"
	"strings"
)

// A list is a header to which proxies append.
type list struct {
	name     string
	bit      uint32 // of the list in written
	elements bool   // whether an entry is an element of Forwarded, or else an address
	bad      error  // if an entry is not an address
}

// A reading is what a list says: the client, which is invalid if all addresses are trusted, and
// what is left of the client's entry: the lines, or the part of a line.
type reading struct {
	list   *list // nil if it did not come
	client netip.Addr
	left   string
	err    error
	junk   bool // whether an entry cannot be by a proxy
}

// empty reports whether all addresses are trusted, or there is none.
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

// last returns the last node of a line, and the position of the comma before its entry, or -1. If no
// proxy writes such an entry, it reports false, and the node is empty.
func (l *list) last(line string) (node string, comma int, ok bool) {
	if l.elements {
		return lastElement(line)
	}
	comma = strings.LastIndexByte(line, ',')
	return trim(line[comma+1:]), comma, true
}

// lastElement is last of Forwarded, such as for="[2001:db8::1]:80";proto=https. It reports false if
// the element names no node. It starts at the end, which a proxy has written. So an open quote in an
// earlier element, which a client has sent, does not matter. Values need no quotes, because many
// proxies omit quotes that the standard requires.
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
			case name == "" || isFor && found: // twice in one element
				return "", -1, false
			case isFor:
				if strings.Contains(value, `\`) {
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

// lastWord cuts what follows the last separator.
func lastWord(s string) (word, rest string) {
	i := strings.LastIndexAny(s, `,;=" `+"\t") + 1
	return s[i:], s[:i]
}

// openingQuote is where the quoted string begins that s ends with, or -1.
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

// escaped reports whether what follows s is escaped: s ends with an odd number of backslashes.
func escaped(s string) bool { return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1 }

// backslashes resolves those of a quoted string.
var backslashes = strings.NewReplacer(`\\`, `\`, `\`, ``)

// withoutName cuts a port that is a name, as in 203.0.113.9:_hidden.
func withoutName(node string) string {
	const characters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	host, port, _ := strings.Cut(node, ":_")
	if port == "" || strings.Trim(port, characters) != "" || strings.Contains(host, ":") && !strings.HasSuffix(host, "]") {
		return node
	}
	return host
}
