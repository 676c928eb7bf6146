package keyfuncs

// Functions that read the user from a header: Header, Cookie, BasicAuthUser.

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// Header returns a function that reads the value of the header with this name. The function removes
// spaces and tabs at both ends of the value.
//
// Any client can send any header. Use Header only behind a gateway that authenticates the user. If
// a client sends this header, the gateway must overwrite or remove it. If you want the client's
// address, use [ForwardedIP] or [TrustedHeaderIP].
//
// If the header is missing or empty, the error is [ErrNoKey]. If the header is sent in two lines or
// its value contains a comma, the error is [ErrBadKey]. A comma is an error because a proxy may
// join two lines with a comma.
//
// Header panics if name cannot be the name of a header. It also panics if name is Host, because
// net/http moves that header to the request's field Host.
func Header(name string) UserOf[*http.Request] {
	name = headerName("Header", name)
	warnAddress(name)
	missing := noKey("the header " + name + " is missing or empty")
	several := badKey("the header " + name + " has more than one value")
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		switch {
		case len(lines) == 0:
			return "", missing
		case len(lines) > 1 || strings.IndexByte(lines[0], ',') >= 0:
			return "", several
		}
		v := trim(lines[0]) // net/http trims the values of HTTP/1, but not those of HTTP/2
		if v == "" {
			return "", missing
		}
		return v, nil
	}
}

// Cookie returns a function that reads the value of the cookie with this name, such as a session
// ID.
//
// A client can send any value, and each new value has a full quota. So use Cookie behind middleware
// that has checked the cookie, or add a limit per address.
//
// If the cookie is missing or empty, or net/http cannot parse it, the error is [ErrNoKey]. If there
// are two cookies with this name, the error is [ErrBadKey]. Cookie panics if name cannot be the
// name of a cookie.
func Cookie(name string) UserOf[*http.Request] {
	if !isToken(name) {
		panic(fmt.Sprintf(`keyfuncs: Cookie(%q): that is not a cookie's name; use one such as "session"`, name))
	}
	missing := noKey("the cookie " + name + " is missing or empty")
	several := badKey("there is more than one cookie " + name)
	return func(r *http.Request) (string, error) {
		cookies := r.CookiesNamed(name)
		if len(cookies) > 1 {
			return "", several
		}
		if len(cookies) == 0 || cookies[0].Value == "" {
			return "", missing
		}
		return cookies[0].Value, nil
	}
}

// BasicAuthUser returns a function that reads the user name of HTTP basic authentication.
//
// Until the password is checked, a client can send any name. A limit on the name alone then lets
// any client lock out the user of that name. So mount the limit behind the password check, or use
// the limits in the section "Logins" of the package's documentation.
//
// If the request has no basic authentication, or the name is empty, the error is [ErrNoKey]. If the
// credentials do not parse, or there are two Authorization headers, the error is [ErrBadKey].
func BasicAuthUser() UserOf[*http.Request] { return basicAuthUser }

var (
	errNoBasicAuth   = noKey("there is no user name of basic authentication")
	errBadBasicAuth  = badKey("the basic authentication does not parse")
	errManyBasicAuth = badKey("there is more than one header Authorization")
)

func basicAuthUser(r *http.Request) (string, error) {
	lines := r.Header["Authorization"]
	if len(lines) > 1 {
		return "", errManyBasicAuth
	}
	user, _, ok := r.BasicAuth()
	if ok && user != "" {
		return user, nil
	}
	if !ok && len(lines) == 1 {
		if scheme, _, _ := strings.Cut(trim(lines[0]), " "); strings.EqualFold(scheme, "Basic") {
			return "", errBadBasicAuth
		}
	}
	return "", errNoBasicAuth
}

// headerName returns name in the form that an http.Header has as its key. It panics if no
// http.Header of a request can have such a key.
func headerName(maker, name string) string {
	if !isToken(name) {
		panic(fmt.Sprintf(`keyfuncs: %s(%q): that is not a header's name; use one such as "X-User-ID"`, maker, name))
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if name == "Host" {
		panic(fmt.Sprintf("keyfuncs: %s(%q): net/http removes this header from the request's headers; write a function that returns r.Host", maker, name))
	}
	return name
}

// isToken reports whether s is a token of [RFC 9110]. The names of headers and cookies must be
// tokens.
//
// [RFC 9110]: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2
func isToken(s string) bool { return (&http.Cookie{Name: s}).Valid() == nil }

// trim removes spaces and tabs at both ends. [RFC 9110] allows no other white space.
//
// [RFC 9110]: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.3
func trim(s string) string {
	for s != "" && blank(s[0]) {
		s = s[1:]
	}
	return trimRight(s)
}

func trimRight(s string) string {
	for s != "" && blank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
