package keyfuncs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/keyfuncs"
	"github.com/tailcut/tailcut/nethttp"
)

// After five wrong passwords within 15 minutes the next attempt locks the name for the client's address:
// for 15 minutes, then for an hour, then for a day. Right passwords count nothing.
func Example_failedLogins() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})

	name := func(r *http.Request) (string, error) {
		if name := strings.ToLower(strings.TrimSpace(r.PostFormValue("name"))); name != "" {
			return name, nil
		}
		return "", keyfuncs.ErrNoKey
	}
	failures := core.Must(core.New(store, core.SlidingWindow(5, 15*time.Minute)))
	failures = core.Must(failures.With(core.BanPolicy{
		Refusals: 1, Within: time.Minute,
		Bans: []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour},
	}))
	wrong := func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }
	login := nethttp.Config{OnlyFailures: wrong}.Limit(failures, keyfuncs.Join(name, keyfuncs.RemoteIP), keyfuncs.Action("login"))(checkPassword)

	for _, try := range []struct {
		password string
		times    int
		later    time.Duration
	}{
		{"secret", 100, 0},
		{"a guess", 4, 0},
		{"secret", 1, 0},
		{"a guess", 1, 0},
		{"secret", 1, 0}, // locked
		{"secret", 1, 15 * time.Minute},
		{"a guess", 6, 0},
	} {
		now = now.Add(try.later)
		codes := map[int]int{}
		retry := ""
		for range try.times {
			w := postForm(login, url.Values{"name": {"alice"}, "password": {try.password}})
			codes[w.Code]++
			retry = w.Header().Get("Retry-After")
		}
		fmt.Printf("%s %s %v, retry after %q\n", now.Format("15:04"), try.password, codes, retry)
	}
	// Output:
	// 09:00 secret map[200:100], retry after ""
	// 09:00 a guess map[401:4], retry after ""
	// 09:00 secret map[200:1], retry after ""
	// 09:00 a guess map[401:1], retry after ""
	// 09:00 secret map[429:1], retry after "900"
	// 09:15 secret map[200:1], retry after ""
	// 09:15 a guess map[401:5 429:1], retry after "3600"
}

var checkPassword = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("password") != "secret" {
		w.WriteHeader(http.StatusUnauthorized)
	}
})

func postForm(h http.Handler, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "/login", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A CDN in front of an nginx on the same host. Both append to X-Forwarded-For. What a client has forged
// is left of its own address, and is not read.
func ExampleForwardedIP_cdn() {
	cdn := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:cd::/48")} // as the CDN publishes them
	nginx := netip.MustParsePrefix("127.0.0.1/32")
	who := keyfuncs.ForwardedIP(append(cdn, nginx)...)

	for _, arrived := range []struct{ how, forwarded string }{
		{"through the CDN", "203.0.113.9, 198.51.100.7"},
		{"with a forged header", "6.6.6.6, 203.0.113.9, 198.51.100.7"},
		{"past the CDN", "203.0.113.66"},
		{"past it, forged", "6.6.6.6, 203.0.113.66"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "127.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", arrived.forwarded)
		user, err := who(r)
		fmt.Println(arrived.how, user, err)
	}
	// Output:
	// through the CDN 203.0.113.9 <nil>
	// with a forged header 203.0.113.9 <nil>
	// past the CDN 203.0.113.66 <nil>
	// past it, forged 203.0.113.66 <nil>
}

// A network whose NAT64 has a prefix of its own: the key of an IPv4 client is its IPv4 address.
func Example_nat64() {
	own := netip.MustParsePrefix("2001:db8:64::/96")
	who := keyfuncs.Subnet{}.Of(func(r *http.Request) (netip.Addr, error) {
		addr, err := keyfuncs.RemoteAddr(r)
		if own.Contains(addr) {
			b := addr.As16()
			addr = netip.AddrFrom4([4]byte(b[12:]))
		}
		return addr, err
	})

	r := httptest.NewRequest("GET", "/", nil)
	for _, r.RemoteAddr = range []string{"[2001:db8:64::203.0.113.9]:4711", "[64:ff9b::203.0.113.9]:4711", "[2001:db8:1:2::7]:4711"} {
		fmt.Println(who(r))
	}
	// Output:
	// 203.0.113.9 <nil>
	// 203.0.113.9 <nil>
	// 2001:db8:1:2::/64 <nil>
}
