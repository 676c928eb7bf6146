package keyfuncs_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// warnings are the codes that f says, one a line, of one request after the other.
func warnings(t *testing.T, f keyfuncs.Func, requests ...*http.Request) []string {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	keyfuncs.ForgetWarning()
	for _, r := range requests {
		if _, err := f(r); err != nil {
			t.Fatal(err)
		}
	}
	var codes []string
	for line := range strings.Lines(log.String()) {
		_, code, _ := strings.Cut(strings.TrimSpace(line), " code=")
		if !strings.Contains(line, "level=WARN msg=\"keyfuncs: ") {
			t.Errorf("%q", line)
		}
		for _, secret := range []string{"203.0.113.9", "6.6.6.6", "10.0.0.1"} {
			if strings.Contains(line, secret) {
				t.Errorf("an address in the log: %q", line)
			}
		}
		codes = append(codes, code)
	}
	return codes
}

func TestWarnings(t *testing.T) {
	many := func(n int, r *http.Request) (rs []*http.Request) {
		for range n {
			rs = append(rs, r)
		}
		return rs
	}
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
		{"a_client_without_headers_is_no_matter", remote, many(3, from(stranger, "")), ""},
		{"X-Forwarded-For_nobody_trusts,_said_once", remote, many(3, from(stranger, "X-Forwarded-For", "6.6.6.6")), "forwarded-untrusted"},
		{"Forwarded", remote, many(3, from(stranger, "Forwarded", "for=6.6.6.6")), "forwarded-untrusted"},
		{"X-Real-IP", remote, many(3, from(stranger, "X-Real-IP", "6.6.6.6")), "forwarded-untrusted"},
		{"a_proxy_that_comes_late_is_seen", remote, append(many(2000, from(stranger, "")), many(10_000, from(stranger, "X-Forwarded-For", "6.6.6.6"))...), "forwarded-untrusted"},
		{"an_empty_header_is_one", remote, many(3, from(stranger, "X-Forwarded-For", "")), "forwarded-untrusted"},
		{"a_trusted_proxy_is_well", forwarded, many(2000, from(proxy, "X-Forwarded-For", "6.6.6.6")), ""},
		{"a_stranger_without_the_header_is_well", forwarded, many(2000, from(stranger, "")), ""},
		{"a_stranger_with_it_is_said_once", forwarded, many(999, from(stranger, "X-Forwarded-For", "6.6.6.6")), "forwarded-untrusted"},
		{"if_nobody_ever_matches_that_too", forwarded, many(3000, from(stranger, "X-Forwarded-For", "6.6.6.6")), "forwarded-untrusted trusted-never-matches"},
		{"one_match_is_enough", forwarded, append(many(1, from(proxy, "")), many(3000, from(stranger, "X-Forwarded-For", "6.6.6.6"))...), "forwarded-untrusted"},
		{"also_a_late_one", forwarded, append(append(many(999, from(stranger, "X-Forwarded-For", "6.6.6.6")), from(proxy, "")), many(999, from(stranger, "X-Forwarded-For", "6.6.6.6"))...), "forwarded-untrusted"},
		{"an_edge_that_is_trusted_is_well", edge, many(2000, from(proxy, "X-Real-IP", "6.6.6.6")), ""},
		{"one_that_is_not_is_said", edge, many(3000, from(stranger, "X-Real-IP", "6.6.6.6")), "forwarded-untrusted trusted-never-matches"},
		{"one_match_is_enough_there_too", edge, append(many(1, from(proxy, "")), many(3000, from(stranger, "X-Real-IP", "6.6.6.6"))...), "forwarded-untrusted"},
		{"another_header_is_no_matter_there", edge, many(3000, from(stranger, "X-Forwarded-For", "6.6.6.6")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(warnings(t, tt.f(), tt.requests...), " "); got != tt.want {
				t.Errorf("said %q, want %q", got, tt.want)
			}
		})
	}
}
