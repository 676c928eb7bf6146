package line

// The request that a line of a log becomes, and its request line.

import "bytes"

// A Request is one line of a log. Its bytes are valid until the next line is read.
type Request struct {
	Instant        // of its start, or of its end if its duration is not known
	End      int64 // the instant in the log, by which lines are in order
	User, ID []byte
	Method   []byte
	Path     []byte
	Cost     uint32
	Unitless bool // the line has a duration whose unit is not known
	Named    bool // the user is to be an address, and is none
}

// stamp gives a request that has all but a time the one of its envelope.
func (r *Request) stamp(t Instant) Outcome {
	r.Instant, r.End = t, t.At
	return IsRequest
}

// requestLine reads "GET /posts/1?page=2 HTTP/1.1". The target may have spaces, and a client of HTTP/0.9 sends
// no version.
func (r *Request) requestLine(b []byte) bool {
	method, target, ok := bytes.Cut(b, []byte{' '})
	if !ok {
		return false
	}
	if i := bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target = target[:i]
	} else if i >= 0 || len(target) == 0 || target[0] != '/' && target[0] != '*' && !bytes.Contains(target, []byte("://")) {
		return false
	}
	return r.target(method, target)
}

// target takes the method and the target of a request, if they can be such.
func (r *Request) target(method, target []byte) bool {
	if len(method) == 0 || len(target) == 0 {
		return false
	}
	for _, c := range method {
		if !tokenByte[c] {
			return false
		}
	}
	if string(method) == "PRI" && target[0] == '*' { // how HTTP/2 starts
		return false
	}
	for _, c := range target {
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	if target = bytes.Trim(target, " "); len(target) == 0 {
		return false
	}
	r.Method, r.Path = method, pathOf(target)
	return true
}

// pathOf is the path of a request's target, without the query.
func pathOf(target []byte) []byte {
	if target[0] != '/' {
		if _, rest, ok := bytes.Cut(target, []byte("://")); ok {
			target = bytes.TrimLeftFunc(rest, func(c rune) bool { return c != '/' && c != '?' })
		}
	}
	if i := bytes.IndexByte(target, '?'); i >= 0 {
		target = target[:i]
	}
	if len(target) == 0 {
		return []byte{'/'}
	}
	return target
}

// tokenByte are the bytes of a method: letters, digits and what else [RFC 9110] allows in a
// token.
//
// [RFC 9110]: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2
var tokenByte = func() (t [256]bool) {
	for _, c := range []byte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = true
	}
	return t
}()
