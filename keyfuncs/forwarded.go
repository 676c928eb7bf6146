package keyfuncs

// The client's address in the headers X-Forwarded-For and Forwarded, and in those of TrustedHeaderIP.

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
)

// A list is a header to which proxies append.
type list struct {
	name string

	elements bool // whether an entry is an element of Forwarded, or else an address

	bad error // if an entry is not an address
}

var (
	xForwardedFor = newList("X-Forwarded-For", false)
	forwardedList = newList("Forwarded", true)
	errTwoClients = badKey("X-Forwarded-For and Forwarded name different clients, and it is not known which of them your proxies write")
)

func newList(name string, elements bool) *list {
	return &list{name, elements, badKey("the header " + name + " does not name a client's address")}
}

// written remembers which of the two headers the proxies write. A header that comes alone and names
// a client was written by a proxy, because a client cannot remove what a proxy has written.
type written struct{ atomic.Uint32 }

const (
	x uint32 = 1 << iota
	f
)

func (w *written) note(list uint32) {
	if w.Load()&list == 0 {
		w.Or(list)
	}
}

func forwarded(maker string, trusted *Proxies) func(*http.Request) (netip.Addr, error) {
	s := &source{proxies: trusted, maker: maker, headers: []string{xForwardedFor.name, forwardedList.name}}
	var w written
	return s.behind(func(t *trust, h http.Header) (netip.Addr, error) {
		l, lines := xForwardedFor, h[xForwardedFor.name]
		one := l.read(t, lines)
		if len(lines) == 0 || w.Load() != x || one.empty() { // or else Forwarded changes nothing
			switch byF := h[forwardedList.name]; {
			case len(byF) > 0 && len(lines) > 0:
				one, l = w.choose(one, forwardedList.read(t, byF))
				if one.err == errTwoClients {
					s.warnTwoClients()
				}
			case len(byF) > 0:
				w.note(f)
				l = forwardedList
				one = l.read(t, byF)
			case len(lines) > 0:
				w.note(x)
			}
		}
		if one.left != "" || s.suspects.any.Load() {
			s.noteLeft(one.client, l, one.left)
		}
		return one.client, one.err
	})
}

// choose returns the one of two readings to use, and its list.
func (w *written) choose(byX, byF reading) (reading, *list) {
	named := w.Load()
	switch {
	case byF.junk && named&f == 0, byX.client == byF.client && byX.err == byF.err, named == x && !byX.empty():
		return byX, xForwardedFor
	case named == f && !byF.empty():
		return byF, forwardedList
	case byF.empty() && byX.err == nil:
		w.note(x)
		return byX, xForwardedFor
	case byX.empty() && byF.err == nil:
		w.note(f)
		return byF, forwardedList
	}
	return reading{err: errTwoClients}, xForwardedFor
}

func trustedHeader(maker, name string, trusted *Proxies) func(*http.Request) (netip.Addr, error) {
	name = headerName(maker, name)
	if name == forwardedList.name {
		panic("keyfuncs: " + maker + `("Forwarded"): that header is a list, which ForwardedIP reads; use ForwardedIP or ForwardedAddr`)
	}
	s := &source{proxies: trusted, maker: maker, headers: []string{name}}
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

var nobody trust // of Proxies before Set

// behind returns a function that reads the client's address behind trusted proxies. read returns an
// invalid address if the headers name no client.
func (s *source) behind(read func(*trust, http.Header) (netip.Addr, error)) func(*http.Request) (netip.Addr, error) {
	return func(r *http.Request) (netip.Addr, error) {
		addr, err := peer(r)
		t := s.proxies.trust.Load()
		if t == nil {
			t = &nobody
		}
		switch {
		case err == errOnUnix && t.unix: // and without a client in the header there is no address
		case err != nil:
			return netip.Addr{}, err
		case !t.contains(addr):
			s.untrustedPeer(addr, r.Header)
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
			s.noteClient(addr, r.RemoteAddr)
		}
		return addr, err
	}
}

// A reading is what a list says: the client, which is invalid if all addresses are trusted, and
// what is left of the client's entry: the lines, or the part of a line.
type reading struct {
	client netip.Addr
	left   string
	err    error
	junk   bool // whether an entry cannot be by a proxy
}

// empty reports whether all addresses are trusted.
func (r *reading) empty() bool { return r.err == nil && !r.client.IsValid() }

// read reads the list from right to left, past trusted addresses.
func (l *list) read(t *trust, lines []string) reading {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, comma := lines[i], 0; comma >= 0; rest = rest[:max(0, comma)] {
			var node string
			var ok bool
			if l.elements {
				if node, comma, ok = lastElement(rest); !ok {
					return reading{err: l.bad, junk: true}
				}
			} else {
				comma = strings.LastIndexByte(rest, ',')
				node = trim(rest[comma+1:])
			}
			hop, ok := parseAddress(node)
			if !ok {
				return reading{err: l.bad}
			}
			if !t.contains(hop) {
				left := rest[:max(0, comma)]
				if comma < 0 && i > 0 {
					left = lines[i-1]
				}
				return reading{client: hop, left: left}
			}
		}
	}
	return reading{}
}

// last reads the last address of a line. It is invalid if there is none.
func (l *list) last(line string) netip.Addr {
	node := trim(line[strings.LastIndexByte(line, ',')+1:])
	if l.elements {
		node, _, _ = lastElement(line)
	}
	addr, _ := parseAddress(node)
	return addr
}

// lastElement reads the last element of a line of Forwarded, such as
// for="[2001:db8::1]:80";proto=https. It returns the node that the element names, and the position
// of the comma before the element, or -1. It reports false if the element names no node. It starts
// at the end, which a proxy has written. So an open quote in an earlier element, which a client has
// sent, does not matter. Values need no quotes, because many proxies omit quotes that the standard
// requires.
func lastElement(line string) (node string, comma int, ok bool) {
	found := false
	for s := line; ; {
		var value string
		var quoted bool
		if s = trimRight(s); strings.HasSuffix(s, `"`) {
			open := openingQuote(s)
			if open < 0 {
				return "", -1, false
			}
			value, s, quoted = s[open+1:len(s)-1], s[:open], true
		} else {
			value, s = lastWord(s)
		}
		if strings.HasSuffix(s, "=") {
			var name string
			name, s = lastWord(s[:len(s)-1])
			isFor := strings.EqualFold(name, "for")
			if name == "" || isFor && found { // twice in one element
				return "", -1, false
			}
			if isFor {
				node, found = withoutName(unescape(value)), true
			}
		} else if quoted || value != "" {
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
		s = s[:len(s)-1]
	}
}

// lastWord cuts what follows the last separator.
func lastWord(s string) (word, rest string) {
	i := strings.LastIndexAny(s, `,;=" `+"\t") + 1
	return s[i:], s[:i]
}

// openingQuote is where the quoted string begins that s ends with, or -1.
func openingQuote(s string) int {
	i := len(s) - 1
	if escaped(s, i) {
		return -1
	}
	for {
		if i = strings.LastIndexByte(s[:i], '"'); i < 0 || !escaped(s, i) {
			return i
		}
	}
}

// escaped reports whether there is an odd number of backslashes before s[i].
func escaped(s string, i int) bool {
	return (i-len(strings.TrimRight(s[:i], `\`)))%2 == 1
}

// unescape resolves the backslashes of a quoted string.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	plain := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		plain = append(plain, s[i])
	}
	return string(plain)
}

// withoutName cuts a port that is a name, as in 203.0.113.9:_hidden.
func withoutName(node string) string {
	host, port, _ := strings.Cut(node, ":_")
	if port == "" || strings.Count(node, ":") > 1 && !strings.HasSuffix(host, "]") {
		return node
	}
	for i := range len(port) {
		if c := port[i]; !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return node
		}
	}
	return host
}
