package line

// Common and Combined Log Format, and lines that resemble them: those of HAProxy and ingress-nginx, and
// most that people write by hand.

import (
	"bytes"
	"strconv"
	"strings"
)

// A combined reads lines such as
//
//	203.0.113.9 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.1" 200 2326 "-" "curl"
//
// with or without the fields after the request. What it needs is a time in brackets and a request in quotes
// behind it. Where the client stands is counted from the time backwards, since there may be a virtual
// host, a proxy, or a prefix in front.
type combined struct {
	user, id  origin
	addresses *addresses

	// Lines of one second follow each other: the last instant is kept.
	text [26]byte
	last Instant

	fields [][]byte // those in front of the request
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

func newCombined(o *Options, a *addresses) (parser, error) {
	return &combined{user: originOf(o.User), id: originOf(o.IDs), addresses: a}, nil
}

func (p *combined) parse(line []byte, r *Request) Outcome {
	open, end, outcome := p.bracket(line, r)
	if outcome != IsRequest {
		return outcome
	}
	quote := closingQuote(line[end:])
	if quote < 0 {
		return Unknown
	}
	quote += end
	for o := IsRequest; o == IsRequest && quote-end >= dateLength; { // what is before the last time is a user's name
		var first, behind int
		if first, behind, o = p.date(line[end:quote], r); o == IsRequest {
			open, end = end+first, end+behind
		}
	}
	between, behind := line[end:quote], line[quote+1:]
	tail, outcome := requestOf(behind, r)
	if outcome != IsRequest {
		return outcome
	}
	r.Cost = 1
	if !p.who(bytes.TrimRight(line[:open], " "), between, tail, r) {
		return Unknown
	}
	return IsRequest
}

// dateLength is that of a date in brackets, with the space in front.
const dateLength = len(" [10/Oct/2000:13:55:36 -0700]")

// date finds a date after " [", since users may have spaces and brackets, and where its brackets start and end.
func (p *combined) date(line []byte, r *Request) (start, end int, o Outcome) {
	o = Unknown
	for open := 0; ; {
		i := bytes.Index(line[open:], []byte(" ["))
		if i < 0 || open+i+dateLength > len(line) {
			return 0, 0, o
		}
		if open += i + 2; line[open+2] == '/' && line[open+26] == ']' {
			if text := line[open : open+26]; string(p.text[:]) != string(text) {
				t, ok := clfInstant(text)
				if !ok {
					o = NoTime
					continue
				}
				p.last = t
				copy(p.text[:], text)
			}
			r.Instant, r.End = p.last, p.last.At
			return open - 1, open + 27, IsRequest
		}
	}
}

// bracket finds the time, and where its brackets start and end.
func (p *combined) bracket(line []byte, r *Request) (start, end int, o Outcome) {
	if start, end, o = p.date(line, r); o == IsRequest {
		return start, end, o
	}
	// Any time in brackets.
	for open := 0; ; {
		i := bytes.IndexByte(line[open:], '[')
		if i < 0 {
			return 0, 0, o
		}
		open += i + 1
		if n := bytes.IndexByte(line[open:min(len(line), open+48)], ']'); n >= len("1700000000") {
			if t, ok := anyInstant(line[open : open+n]); ok {
				r.Instant, r.End = t, t.At
				return open - 1, open + n + 1, IsRequest
			}
		}
	}
}

// requestOf reads the request, which is the first of some texts in quotes. It returns what follows it.
func requestOf(b []byte, r *Request) (tail []byte, o Outcome) {
	o = Broken
	for range 4 {
		quote := closingQuote(b)
		if quote < 0 {
			return nil, Broken
		}
		if r.requestLine(b[:quote]) {
			return b[quote+1:], IsRequest
		}
		if o == Broken && noRequest(b[:quote], b[quote+1:]) {
			o = NoRequest
		}
		rest := bytes.TrimLeft(b[quote+1:], " ")
		if len(rest) == 0 || rest[0] != '"' {
			break
		}
		b = rest[1:]
	}
	return nil, o
}

// noRequest reports whether a server writes such a request line, and what follows it, of a client that sent no
// request.
func noRequest(text, tail []byte) bool {
	if len(text) < 2 || text[0] == '\\' || text[0] == '<' || bytes.HasPrefix(text, []byte("PRI ")) {
		return true
	}
	status, _, _ := bytes.Cut(bytes.TrimLeft(tail, " "), []byte{' '})
	return len(status) == 3 && (status[0] == '4' || status[0] == '0' || status[0] == '5')
}

// who finds the client among the fields in front of the request.
func (p *combined) who(head, between, tail []byte, r *Request) bool {
	// ADDRESS - NAME, which most lines have.
	if p.addresses.pick != pickForwarded && p.addresses.seen == nil && len(between) == 1 {
		if n := bytes.IndexByte(head, ' '); n > 0 && len(head) > n+3 && head[n+1] == '-' && head[n+2] == ' ' && bytes.IndexByte(head[n+3:], ' ') < 0 {
			if _, ok := p.addresses.client(head[:n]); ok && bytes.IndexByte(head[:n], ',') < 0 {
				r.User, r.ID = p.from(p.user, head[:n], head[n+3:], tail), p.from(p.id, head[:n], head[n+3:], tail)
				return true
			}
		}
	}
	host, user, is, ok := p.client(head, between, tail)
	if !ok {
		return false
	}
	r.Named = !is && len(host) > 0 && p.user == fromAddress
	r.User, r.ID = p.from(p.user, host, user, tail), p.from(p.id, host, user, tail)
	return true
}

// client takes the fields apart. It reports whether the client is an address, and whether there are fields.
func (p *combined) client(head, between, tail []byte) (host, user []byte, is, ok bool) {
	if rest, _ := unwrap(head, 0); len(rest) > 0 {
		head = rest
	}
	p.fields = split(p.fields[:0], head)
	before := len(p.fields)
	p.fields = split(p.fields, between)
	if len(p.fields) == 0 {
		return nil, nil, false, false
	}
	var found [2][]byte // addresses, or else host names
	at, n := 0, 0
	for i, f := range p.fields {
		if one, ok := p.address(f, i == 0); ok && n < len(found) {
			found[n] = one
			if n == 0 || p.addresses.pick == pickSecond {
				at = i
			}
			n++
		}
	}
	is = n > 0
	for i, f := range p.fields[:before] {
		if !is && n < len(found) && isHost(f) {
			found[n] = f
			if n == 0 || p.addresses.pick == pickSecond {
				at = i
			}
			n++
		}
	}
	switch {
	case n > 1 && p.addresses.pick == pickSecond:
		host = found[1]
	case n > 0:
		host = found[0]
	default:
		at = max(0, before-3)
		if before > 3 && string(p.fields[1]) == "-" {
			at = 0 // a name with spaces is last
		}
		host = p.fields[at]
	}
	if p.addresses.seen != nil || p.addresses.pick == pickForwarded {
		other := p.forwarded(tail)
		if p.addresses.pick == pickForwarded && len(other) > 0 {
			host, is = other, true
		}
		if p.addresses.seen != nil && n > 0 {
			p.addresses.seen.add(pickFirst, found[0])
			p.addresses.seen.add(pickSecond, found[1])
			p.addresses.seen.add(pickForwarded, other)
		}
	}
	return host, p.name(p.fields[min(at+1, before):before]), is, true
}

// name is the user's, of the fields between the client and the time: the identity, and the name, which may
// have spaces.
func (p *combined) name(fields [][]byte) []byte {
	switch n := len(fields); {
	case n == 0:
		return nil
	case n > 2 && string(fields[0]) == "-" && len(fields[1]) > 0 && fields[1][0] != '[':
		first, last := fields[1], fields[n-1]
		return first[: cap(first)-cap(last)+len(last) : cap(first)-cap(last)+len(last)]
	default:
		return fields[n-1]
	}
}

// address is the user of a field that is an address, or a list of them, whatever encloses it. The first field
// may have the name of a file in front, as grep writes it.
func (p *combined) address(f []byte, first bool) (user []byte, ok bool) {
	if len(f) > 2 && (f[0] == '[' || f[0] == '"' || f[0] == '(') && (f[len(f)-1] == ']' || f[len(f)-1] == '"' || f[len(f)-1] == ')') {
		f = f[1 : len(f)-1]
	}
	if user, ok = p.addresses.client(f); ok || !first {
		return user, ok
	}
	for range mostColons {
		_, f, _ = bytes.Cut(f, []byte{':'})
		if len(f) <= 6 {
			break
		}
		if user, ok = p.addresses.client(f); ok {
			return user, true
		}
	}
	return nil, false
}

// mostColons bounds those in front of an address: of a path, of a time in a file's name, and the line's number.
// Otherwise a long line of colons would take minutes.
const mostColons = 8

// forwarded is the client of the first address behind the user agent.
func (p *combined) forwarded(tail []byte) []byte {
	for n := 4; n < 16; n++ {
		f := nth(tail, n)
		if len(f) == 0 {
			return nil
		}
		if user, ok := p.addresses.client(f); ok {
			return user
		}
	}
	return nil
}

// split cuts fields at spaces, but for those in quotes and in lists of addresses.
func split(to [][]byte, b []byte) [][]byte {
	for {
		for len(b) > 0 && b[0] == ' ' {
			b = b[1:]
		}
		if len(b) == 0 {
			return to
		}
		end := 0
		if b[0] == '"' {
			end = 1 + max(0, closingQuote(b[1:]))
		}
		for {
			i := bytes.IndexByte(b[end:], ' ')
			if i < 0 {
				end = len(b)
				break
			}
			if end += i; end == 0 || b[end-1] != ',' {
				break
			}
			for end < len(b) && b[end] == ' ' {
				end++
			}
		}
		to = append(to, b[:end])
		b = b[end:]
	}
}

func (p *combined) from(o origin, host, user, tail []byte) []byte {
	switch {
	case o == fromAddress:
		return p.addresses.user(host)
	case o == fromAuth && string(user) != `""`:
		return named(user)
	case o >= fromStatus:
		f := nth(tail, int(o-fromStatus))
		if client, ok := p.addresses.client(f); ok {
			return client
		}
		return named(f)
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
