package keyfuncs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// The two keys of a like: the user from a header that the gateway sets, the action from
// the mux's pattern.
func Example() {
	user := keyfuncs.Header("X-User-ID")

	mux := http.NewServeMux()
	mux.HandleFunc("POST /posts/{id}/likes", func(w http.ResponseWriter, r *http.Request) {
		who, _ := user(r) // nethttp.Limit does this, and answers errors
		what, _ := keyfuncs.Route(r)
		fmt.Println(who, "|", what)
	})

	r := httptest.NewRequest("POST", "/posts/42/likes", nil)
	r.Header.Set("X-User-ID", "alice")
	mux.ServeHTTP(httptest.NewRecorder(), r)
	// Output: alice | POST /posts/{id}/likes
}

// The keys of a login's three limits. Other addresses cannot lock alice out, no address can
// try many names, and the total is bounded.
func Example_login() {
	perName := keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP)

	r := httptest.NewRequest("POST", "/login", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	r.SetBasicAuth("alice", "a guess")

	for _, user := range []keyfuncs.Func{perName, keyfuncs.RemoteIP, keyfuncs.Everyone} {
		key, _ := user(r)
		fmt.Println(key)
	}
	// Output:
	// alice:203.0.113.9
	// 203.0.113.9
	// ~everyone
}

// Users who are logged in are limited by their id, visitors by their address.
func ExampleFirst() {
	type userKey struct{}
	who := keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	fmt.Println(who(r))

	r = r.WithContext(context.WithValue(r.Context(), userKey{}, "alice"))
	fmt.Println(who(r))
	// Output:
	// ~2:203.0.113.9 <nil>
	// alice <nil>
}

// A part with colons is put in brackets, so that different parts never make the same key.
func ExampleJoin() {
	who := keyfuncs.Join(keyfuncs.Header("X-User-ID"), keyfuncs.RemoteIP)

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-User-ID", "alice")
	for _, r.RemoteAddr = range []string{"203.0.113.9:4711", "[2001:db8:1:2:3:4:5:6]:4711"} {
		fmt.Println(who(r))
	}
	// Output:
	// alice:203.0.113.9 <nil>
	// alice:[2001:db8:1:2::/64] <nil>
}

// The proxies append to the header. The part that the client sent is left of that, and is not
// read.
func ExampleForwardedIP() {
	who := keyfuncs.ForwardedIP(netip.MustParsePrefix("10.1.2.0/24"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4711"
	r.Header.Add("X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.1.2.4")
	fmt.Println(who(r))
	// Output: 203.0.113.9 <nil>
}

// The edge overwrites the header. From any other peer the header is ignored.
func ExampleTrustedHeaderIP() {
	who := keyfuncs.TrustedHeaderIP("X-Real-IP", netip.MustParsePrefix("10.1.2.0/24"))

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Real-IP", "203.0.113.9")
	for _, r.RemoteAddr = range []string{"10.1.2.3:4711", "198.51.100.1:4711"} {
		fmt.Println(who(r))
	}
	// Output:
	// 203.0.113.9 <nil>
	// 198.51.100.1 <nil>
}

// A missing key is an error, never an empty user that all clients would share.
func ExampleHeader() {
	_, err := keyfuncs.Header("X-User-ID")(httptest.NewRequest("GET", "/", nil))
	fmt.Println(err)
	fmt.Println(errors.Is(err, keyfuncs.ErrNoKey))
	// Output:
	// keyfuncs: the request has no key: the header X-User-Id is missing or empty
	// true
}

// The error names the key, so that the log says which middleware is missing.
func ExampleContextValue() {
	type userKey struct{}
	who := keyfuncs.ContextValue(userKey{})

	r := httptest.NewRequest("GET", "/", nil)
	fmt.Println(who(r))

	r = r.WithContext(context.WithValue(r.Context(), userKey{}, 42))
	fmt.Println(who(r))
	// Output:
	//  keyfuncs: the request has no key: the context value keyfuncs_test.userKey{} is missing or empty
	// 42 <nil>
}

// An adapter for a framework whose requests have their own values.
func ExampleValue() {
	type request struct{ values map[string]any }
	who := keyfuncs.Value(`the value "user"`, func(r *request) any { return r.values["user"] })

	fmt.Println(who(&request{map[string]any{"user": 7}}))
	fmt.Println(who(&request{}))
	// Output:
	// 7 <nil>
	//  keyfuncs: the request has no key: the value "user" is missing or empty
}

// Sites that are given a /56 are one key, and so are all addresses of an IPv4 /24.
func ExampleSubnet() {
	who := keyfuncs.Subnet{IPv4: 24, IPv6: 56}.Of(keyfuncs.RemoteAddr)

	r := httptest.NewRequest("GET", "/", nil)
	for _, r.RemoteAddr = range []string{"203.0.113.9:4711", "[2001:db8:1:2ab:3:4:5:6]:4711"} {
		fmt.Println(who(r))
	}
	// Output:
	// 203.0.113.0/24 <nil>
	// 2001:db8:1:200::/56 <nil>
}

// The office is not limited, and a network of a deny-list gets 403 before any limit. If the
// address cannot be read, the limit decides.
func ExampleForwardedAddr() {
	client := keyfuncs.ForwardedAddr(netip.MustParsePrefix("10.1.2.0/24")) // your proxies
	from := func(prefixes ...netip.Prefix) func(*http.Request) bool {
		return func(r *http.Request) bool {
			addr, err := client(r)
			return err == nil && slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
		}
	}
	office := from(netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/48"))
	denied := from(netip.MustParsePrefix("203.0.113.0/24"))

	one := core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute)))
	limit := nethttp.Config{Skip: office}.Limit(one, keyfuncs.Subnet{}.Of(client), keyfuncs.Action("search"))
	search := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if denied(r) {
			http.Error(w, "Forbidden", http.StatusForbidden)
			return
		}
		search.ServeHTTP(w, r)
	})

	for _, address := range []string{"198.51.100.7", "198.51.100.7", "203.0.113.9", "192.0.2.1", "192.0.2.1"} {
		r := httptest.NewRequest("GET", "/search", nil)
		r.RemoteAddr = "10.1.2.3:4711"
		r.Header.Set("X-Forwarded-For", address)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Println(address, w.Code)
	}
	// Output:
	// 198.51.100.7 200
	// 198.51.100.7 200
	// 203.0.113.9 403
	// 192.0.2.1 200
	// 192.0.2.1 429
}

func ExampleRemoteIP() {
	r := httptest.NewRequest("GET", "/", nil)
	for _, r.RemoteAddr = range []string{"203.0.113.9:4711", "[::ffff:203.0.113.9]:4711", "[2001:db8:1:2:3:4:5:6]:4711"} {
		fmt.Println(keyfuncs.RemoteIP(r))
	}
	// Output:
	// 203.0.113.9 <nil>
	// 203.0.113.9 <nil>
	// 2001:db8:1:2::/64 <nil>
}

// The session's id, behind middleware that has checked the cookie.
func ExampleCookie() {
	r := httptest.NewRequest("GET", "/", nil)
	r.AddCookie(&http.Cookie{Name: "session", Value: "8f14e45f"})
	fmt.Println(keyfuncs.Cookie("session")(r))
	// Output: 8f14e45f <nil>
}

func ExampleBasicAuthUser() {
	r := httptest.NewRequest("GET", "/", nil)
	r.SetBasicAuth("alice", "secret")
	fmt.Println(keyfuncs.BasicAuthUser()(r))
	// Output: alice <nil>
}

// Several routes that share one limit have one name.
func ExampleAction() {
	fmt.Println(keyfuncs.Action("reply")(httptest.NewRequest("POST", "/posts/42/replies", nil)))
	// Output: reply <nil>
}

// All posts are one action.
func ExampleRoute() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /posts/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Println(keyfuncs.Route(r)) })
	for _, target := range []string{"/posts/1", "/posts/2"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
	}
	// Output:
	// GET /posts/{id} <nil>
	// GET /posts/{id} <nil>
}

// Everyone shares one limit.
func ExampleEveryone() {
	fmt.Println(keyfuncs.Everyone(httptest.NewRequest("GET", "/", nil)))
	// Output: ~everyone <nil>
}

// A router of your own names its routes as the adapters for Gin and Echo do.
func ExampleRouteTemplate() {
	r := httptest.NewRequest("HEAD", "/posts/42", nil)
	fmt.Println(keyfuncs.RouteTemplate(r, "/posts/:id"))
	fmt.Println(keyfuncs.RouteTemplate(r, ""))
	// Output:
	// GET /posts/:id
	// unmatched
}
