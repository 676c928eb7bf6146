package line

// The request that a line of a log becomes, and its request line.

import "bytes"

// A Request is one line of a log. Its bytes are valid until the next line is read.
type Request struct {
	Instant
	User, ID     []byte // none: empty
	Method, Path []byte
	Cost         uint32
}

// requestLine reads "GET /posts/1?page=2 HTTP/1.1".
func (r *Request) requestLine(b []byte) bool {
	method, rest, ok := bytes.Cut(b, []byte{' '})
	if !ok {
		return false
	}
	target, protocol, ok := bytes.Cut(rest, []byte{' '})
	return ok && bytes.HasPrefix(protocol, []byte("HTTP/")) && bytes.IndexByte(protocol, ' ') < 0 && r.target(method, target)
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
	for _, c := range target {
		if c <= ' ' || c == 0x7f {
			return false
		}
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
