package line

// JSON lines. The scanner reads what encoding/json does, and keeps the values of the wanted fields, without an
// allocation. It also reads what a server writes that fills in a template without escapes: numbers that are
// none, such as - and 0.1, 0.2, and escapes that JSON does not have, such as \x22.

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

type jsonLines struct {
	values
	root   *node
	b      []byte
	i      int
	escape int // where the next backslash is, or the end, if it is not before i
}

func newJSONLines(o *Options, a *addresses) (parser, error) {
	return &jsonLines{values: valuesOf(o, a), root: o.tree()}, nil
}

func (p *jsonLines) parse(line []byte, r *Request) Outcome {
	p.clear()
	p.b, p.i, p.escape = line, 0, -1
	if !p.object(p.root, 0) {
		return Broken
	}
	p.space()
	if rest := line[p.i:]; len(rest) > 1 || len(rest) == 1 && rest[0] != ',' && rest[0] != ']' { // of a file that is one array
		return Broken
	}
	return p.request(r)
}

// maxDepth is how deep objects and arrays may be nested.
const maxDepth = 64

func (p *jsonLines) space() {
	for p.i < len(p.b) && p.b[p.i] <= ' ' && (p.b[p.i] == ' ' || p.b[p.i] == '\t' || p.b[p.i] == '\r' || p.b[p.i] == '\n') {
		p.i++
	}
}

// next passes over space and takes c, if that comes next.
func (p *jsonLines) next(c byte) bool {
	if p.space(); p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// object passes over an object and keeps the values that n looks for. A nil n looks for none.
func (p *jsonLines) object(n *node, depth int) bool {
	if depth > maxDepth || !p.next('{') {
		return false
	}
	if p.next('}') {
		return true
	}
	for {
		p.space()
		key, escaped, ok := p.str()
		if !ok || !p.next(':') {
			return false
		}
		p.space()
		if escaped {
			key = unescape(nil, key)
		}
		child := find(n, key)
		if start := p.i; !p.value(child, depth) || !p.ends() {
			if p.i = start; !p.bare(child) {
				return false
			}
		}
		if p.i++; p.b[p.i-1] == '}' { // else a comma
			return true
		}
	}
}

// ends reports whether a value is followed by what may follow one: the next name, or the end of the object.
func (p *jsonLines) ends() bool {
	p.space()
	if p.i == len(p.b) {
		return false
	}
	return p.b[p.i] == '}' || p.b[p.i] == ',' && p.named(p.i+1)
}

// named reports whether a name comes at i, or behind space.
func (p *jsonLines) named(i int) bool {
	for i < len(p.b) && (p.b[i] == ' ' || p.b[i] == '\t') {
		i++
	}
	return i < len(p.b) && p.b[i] == '"'
}

// bare passes over a value that is none in JSON, to where the next name or the end of the object is.
func (p *jsonLines) bare(n *node) bool {
	if p.i < len(p.b) && (p.b[p.i] == '"' || p.b[p.i] == '{' || p.b[p.i] == '[') {
		return false
	}
	start := p.i
	for ; p.i < len(p.b); p.i++ {
		switch p.b[p.i] {
		case '"', '{', '[':
			return false
		case ',':
			if !p.named(p.i + 1) {
				continue
			}
		case '}':
		default:
			continue
		}
		p.keep(n, value{text: bytes.Trim(p.b[start:p.i], ", \t")})
		return true
	}
	return false
}

func (p *jsonLines) value(n *node, depth int) bool {
	if p.i >= len(p.b) {
		return false
	}
	switch p.b[p.i] {
	case '{':
		return p.object(n, depth+1)
	case '[':
		return p.array(n, depth+1)
	case '"':
		text, escaped, ok := p.str()
		if ok {
			p.keep(n, value{text: text, escaped: escaped, quoted: true})
		}
		return ok
	}
	start := p.i
	if !p.literal() {
		return false
	}
	if text := p.b[start:p.i]; string(text) != "null" {
		p.keep(n, value{text: text})
	}
	return true
}

// array passes over an array, and keeps its first value if that is not nested.
func (p *jsonLines) array(n *node, depth int) bool {
	if depth > maxDepth || !p.next('[') {
		return false
	}
	if p.next(']') {
		return true
	}
	if n != nil && n.below != nil {
		n = nil
	}
	for {
		if p.space(); !p.value(n, depth) {
			return false
		}
		n = nil
		if !p.next(',') {
			return p.next(']')
		}
	}
}

// str passes over a string and returns the bytes between its quotes.
func (p *jsonLines) str() (text []byte, escaped, ok bool) {
	if p.i >= len(p.b) || p.b[p.i] != '"' {
		return nil, false, false
	}
	start := p.i + 1
	for i, quote := start, 0; ; {
		if quote < i {
			n := bytes.IndexByte(p.b[i:], '"')
			if n < 0 {
				return nil, false, false
			}
			quote = i + n
		}
		if p.escape < i {
			p.escape = len(p.b)
			if n := bytes.IndexByte(p.b[i:], '\\'); n >= 0 {
				p.escape = i + n
			}
		}
		if quote < p.escape {
			p.i = quote + 1
			return p.b[start:quote], escaped, true
		}
		n := escape(p.b[p.escape:])
		if n == 0 {
			return nil, false, false
		}
		escaped, i = true, p.escape+n
	}
}

// escape is the length of the escape that b starts with, 0 if it is none. An unknown one stands for its letter.
func escape(b []byte) int {
	n := 2
	switch {
	case len(b) < 2:
		return 0
	case b[1] == 'u':
		n = 6
	case b[1] == 'x': // nginx and Apache
		n = 4
	}
	if len(b) < n {
		return 2
	}
	if n > 2 {
		if _, err := strconv.ParseUint(string(b[2:n]), 16, 32); err != nil {
			return 2
		}
	}
	return n
}

func unescape(to, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return append(to, b...)
		}
		to = append(to, b[:i]...)
		n := escape(b[i:])
		switch c := b[i+1]; {
		case c == 'x' && n == 4:
			x, _ := strconv.ParseUint(string(b[i+2:i+4]), 16, 8)
			to = append(to, byte(x))
		case c == 'u' && n == 6:
			r := codeUnit(b[i:])
			if utf16.IsSurrogate(r) {
				second := rune(-1)
				if rest := b[i+6:]; len(rest) >= 6 && rest[1] == 'u' && escape(rest) == 6 && rest[0] == '\\' {
					second = codeUnit(rest)
				}
				if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
					n += 6
				}
			}
			to = utf8.AppendRune(to, r)
		default:
			if j := strings.IndexByte("bfnrt", c); j >= 0 {
				c = "\b\f\n\r\t"[j]
			}
			to = append(to, c)
		}
		b = b[i+n:]
	}
}

// codeUnit is that of an escape \uXXXX.
func codeUnit(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[2:6]), 16, 32)
	return rune(n)
}

// literal passes over a number, true, false or null. It is not called at the end of the line.
func (p *jsonLines) literal() bool {
	switch rest := p.b[p.i:]; {
	case rest[0] >= 'a':
		for _, word := range [...]string{"true", "false", "null"} {
			if len(rest) >= len(word) && string(rest[:len(word)]) == word {
				p.i += len(word)
				return true
			}
		}
		return false
	case rest[0] == '-':
		p.i++
	}
	switch {
	case p.i < len(p.b) && p.b[p.i] == '0':
		p.i++
	case !p.digits():
		return false
	}
	if p.i < len(p.b) && p.b[p.i] == '.' {
		p.i++
		if !p.digits() {
			return false
		}
	}
	if p.i < len(p.b) && (p.b[p.i] == 'e' || p.b[p.i] == 'E') {
		p.i++
		if p.i < len(p.b) && (p.b[p.i] == '+' || p.b[p.i] == '-') {
			p.i++
		}
		return p.digits()
	}
	return true
}

func (p *jsonLines) digits() bool {
	i, start := p.i, p.i
	for i < len(p.b) && '0' <= p.b[i] && p.b[i] <= '9' {
		i++
	}
	p.i = i
	return i > start
}
