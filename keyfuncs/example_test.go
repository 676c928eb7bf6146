package keyfuncs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/tailcut/tailcut/keyfuncs"
)

// The two keys of a like: who, from a header that the gateway sets, and what,
// from the pattern of the mux.
func Example() {
	user := keyfuncs.Header("X-User-ID")

	mux := http.NewServeMux()
	mux.HandleFunc("POST /posts/{id}/likes", func(w http.ResponseWriter, r *http.Request) {
		who, _ := user(r) // nethttp.Limit does this, and answers errors
		what, _ := keyfuncs.Route(r)
		fmt.Println(who, "|", what)
	})

	r := httptest.NewRequest("POST", "/posts/42/likes", nil)
	r.Header.Set("X-User-ID", "laoqian")
	mux.ServeHTTP(httptest.NewRecorder(), r)
	// Output: laoqian | POST /posts/{id}/likes
}

// The three users of a login's limits: nobody can lock laoqian out from
// elsewhere, no address can try many names, and there is an end to it all.
func Example_login() {
	perName := keyfuncs.Join(keyfuncs.BasicAuthUser(), keyfuncs.RemoteIP)

	r := httptest.NewRequest("POST", "/login", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	r.SetBasicAuth("laoqian", "a guess")

	for _, user := range []keyfuncs.Func{perName, keyfuncs.RemoteIP, keyfuncs.Everyone} {
		key, _ := user(r)
		fmt.Println(key)
	}
	// Output:
	// laoqian:203.0.113.9
	// 203.0.113.9
	// ~everyone
}

// Users where there are any, addresses for the rest.
func ExampleFirst() {
	type userKey struct{}
	who := keyfuncs.First(keyfuncs.ContextValue(userKey{}), keyfuncs.RemoteIP)

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	fmt.Println(who(r))

	r = r.WithContext(context.WithValue(r.Context(), userKey{}, "laoqian"))
	fmt.Println(who(r))
	// Output:
	// ~2:203.0.113.9 <nil>
	// laoqian <nil>
}

// A part with colons is put in brackets, so that no two lists are one key.
func ExampleJoin() {
	who := keyfuncs.Join(keyfuncs.Header("X-User-ID"), keyfuncs.RemoteIP)

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-User-ID", "laoqian")
	for _, r.RemoteAddr = range []string{"203.0.113.9:4711", "[2001:db8:1:2:3:4:5:6]:4711"} {
		fmt.Println(who(r))
	}
	// Output:
	// laoqian:203.0.113.9 <nil>
	// laoqian:[2001:db8:1:2::/64] <nil>
}

// What the client put into the header itself is left of what the proxies added.
func ExampleForwardedIP() {
	who := keyfuncs.ForwardedIP(netip.MustParsePrefix("10.1.2.0/24"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:4711"
	r.Header.Add("X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.1.2.4")
	fmt.Println(who(r))
	// Output: 203.0.113.9 <nil>
}

// The edge overwrites the header; who is not the edge is not believed.
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

// A missing key is an error, never an empty user whom all would share.
func ExampleHeader() {
	_, err := keyfuncs.Header("X-User-ID")(httptest.NewRequest("GET", "/", nil))
	fmt.Println(err)
	fmt.Println(errors.Is(err, keyfuncs.ErrNoKey))
	// Output:
	// keyfuncs: the request has no key: the header X-User-Id is missing or empty
	// true
}

func ExampleText() {
	fmt.Println(keyfuncs.Text(int64(42)))
	_, err := keyfuncs.Text(4.2)
	fmt.Println(err)
	// Output:
	// 42 <nil>
	// keyfuncs: a key cannot be made of a float64; store a string or an integer
}
