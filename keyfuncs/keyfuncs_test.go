package keyfuncs_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/keyfuncs"
)

// get is a request from 203.0.113.9 with the headers given as name, value.
func get(headers ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// check holds a function's answer to the one wanted, an error's or a key.
func check(t *testing.T, key string, err error, want string, wantErr error) {
	t.Helper()
	if key != want || !errors.Is(err, wantErr) {
		t.Fatalf("got %q, %v; want %q, %v", key, err, want, wantErr)
	}
	if wantErr == nil && key == "" {
		t.Fatal("an empty key without an error")
	}
}

func TestFuncs(t *testing.T) {
	type userKey struct{}
	type userID string
	with := func(v any) *http.Request {
		return get().WithContext(context.WithValue(context.Background(), userKey{}, v))
	}
	auth := func(user string) *http.Request {
		r := get()
		r.SetBasicAuth(user, "secret")
		return r
	}
	header := keyfuncs.Header("x-user-id")
	cookie := keyfuncs.Cookie("sid")
	basic := keyfuncs.BasicAuthUser()
	value := keyfuncs.ContextValue(userKey{})
	noKey, badKey := keyfuncs.ErrNoKey, keyfuncs.ErrBadKey

	for _, tt := range []struct {
		name string
		f    keyfuncs.Func
		r    *http.Request
		want string
		err  error
	}{
		{"everyone_is_one_key", keyfuncs.Everyone, get(), "~everyone", nil},
		{"an_action_is_its_name", keyfuncs.Action("reply"), get(), "reply", nil},
		{"an_action_is_not_moved_by_an_override_header", keyfuncs.Action("reply"), get("X-HTTP-Method-Override", "GET"), "reply", nil},

		{"a_header_is_found_in_any_case", header, get("X-USER-ID", "alice"), "alice", nil},
		{"a_header_is_opaque_bytes", header, get("X-User-ID", "a:{b}\x01\xff; c"), "a:{b}\x01\xff; c", nil},
		{"white_space_around_a_header_is_not_part_of_it", header, get("X-User-ID", " \talice\t "), "alice", nil},
		{"white_space_inside_a_header_is", header, get("X-User-ID", "lao  qian"), "lao  qian", nil},
		{"no_header_is_no_key", header, get(), "", noKey},
		{"an_empty_header_is_no_key", header, get("X-User-ID", ""), "", noKey},
		{"a_blank_header_is_no_key", header, get("X-User-ID", " \t "), "", noKey},
		{"two_headers_are_a_bad_key", header, get("X-User-ID", "a", "X-User-ID", "b"), "", badKey},
		{"two_equal_headers_are_a_bad_key", header, get("X-User-ID", "a", "X-User-ID", "a"), "", badKey},
		{"an_empty_second_header_is_a_bad_key", header, get("X-User-ID", "a", "X-User-ID", ""), "", badKey},
		{"two_values_on_a_line_are_a_bad_key", header, get("X-User-ID", "evil, alice"), "", badKey},
		{"an_empty_second_value_is_a_bad_key", header, get("X-User-ID", "alice,"), "", badKey},
		{"an_underscore_is_not_a_hyphen", header, get("X_User_ID", "a"), "", noKey},

		{"a_cookie_is_its_value", cookie, get("Cookie", "a=b; sid=x1; c=d"), "x1", nil},
		{"a_quoted_cookie_is_its_value", cookie, get("Cookie", `sid="x1"`), "x1", nil},
		{"a_cookie's_name_has_a_case", cookie, get("Cookie", "SID=x1"), "", noKey},
		{"no_cookie_is_no_key", cookie, get(), "", noKey},
		{"an_empty_cookie_is_no_key", cookie, get("Cookie", "sid="), "", noKey},
		{"two_cookies_are_a_bad_key", cookie, get("Cookie", "sid=a; sid=b"), "", badKey},
		{"two_cookies_on_two_lines_are_a_bad_key", cookie, get("Cookie", "sid=a", "Cookie", "sid=b"), "", badKey},
		{"an_empty_second_cookie_is_a_bad_key", cookie, get("Cookie", "sid=a; sid="), "", badKey},

		{"a_basic_auth_user_is_the_name", basic, auth("alice"), "alice", nil},
		{"no_authorization_is_no_key", basic, get(), "", noKey},
		{"another_scheme_is_no_key", basic, get("Authorization", "Bearer abc"), "", noKey},
		{"an_empty_user_is_no_key", basic, auth(""), "", noKey},
		{"broken_base64_is_a_bad_key", basic, get("Authorization", "Basic !!!"), "", badKey},
		{"basic_without_credentials_is_a_bad_key", basic, get("Authorization", "basic"), "", badKey},
		{"a_name_without_a_colon_is_a_bad_key", basic, get("Authorization", "Basic bGFvcWlhbg=="), "", badKey},
		{"two_authorizations_are_a_bad_key", basic, get("Authorization", "Basic YTpi", "Authorization", "Basic Yzpk"), "", badKey},

		{"a_context_value_is_its_text", value, with("alice"), "alice", nil},
		{"a_context_value_may_be_a_number", value, with(42), "42", nil},
		{"a_context_value_may_be_of_a_named_type", value, with(userID("alice")), "alice", nil},
		{"no_context_value_is_no_key", value, get(), "", noKey},
		{"an_empty_context_value_is_no_key", value, with(userID("")), "", noKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := tt.f(tt.r)
			check(t, key, err, tt.want, tt.err)
		})
	}
}

// "A string is the key itself."
func TestValue(t *testing.T) {
	type (
		name  string
		id    int32
		short uint8
	)
	f := keyfuncs.Value("the value of a test", func(v any) any { return v })
	for _, tt := range []struct {
		v    any
		want string
	}{
		{"alice", "alice"},
		{name("alice"), "alice"},
		{"\x00\xff", "\x00\xff"},
		{0, "0"},
		{-7, "-7"},
		{int8(math.MinInt8), "-128"},
		{int16(math.MinInt16), "-32768"},
		{int32(math.MinInt32), "-2147483648"},
		{int64(math.MinInt64), "-9223372036854775808"},
		{uint(7), "7"},
		{uint8(math.MaxUint8), "255"},
		{uint16(math.MaxUint16), "65535"},
		{uint32(math.MaxUint32), "4294967295"},
		{uint64(math.MaxUint64), "18446744073709551615"},
		{uintptr(7), "7"},
		{id(-7), "-7"},
		{short(7), "7"},
		{time.Second, "1000000000"},
	} {
		if got, err := f(tt.v); got != tt.want || err != nil {
			t.Errorf("%T %v is %q, %v; want %q", tt.v, tt.v, got, err, tt.want)
		}
	}
	for _, v := range []any{nil, "", name("")} {
		got, err := f(v)
		if got != "" || !errors.Is(err, keyfuncs.ErrNoKey) || !strings.Contains(err.Error(), "the value of a test is missing") {
			t.Errorf("%T is %q, %v; want ErrNoKey", v, got, err)
		}
	}
	secret := "s3cret"
	for _, v := range []any{true, 1.5, []byte(secret), &secret, struct{ Name string }{secret}, errors.New(secret), netip.Addr{}, (*int)(nil)} {
		got, err := f(v)
		if got != "" || err == nil || errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
			t.Errorf("%T is %q, %v; want an error that is neither sentinel", v, got, err)
			continue
		}
		if want := fmt.Sprintf("the value of a test is a %T; store a string or an integer", v); !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%T: %q must name the type and not the value", v, err)
		}
	}
}

func TestContextValueNamesItsKey(t *testing.T) {
	type (
		userKey struct{}
		named   struct{ Name string }
		number  int
		word    string
	)
	for want, key := range map[string]any{
		`the context value keyfuncs_test.userKey{} is`:           userKey{},
		`the context value keyfuncs_test.named{Name:"user"} is`:  named{"user"},
		`the context value &keyfuncs_test.named{Name:"user"} is`: &named{"user"},
		`the context value keyfuncs_test.number(7) is`:           number(7),
		`the context value keyfuncs_test.word("user") is`:        word("user"),
		`the context value "user" is`:                            "user",
		`the context value 7 is`:                                 7,
	} {
		f := keyfuncs.ContextValue(key)
		if _, err := f(get()); !errors.Is(err, keyfuncs.ErrNoKey) || !strings.Contains(err.Error(), want+" missing") {
			t.Errorf("%v, want %q", err, want)
		}
		r := get()
		_, err := f(r.WithContext(context.WithValue(r.Context(), key, 4.2)))
		if err == nil || !strings.Contains(err.Error(), want+" a float64") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Errors are shown and logged: they must not carry what a client sent.
func TestErrorsHoldNoUserData(t *testing.T) {
	const evil = "EVIL"
	trusted := netip.MustParsePrefix("203.0.113.0/24")
	far := get()
	far.RemoteAddr = evil + ":1"
	for name, err := range map[string]error{
		"header":    second(keyfuncs.Header("X-User-ID")(get("X-User-ID", evil, "X-User-ID", evil))),
		"cookie":    second(keyfuncs.Cookie("sid")(get("Cookie", "sid=EVIL; sid=EVIL"))),
		"basic":     second(keyfuncs.BasicAuthUser()(get("Authorization", "Basic EVIL!"))),
		"peer":      second(keyfuncs.RemoteIP(far)),
		"forwarded": second(keyfuncs.ForwardedIP(trusted)(get("X-Forwarded-For", evil))),
		"trusted":   second(keyfuncs.TrustedHeaderIP("X-Real-IP", trusted)(get("X-Real-IP", evil))),
		"join":      second(keyfuncs.Join(keyfuncs.Header("X-User-ID"), keyfuncs.Header("X-Tenant"))(get("X-User-ID", evil))),
	} {
		if err == nil || strings.Contains(err.Error(), evil) || !strings.HasPrefix(err.Error(), "keyfuncs: ") {
			t.Errorf("%s: %v", name, err)
		}
		// Once wrapped: what is inside is the sentinel itself.
		if in := errors.Unwrap(err); in != keyfuncs.ErrBadKey && in != keyfuncs.ErrNoKey {
			t.Errorf("%s: %v wraps %v", name, err, in)
		}
	}
}

func second(_ string, err error) error { return err }

func TestBadConfigurationPanicsWithASentence(t *testing.T) {
	ok := netip.MustParsePrefix("10.0.0.0/8")
	var none keyfuncs.Func
	for _, tt := range []struct {
		name string
		make func()
		says string // the maker, and what to change
	}{
		{"an_empty_action", func() { keyfuncs.Action("") }, "Action needs a name"},
		{"an_empty_header", func() { keyfuncs.Header("") }, "use one such as"},
		{"a_header_with_a_colon", func() { keyfuncs.Header("X-User-ID:") }, "Header("},
		{"the_header_Host", func() { keyfuncs.Header("host") }, "returns r.Host"},
		{"the_header_Host_of_an_edge", func() { keyfuncs.TrustedHeaderIP("Host", ok) }, "returns r.Host"},
		{"an_empty_cookie", func() { keyfuncs.Cookie("") }, "Cookie("},
		{"a_cookie_with_a_space", func() { keyfuncs.Cookie("a b") }, "use one such as"},
		{"a_nil_context_key", func() { keyfuncs.ContextValue(nil) }, "ContextValue needs"},
		{"a_context_key_that_cannot_be_compared", func() { keyfuncs.ContextValue([]string{}) }, "[]string"},
		{"no_trusted_prefixes", func() { keyfuncs.ForwardedIP() }, "use RemoteIP"},
		{"an_invalid_prefix", func() { keyfuncs.ForwardedIP(ok, netip.Prefix{}) }, "prefix 2"},
		{"a_prefix_too_long", func() { keyfuncs.ForwardedIP(netip.PrefixFrom(ok.Addr(), 33)) }, "prefix 1"},
		{"a_mapped_prefix_of_more_than_IPv4", func() { keyfuncs.ForwardedIP(netip.MustParsePrefix("::ffff:10.0.0.0/95")) }, "write IPv4 as IPv4"},
		{"a_prefix_that_trusts_all_of_IPv4", func() { keyfuncs.ForwardedIP(ok, netip.MustParsePrefix("0.0.0.0/0")) }, "prefix 2, 0.0.0.0/0, trusts every peer"},
		{"a_prefix_that_trusts_all_of_IPv6", func() { keyfuncs.ForwardedIP(netip.MustParsePrefix("::/0")) }, "trusts every peer"},
		{"a_mapped_prefix_that_trusts_all_of_IPv4", func() { keyfuncs.ForwardedIP(netip.MustParsePrefix("::ffff:0.0.0.0/96")) }, "trusts every peer"},
		{"a_mapped_prefix_that_trusts_all", func() { keyfuncs.ForwardedIP(netip.MustParsePrefix("::ffff:10.0.0.0/0")) }, "trusts every peer"},
		{"an_edge_that_is_everybody", func() { keyfuncs.TrustedHeaderIP("X-Real-IP", netip.MustParsePrefix("10.0.0.0/0")) }, "trusts every peer"},
		{"an_IPv4_subnet_too_long", func() { keyfuncs.Subnet{IPv4: 33}.Of(keyfuncs.RemoteAddr) }, "IPv4 is 33 bits; use 1 to 32"},
		{"an_IPv4_subnet_of_negative_length", func() { keyfuncs.Subnet{IPv4: -1}.Of(keyfuncs.RemoteAddr) }, "Subnet: IPv4 is -1 bits"},
		{"an_IPv6_subnet_too_long", func() { keyfuncs.Subnet{IPv6: 129}.Of(keyfuncs.RemoteAddr) }, "IPv6 is 129 bits; use 1 to 128"},
		{"an_IPv6_subnet_of_negative_length", func() { keyfuncs.Subnet{IPv6: -1}.Of(keyfuncs.RemoteAddr) }, "Subnet: IPv6 is -1 bits"},
		{"a_subnet_of_no_address", func() { keyfuncs.Subnet{}.Of(nil) }, "Subnet.Of: the function is nil"},
		{"no_trusted_prefixes_for_an_address", func() { keyfuncs.ForwardedAddr() }, "ForwardedAddr needs"},
		{"no_trusted_prefixes_for_an_edge's_address", func() { keyfuncs.TrustedHeaderAddr("X-Real-IP") }, "TrustedHeaderAddr needs"},
		{"a_value_that_nobody_gets", func() { keyfuncs.Value[any]("the tenant", nil) }, "gets the tenant"},
		{"an_empty_trusted_header", func() { keyfuncs.TrustedHeaderIP("", ok) }, "TrustedHeaderIP("},
		{"the_list_Forwarded_as_a_header", func() { keyfuncs.TrustedHeaderIP("forwarded", ok) }, "use ForwardedIP"},
		{"the_zero_prefix_of_an_adapter", func() { keyfuncs.ClientIP("nethttp.PerIP", netip.Prefix{}) }, "nethttp.PerIP: prefix 1"},
		{"no_trusted_prefixes_for_a_header", func() { keyfuncs.TrustedHeaderIP("X-Real-IP") }, "TrustedHeaderIP needs"},
		{"an_invalid_prefix_for_a_header", func() { keyfuncs.TrustedHeaderIP("X-Real-IP", netip.Prefix{}) }, "MustParsePrefix"},
		{"first_of_nothing", func() { keyfuncs.First[*http.Request]() }, "First needs"},
		{"first_of_a_nil_source", func() { keyfuncs.First(keyfuncs.RemoteIP, none) }, "function 2 is nil"},
		{"join_of_nothing", func() { keyfuncs.Join[*http.Request]() }, "Join needs"},
		{"join_of_a_nil_part", func() { keyfuncs.Join(none, keyfuncs.RemoteIP) }, "function 1 is nil"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				says, _ := recover().(string)
				if !strings.HasPrefix(says, "keyfuncs: ") || !strings.Contains(says, tt.says) {
					t.Fatalf("panic says %q, want %q in it", says, tt.says)
				}
			}()
			tt.make()
		})
	}
}

// The caller may change the slice afterwards.
func TestConfigurationIsCopied(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	sources := []keyfuncs.Func{keyfuncs.Action("a"), keyfuncs.Action("b")}
	var forwarded keyfuncs.Func = keyfuncs.ForwardedIP(trusted...)
	first, join := keyfuncs.First(sources...), keyfuncs.Join(sources...)
	trusted[0] = netip.MustParsePrefix("0.0.0.0/0")
	clear(sources)

	r := get("X-Forwarded-For", "6.6.6.6")
	for f, want := range map[*keyfuncs.Func]string{&forwarded: "203.0.113.9", &first: "a", &join: "a:b"} {
		key, err := (*f)(r)
		check(t, key, err, want, nil)
	}
}

func TestAllocations(t *testing.T) {
	type userKey struct{}
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	from := func(addr string, headers ...string) *http.Request {
		r := get(headers...)
		r.RemoteAddr = addr
		return r
	}
	routed := func(pattern string) *http.Request {
		r := get()
		r.Pattern = pattern
		return r
	}
	hops := strings.Repeat("10.0.0.7, ::ffff:10.0.0.8,", 500)
	named := get("X-User-ID", "alice")
	named = named.WithContext(context.WithValue(named.Context(), userKey{}, "alice"))

	for _, tt := range []struct {
		name string
		f    keyfuncs.Func
		r    *http.Request
		max  float64
	}{
		{"everyone", keyfuncs.Everyone, get(), 0},
		{"action", keyfuncs.Action("reply"), get(), 0},
		{"header", keyfuncs.Header("X-User-ID"), named, 0},
		{"header_missing", keyfuncs.Header("X-User-ID"), get(), 0},
		{"header_twice", keyfuncs.Header("X-User-ID"), get("X-User-ID", "a", "X-User-ID", "b"), 0},
		{"context_value", keyfuncs.ContextValue(userKey{}), named, 0},
		{"header_of_two_values", keyfuncs.Header("X-User-ID"), get("X-User-ID", "a, b"), 0},
		{"remote_ip_of_a_subnet", keyfuncs.Subnet{IPv4: 24}.Of(keyfuncs.RemoteAddr), get(), 2},
		{"context_value_missing", keyfuncs.ContextValue(userKey{}), get(), 0},
		{"route_with_a_method", keyfuncs.Route, routed("GET /posts/{id}"), 1},
		{"route_without_one", keyfuncs.Route, routed("/posts/{id}"), 1},
		{"route_without_a_pattern", keyfuncs.Route, get(), 0},
		{"remote_ip_is_a_part_of_RemoteAddr", keyfuncs.RemoteIP, from("203.113.113.199:65535"), 0},
		{"remote_ip_mapped_is_another_text", keyfuncs.RemoteIP, from("[::ffff:203.0.113.9]:4711"), 1},
		{"remote_ip_v6", keyfuncs.RemoteIP, from("[2001:db8::1]:1"), 2},
		{"remote_ip_v6_bare", keyfuncs.RemoteIP, from("2001:db8::1"), 3},
		{"remote_ip_none", keyfuncs.RemoteIP, from("@"), 0},
		{"forwarded_ip_of_an_untrusted_peer", keyfuncs.ForwardedIP(trusted), get(), 0},
		{"forwarded_ip_without_the_header", keyfuncs.ForwardedIP(trusted), from("10.0.0.1:4711"), 0},
		{"forwarded_ip_skips_1000_hops", keyfuncs.ForwardedIP(trusted), from("10.0.0.1:1", "X-Forwarded-For", "6.6.6.6,198.51.100.1,"+hops+"10.0.0.1"), 1},
		{"trusted_header_ip", keyfuncs.TrustedHeaderIP("x-real-ip", trusted), from("10.0.0.1:1", "X-Real-IP", "198.51.100.1"), 1},
		{"first_of_two", keyfuncs.First(keyfuncs.Header("X-User-ID"), keyfuncs.Everyone), named, 0},
		{"second_of_two", keyfuncs.First(keyfuncs.Header("X-User-ID"), keyfuncs.Everyone), get(), 1},
		{"join", keyfuncs.Join(keyfuncs.Header("X-User-ID"), keyfuncs.Everyone, keyfuncs.Action("a:b")), named, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, func() { _, _ = tt.f(tt.r) }); n > tt.max {
				t.Errorf("%v allocations, want at most %v", n, tt.max)
			}
		})
	}
}
