package keyfuncs_test

import (
	"fmt"
	"io"
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
	"github.com/tailcut/tailcut/nethttp/gate"
)

// After five wrong passwords within 15 minutes the next attempt locks the account for the client's address:
// for 15 minutes, then for an hour, then for a day. Right passwords count nothing.
func Example_failedLogins() {
	now := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})

	account := func(r *http.Request) (string, error) {
		if name := strings.ToLower(strings.TrimSpace(r.PostFormValue("name"))); name == "alice" {
			return name, nil
		}
		return "", keyfuncs.ErrNoKey
	}
	perAccount := core.Must(core.New(store, core.SlidingWindow(5, 15*time.Minute)))
	perAccount = core.Must(perAccount.With(core.BanPolicy{
		Refusals: 1, Within: time.Minute,
		Bans: []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour},
	}))
	perAddress := core.Must(core.New(store, core.SlidingWindow(20, 15*time.Minute)))
	wrong := func(_ *http.Request, status int) bool { return status == http.StatusUnauthorized }
	limit := nethttp.Config{OnlyFailures: wrong}.LimitAll(
		nethttp.By(perAccount, keyfuncs.Join(account, keyfuncs.RemoteIP), keyfuncs.Action("login")).Optional(),
		nethttp.By(perAddress, keyfuncs.RemoteIP, keyfuncs.Action("login-address")))
	login := http.MaxBytesHandler(limit(checkPassword), 4<<10)

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

// The edges of a CDN are trusted as the CDN publishes them, one prefix a line. A program loads the list when it starts and
// then once a day, say. If the list does not load, or trusts too much, the prefixes before stay.
func ExampleProxies() {
	list := "198.51.100.0/24\n2001:db8:cd::/48\n"
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, list) }))
	defer cdn.Close()

	var edges keyfuncs.Proxies
	client := &http.Client{Timeout: 10 * time.Second}
	load := func() error {
		const most = 1 << 20
		resp, err := client.Get(cdn.URL)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || len(body) > most {
			return fmt.Errorf("the CDN's list: status %d, %d bytes", resp.StatusCode, len(body))
		}
		var prefixes []netip.Prefix
		for _, line := range strings.Fields(string(body)) {
			prefix, err := netip.ParsePrefix(line)
			if err != nil {
				return err
			}
			prefixes = append(prefixes, prefix)
		}
		return edges.Set(prefixes...)
	}

	user := keyfuncs.Subnet{}.Of(edges.ForwardedAddr()) // for nethttp.Limit; or edges.TrustedHeaderAddr("CF-Connecting-IP")
	for _, list = range []string{list, "0.0.0.0/0\n", "<html>", "", list + "203.0.113.0/24\n"} {
		err := load()
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "203.0.113.7:4711" // an edge that the CDN adds later
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		key, _ := user(r)
		fmt.Println(key, err)
	}
	// Output:
	// 203.0.113.7 <nil>
	// 203.0.113.7 keyfuncs: Proxies.Set: prefix 1, 0.0.0.0/0, trusts every peer, so that a client can choose its address; give the prefixes of your proxies
	// 203.0.113.7 netip.ParsePrefix("<html>"): no '/'
	// 203.0.113.7 keyfuncs: Proxies.Set needs the prefixes of your proxies, such as netip.MustParsePrefix("10.1.2.0/24"); if there are none use RemoteIP
	// 192.0.2.1 <nil>
}

// A site that owns an IPv6 /48 has a quota for each /64, and one for each /56 and for the /48 in addition.
func Example_networksOfIPv6() {
	store := memorystore.New(nil)
	limiter := func(max int) *core.Limiter {
		return core.Must(core.New(store, core.SlidingWindow(max, time.Minute)))
	}
	by := func(max, bits int, action string) gate.Subject[*http.Request] {
		return nethttp.By(limiter(max), keyfuncs.Subnet{IPv6: bits}.Of(keyfuncs.RemoteAddr), keyfuncs.Action(action))
	}
	h := nethttp.LimitAll(by(5, 64, "search"), by(20, 56, "search-56"), by(100, 48, "search-48"))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	passed := func(addresses int, format string) (n int) {
		for i := range addresses * 10 {
			r := httptest.NewRequest("GET", "/search", nil)
			r.RemoteAddr = fmt.Sprintf(format, i%addresses)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code == http.StatusOK {
				n++
			}
		}
		return n
	}
	fmt.Println("one /64:", passed(10, "[2001:db8:1:100::%x]:4711"))
	fmt.Println("the other 255 of its /56:", passed(255, "[2001:db8:1:1%02x::1]:4711"))
	fmt.Println("250 other /56 of its /48:", passed(250, "[2001:db8:1:%02x00::1]:4711"))
	fmt.Println("an IPv4 address:", passed(1, "203.0.113.%d:4711"))
	// Output:
	// one /64: 5
	// the other 255 of its /56: 15
	// 250 other /56 of its /48: 80
	// an IPv4 address: 5
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
