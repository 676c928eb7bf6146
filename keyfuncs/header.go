package keyfuncs

// Users that a header names: Header, Cookie, BasicAuthUser.

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// Header returns a function that reads the header of that name, without the spaces and tabs
// around its value.
//
// Any client can send any header. Use Header only behind a gateway that authenticates
// the user, and overwrites or removes this header if a client sends it. For a client's address use
// [ForwardedIP] or [TrustedHeaderIP].
//
// If the header is missing or empty, the error is [ErrNoKey]. If it has more than one value,
// the error is [ErrBadKey]: two lines, or a comma, since a proxy may join two lines into one.
//
// Header panics if name is not the name of a header, or is Host, which net/http keeps in
// the request's Host field.
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
		v := trim(lines[0]) // HTTP/1 servers drop the white space, HTTP/2 servers do not
		if v == "" {
			return "", missing
		}
		return v, nil
	}
}

// Cookie returns a function that reads the value of the cookie of that name, such as a
// session's id.
//
// A client can send any value, and gets a fresh quota with each. Use Cookie behind
// middleware that has checked the cookie, or add a limit per address.
//
// If the cookie is missing or empty, or net/http cannot parse it, the error is [ErrNoKey].
// If there are two cookies of the name, it is [ErrBadKey]. Cookie panics if name is not the
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
// Before the password is checked the name is only a claim. A limit on the name alone then
// lets any client lock its owner out. Use BasicAuthUser behind the check, or with the limits
// that the package's section Logins shows.
//
// If there is no basic authentication, or the name is empty, the error is [ErrNoKey]. If the
// credentials do not parse, or there is a second Authorization header, it is [ErrBadKey].
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

// headerName returns name as the key of an http.Header. It panics if no request can have that
// key.
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

// isToken reports whether s is a token of [RFC 9110], as names of headers and cookies are.
//
// [RFC 9110]: https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2
func isToken(s string) bool { return (&http.Cookie{Name: s}).Valid() == nil }

// trim drops spaces and tabs, the only white space of [RFC 9110].
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
