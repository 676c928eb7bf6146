package keyfuncs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// logged returns what f logs while it serves the requests, one line for each warning.
func logged[C any](t *testing.T, f func(C) (string, error), requests ...C) (lines []string) {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	keyfuncs.ForgetWarning()
	for _, r := range requests {
		if _, err := f(r); err != nil && !errors.Is(err, keyfuncs.ErrNoKey) {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "level=WARN msg=\"keyfuncs: ") {
			t.Errorf("%q", line)
		}
		for _, secret := range []string{"203.0.113.9", "6.6.6.6", "10.0.0.1"} {
			if said, _, _ := strings.Cut(line, " address="); strings.Contains(said, secret) {
				t.Errorf("an address in the log: %q", line)
			}
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// codes returns the codes of warnings.
func codes(lines []string) string {
	var codes []string
	for _, line := range lines {
		_, code, _ := strings.Cut(line, " code=")
		code, _, _ = strings.Cut(code, " ")
		codes = append(codes, code)
	}
	return strings.Join(codes, " ")
}

func many[C any](n int, c C) []C { return slices.Repeat([]C{c}, n) }

// bad expects every key to be bad.
func bad(f func() keyfuncs.Func) func() keyfuncs.Func {
	return func() keyfuncs.Func {
		key := f()
		return func(r *http.Request) (string, error) {
			if _, err := key(r); !errors.Is(err, keyfuncs.ErrBadKey) {
				return "", fmt.Errorf("%v is not a bad key", err)
			}
			return "", nil
		}
	}
}

func TestWarnings(t *testing.T) {
	const stranger, proxy = "203.0.113.9:1", "10.0.0.1:1"
	forwarded := func() keyfuncs.Func { return keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...) }
	edge := func() keyfuncs.Func { return keyfuncs.TrustedHeaderIP("x-real-ip", prefixes("10.0.0.0/8")...) }
	remote := func() keyfuncs.Func { return keyfuncs.RemoteIP }
	for _, tt := range []struct {
		name     string
		f        func() keyfuncs.Func
		requests []*http.Request
		want     string
	}{
		{"a_client_without_headers_does_not_matter", remote, many(3, from(stranger, "")), ""},
		{"X-Forwarded-For_nobody_trusts,_said_once", remote, many(3, from(stranger, "X-Forwarded-For", "6.6.6.6")), "forwarded-untrusted"},
		{"Forwarded", remote, many(3, from(stranger, "Forwarded", "for=6.6.6.6")), "forwarded-untrusted"},
		{"X-Real-IP", remote, many(3, from(stranger, "X-Real-IP", "6.6.6.6")), "forwarded-untrusted"},
		{"True-Client-IP", remote, many(3, from(stranger, "True-Client-IP", "6.6.6.6")), "forwarded-untrusted"},
		{"a_proxy_that_comes_late_is_seen", remote, append(many(2000, from(stranger, "")), many(10_000, from(stranger, "X-Forwarded-For", "6.6.6.6"))...), "forwarded-untrusted"},
		{"an_empty_header_is_one", remote, many(3, from(stranger, "X-Forwarded-For", "")), "forwarded-untrusted"},
		{"a_trusted_proxy_is_well", forwarded, many(2000, from(proxy, "X-Forwarded-For", "6.6.6.6")), ""},
		{"a_stranger_without_the_header_is_well", forwarded, many(2000, from(stranger, "")), ""},
		{"an_untrusted_peer_with_it_is_logged_once", forwarded, many(999, from(stranger, "X-Forwarded-For", "6.6.6.6")), "forwarded-untrusted"},
		{"if_nobody_ever_matches_that_is_logged_too", forwarded, many(3000, from(stranger, "X-Forwarded-For", "6.6.6.6")), "forwarded-untrusted trusted-never-matches"},
		{"one_match_is_enough", forwarded, append(many(1, from(proxy, "")), many(3000, from(stranger, "X-Forwarded-For", "6.6.6.6"))...), "forwarded-untrusted"},
		{"also_a_late_one", forwarded, append(append(many(999, from(stranger, "X-Forwarded-For", "6.6.6.6")), from(proxy, "")), many(999, from(stranger, "X-Forwarded-For", "6.6.6.6"))...), "forwarded-untrusted"},
		{"an_edge_that_is_trusted_is_well", edge, many(2000, from(proxy, "X-Real-IP", "6.6.6.6")), ""},
		{"one_that_is_not_is_logged", edge, many(3000, from(stranger, "X-Real-IP", "6.6.6.6")), "forwarded-untrusted trusted-never-matches"},
		{"one_match_is_enough_there_too", edge, append(many(1, from(proxy, "")), many(3000, from(stranger, "X-Real-IP", "6.6.6.6"))...), "forwarded-untrusted"},
		{"Forwarded_from_an_untrusted_peer_too", forwarded, many(3000, from(stranger, "Forwarded", "for=6.6.6.6")), "forwarded-untrusted trusted-never-matches"},
		{"Forwarded_from_a_trusted_proxy_is_well", forwarded, many(2000, from(proxy, "Forwarded", "for=6.6.6.6")), ""},
		{"two_clients,_of_whom_one_is_the_truth", bad(forwarded), many(3, through("198.51.100.1", "for=6.6.6.6")), "two-clients"},
		{"not_if_the_proxies_are_known", forwarded, append(many(1, through("198.51.100.1", "")), many(3, through("198.51.100.1", "for=6.6.6.6"))...), ""},
		{"another_header_does_not_matter_there", edge, many(3000, from(stranger, "X-Forwarded-For", "6.6.6.6")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := codes(logged(t, tt.f(), tt.requests...)); got != tt.want {
				t.Errorf("said %q, want %q", got, tt.want)
			}
		})
	}
}

// What is said must be what happens: behind chi's RealIP a client chooses its address.
func TestAnAddressCopiedFromAHeader(t *testing.T) {
	const copied, shared = "a client that sends the header can then choose its address", "all clients behind the proxy share one limit"
	for _, tt := range []struct{ name, peer, header, says, not string }{
		{"a_server's_address_is_the_proxy's", "10.0.0.1:1", "X-Forwarded-For", shared, copied},
		{"a_v6_address_too", "[2001:db8::1]:1", "X-Real-Ip", shared, copied},
		{"one_without_a_port_was_copied", "6.6.6.6", "X-Real-Ip", copied, shared},
		{"a_v6_one_too", "2001:db8::1", "True-Client-Ip", copied, shared},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lines := logged(t, keyfuncs.RemoteIP, many(3, from(tt.peer, tt.header, "6.6.6.6"))...)
			if len(lines) != 1 || !strings.Contains(lines[0], tt.says) || strings.Contains(lines[0], tt.not) || !strings.Contains(lines[0], tt.header) {
				t.Errorf("said %q, want %q", lines, tt.says)
			}
		})
	}
}

// Header takes an address from any client, and says so where it is made.
func TestAHeaderWithAnAddress(t *testing.T) {
	for name, want := range map[string]string{"x-forwarded-for": "ForwardedIP", "X-Real-IP": "TrustedHeaderIP", "X-User-ID": ""} {
		var f keyfuncs.Func
		lines := logged(t, func(struct{}) (string, error) {
			f = keyfuncs.Header(name)
			return "", nil
		}, many(3, struct{}{})...)
		if want == "" && lines == nil {
			continue
		}
		if codes(lines) != "forwarded-untrusted" || !strings.Contains(lines[0], want) {
			t.Errorf("Header(%q): %q, want %s", name, lines, want)
		}
		if key, err := f(get(name, "a")); key != "a" || err != nil {
			t.Errorf("Header(%q): %q, %v", name, key, err)
		}
	}
}

// ginRequest and echoRequest tell their route as those of the frameworks do.
type (
	ginRequest  struct{ *http.Request }
	echoRequest struct{ *http.Request }
)

func (ginRequest) FullPath() string { return "/posts/:id" }
func (echoRequest) Path() string    { return "/posts/:id" }

func TestAFirstThatNeverFindsAUser(t *testing.T) {
	user := keyfuncs.Header("X-User-ID")
	visitor, member, garbled := get(), get("X-User-ID", "alice"), get("X-User-ID", "a,b")
	for _, tt := range []struct {
		name     string
		requests []*http.Request
		want     string
	}{
		{"a_few_visitors_do_not_matter", many(999, visitor), ""},
		{"a_thousand_are_logged_once", many(5000, visitor), "never-a-user"},
		{"one_user_among_them_is_enough", slices.Concat(many(999, visitor), many(1, member), many(5000, visitor)), ""},
		{"also_if_the_user_comes_first", append(many(1, member), many(5000, visitor)...), ""},
		{"users_alone_are_well", many(2000, member), ""},
		{"a_bad_key_is_not_a_user", slices.Concat(many(500, visitor), many(1, garbled), many(500, visitor)), "never-a-user"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := keyfuncs.First(user, keyfuncs.RemoteIP)
			lenient := func(r *http.Request) (string, error) {
				key, err := f(r)
				if errors.Is(err, keyfuncs.ErrBadKey) {
					err = nil
				}
				return key, err
			}
			if got := codes(logged(t, lenient, tt.requests...)); got != tt.want {
				t.Errorf("said %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("names_its_source_and_the_route", func(t *testing.T) {
		visitor := httptest.NewRequest("GET", "/", nil)
		visitor.Pattern = "GET /posts/{id}"
		const source, login = "the header X-User-Id is missing", "mounted before the login?"
		for route, lines := range map[string][]string{
			`route="GET /posts/{id}"`: logged(t, keyfuncs.First(user, keyfuncs.Everyone), many(1000, visitor)...),
			`route=/posts/:id`: slices.Concat(
				logged(t, keyfuncs.First(on[ginRequest](user), on[ginRequest](keyfuncs.Everyone)), many(1000, ginRequest{visitor})...),
				logged(t, keyfuncs.First(on[echoRequest](user), on[echoRequest](keyfuncs.Everyone)), many(1000, echoRequest{visitor})...)),
			`route=""`: logged(t, keyfuncs.First(func(int) (string, error) { return "", nil }, func(int) (string, error) { return "x", nil }), many(1000, 0)...),
		} {
			for _, line := range lines {
				if !strings.Contains(line, route) || !strings.Contains(line, login) || route != `route=""` && !strings.Contains(line, source) {
					t.Errorf("said %q, want %s, %q and %q", line, route, source, login)
				}
			}
			if len(lines) == 0 {
				t.Errorf("said nothing on %s", route)
			}
		}
	})
}

// on makes a function for a framework's request of one for net/http.
func on[C interface{ Context() context.Context }](f keyfuncs.Func) func(C) (string, error) {
	return func(c C) (string, error) {
		switch c := any(c).(type) {
		case ginRequest:
			return f(c.Request)
		case echoRequest:
			return f(c.Request)
		}
		return "", fmt.Errorf("%T", c)
	}
}
