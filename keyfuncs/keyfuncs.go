// Package keyfuncs says who acts and what they do, from a request.
//
// A rate limit counts per user and per action. Both are read from the request
// by a [Func], and every route names its two on purpose; there is no default:
//
//	user := keyfuncs.Header("X-User-ID") // set by our gateway, which checked it
//
//	mux.Handle("POST /posts/{id}/replies", nethttp.Limit(replies, user, keyfuncs.Action("reply"))(reply))
//	mux.Handle("POST /posts/{id}/likes", nethttp.Limit(likes, user, keyfuncs.Route)(like))
//
// A Func is an ordinary function, so what is not here takes a few lines:
//
//	func tenant(r *http.Request) (string, error) {
//		if s := session(r); s != nil {
//			return s.Tenant, nil
//		}
//		return "", keyfuncs.ErrNoKey
//	}
//
// # Who
//
// A user is whoever the application has authenticated. A key that a client may
// choose is worth nothing: by changing it he has a fresh quota with every
// request, by choosing another's he locks that one out. So take the subject
// from where the check left it, [ContextValue] or a [Header] that the gateway
// overwrites, and an address where there is no subject:
//
//	your server                                        use
//	faces the clients itself                           RemoteIP
//	behind proxies that append to X-Forwarded-For      ForwardedIP(the proxies' prefixes...)
//	behind an edge that sets one header of its own     TrustedHeaderIP(name, the edge's prefixes...)
//
// Users where there are any and addresses for the rest is [First]; it keeps
// the two apart, whatever a user calls himself:
//
//	keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)
//
// # Logins
//
// At a login nobody is authenticated yet, and the name is a claim. A limit on
// the name alone lets anyone lock its owner out. Use two limits, one per name
// and address and one per address alone, and a third on everyone together,
// innermost, so that what the others refuse does not use it up:
//
//	name, login := keyfuncs.BasicAuthUser(), keyfuncs.Action("login")
//
//	h = nethttp.Limit(all, keyfuncs.Everyone, login)(h)
//	h = nethttp.Limit(perName, keyfuncs.Join(name, keyfuncs.RemoteIP), login)(h)
//	h = nethttp.Limit(perAddress, keyfuncs.RemoteIP, login)(h)
//
// # What
//
// An action is a name of your own, [Action], or the route's template, [Route];
// never the path, of which a client can make as many as he likes.
//
// # Errors
//
// A request without a key is [ErrNoKey], one whose key is ambiguous or garbage
// is [ErrBadKey]; the middleware answers both with 400. No Func here returns ""
// without an error, and none returns a key with one. The text of an error names
// what was configured, never what the request held. Configuration that cannot
// work panics where it is written, when the program starts.
package keyfuncs

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"reflect"
	"strconv"
	"strings"
)

// A Func reads a key from a request: who acts, or what they do. It must be safe
// for concurrent use, as all in this package are. Keys are opaque bytes; upper
// and lower case, and the forms of Unicode, are different keys, so if the login
// takes them for one user, so should the Func.
type Func = func(*http.Request) (string, error)

// What a Func of this package fails with, to be tested with [errors.Is].
var (
	// ErrNoKey says that the request does not have the key: the header is
	// missing, the user is not logged in. It is the one error after which
	// First asks its next source.
	ErrNoKey = errors.New("keyfuncs: the request has no key")

	// ErrBadKey says that the request has a key that cannot be used, since it
	// is ambiguous or does not parse.
	ErrBadKey = errors.New("keyfuncs: the request has a bad key")

	// ErrNoRoute is Route's error for a request that has no pattern. It is a
	// mistake in the program, not in the request.
	ErrNoRoute = errors.New("keyfuncs: the request has no route; mount the limit on a mux pattern, inside the mux, not around it; for Gin and Echo there are ginlimit.Route and echolimit.Route")
)

// noKey and badKey wrap once. They are called when a Func is made, not per
// request: refusing a request must not cost more than serving it.
func noKey(why string) error  { return fmt.Errorf("%w: %s", ErrNoKey, why) }
func badKey(why string) error { return fmt.Errorf("%w: %s", ErrBadKey, why) }

// everyone starts with ~, as no user of First's does.
const everyone = "~everyone"

// Everyone is the same key for every request, for a limit on all users
// together. It never fails. The key is "~everyone": where users are not First's
// and could be called that, give the limit a name or an action of its own.
func Everyone(*http.Request) (string, error) { return everyone, nil }

// Action returns a Func that always answers name, such as "reply": what the
// limit counts is then the same wherever it is mounted. It panics if name is
// empty, and never fails.
func Action(name string) Func {
	if name == "" {
		panic(`keyfuncs: Action needs a name, such as "reply"`)
	}
	return func(*http.Request) (string, error) { return name, nil }
}

// Header returns a Func that reads the header of that name, without the spaces
// and tabs around its value.
//
// Whoever can send the header can be anybody: it must come from a gateway that
// has authenticated the user and that overwrites what the client sent.
//
// A missing or empty header is ErrNoKey, more than one line of it ErrBadKey.
// Header panics if name is not a header's name.
func Header(name string) Func {
	name = headerName("Header", name)
	missing := noKey("the header " + name + " is missing or empty")
	several := badKey("there is more than one header " + name)
	return func(r *http.Request) (string, error) {
		lines := r.Header[name]
		if len(lines) > 1 {
			return "", several
		}
		if len(lines) == 0 {
			return "", missing
		}
		// HTTP/1 drops the white space, HTTP/2 does not: one user is one key.
		if v := trim(lines[0]); v != "" {
			return v, nil
		}
		return "", missing
	}
}

// Cookie returns a Func that reads the value of the cookie of that name, such
// as a session's id.
//
// A client can make up any value, and has a fresh quota with each: use it
// where something before has checked the cookie, or beside a limit per address.
//
// A missing or empty cookie, or one that net/http cannot parse, is ErrNoKey;
// two of the name are ErrBadKey. Cookie panics if name is not a cookie's name.
func Cookie(name string) Func {
	if !isToken(name) {
		panic(fmt.Sprintf(`keyfuncs: Cookie(%q): that is not a cookie's name; give it one such as "session"`, name))
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

// BasicAuthUser returns a Func that reads the user name of HTTP basic
// authentication.
//
// Until the password is checked that is only the name that somebody claims, and
// a limit on it alone lets anyone lock the name's owner out. Before the check
// use Join(BasicAuthUser(), RemoteIP) for one limit and RemoteIP alone for
// another, as the package's introduction shows; behind the check it is safe.
//
// A request without basic authentication, or with an empty name, is ErrNoKey.
// Credentials that do not parse, or more than one Authorization header, are
// ErrBadKey.
func BasicAuthUser() Func { return basicAuthUser }

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

// ContextValue returns a Func that reads what an earlier handler has put into
// the request's context under key, as [Text] writes it: the authenticated
// user's id, as a string or an integer.
//
// No value, or an empty string, is ErrNoKey; a value that is neither string nor
// integer is an error that names its type. ContextValue panics if key cannot
// be the key of a context.
func ContextValue(key any) Func {
	if key == nil || !reflect.TypeOf(key).Comparable() {
		panic(fmt.Sprintf("keyfuncs: ContextValue needs the comparable key that the value was stored under, not a %T", key))
	}
	return func(r *http.Request) (string, error) { return Text(r.Context().Value(key)) }
}

var errNoValue = noKey("the value is nil or empty")

// Text turns a stored value into a key: a string as it is, an integer of any
// size in decimal, and types made of these as what they are made of. The number
// 7 and the string "7" are one key; 0 is a key like any other.
//
// nil and "" are ErrNoKey. Any other type is a mistake in the program and an
// error that names the type; it is neither ErrNoKey nor ErrBadKey.
func Text(v any) (string, error) {
	s := ""
	switch v := v.(type) {
	case nil:
	case string:
		s = v
	case int:
		s = strconv.Itoa(v)
	case int64:
		s = strconv.FormatInt(v, 10)
	case uint64:
		s = strconv.FormatUint(v, 10)
	default:
		switch rv := reflect.ValueOf(v); {
		case rv.Kind() == reflect.String:
			s = rv.String()
		case rv.CanInt():
			s = strconv.FormatInt(rv.Int(), 10)
		case rv.CanUint():
			s = strconv.FormatUint(rv.Uint(), 10)
		default:
			return "", fmt.Errorf("keyfuncs: a key cannot be made of a %T; store a string or an integer", v)
		}
	}
	if s == "" {
		return "", errNoValue
	}
	return s, nil
}

// headerName returns name as net/http writes it in its maps.
func headerName(maker, name string) string {
	if !isToken(name) {
		panic(fmt.Sprintf(`keyfuncs: %s(%q): that is not a header's name; give it one such as "X-User-ID"`, maker, name))
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2; a header or
// cookie called anything else would never be found.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// trim drops spaces and tabs, the white space of RFC 9110, and no other.
func trim(s string) string {
	if s != "" && s[0] > ' ' && s[len(s)-1] > ' ' { // as nearly always
		return s
	}
	return strings.Trim(s, " \t")
}
