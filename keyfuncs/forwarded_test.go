package keyfuncs_test

import (
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// The header Forwarded alone, as RFC 7239 has it and as proxies write it.
func TestForwarded(t *testing.T) {
	badKey := keyfuncs.ErrBadKey
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
		err   error
	}{
		{"an_element", []string{`for=203.0.113.9`}, "203.0.113.9", nil},
		{"its_name_in_any_case", []string{`For=203.0.113.9`}, "203.0.113.9", nil},
		{"in_quotes", []string{`for="203.0.113.9"`}, "203.0.113.9", nil},
		{"with_a_port", []string{`for="203.0.113.9:4711"`}, "203.0.113.9", nil},
		{"with_a_port_without_quotes", []string{`for=203.0.113.9:4711`}, "203.0.113.9", nil},
		{"with_a_port_that_is_a_name", []string{`for="203.0.113.9:_port-7"`}, "203.0.113.9", nil},
		{"v6_in_brackets", []string{`for="[2001:db8:1:2::7]"`}, "2001:db8:1:2::/64", nil},
		{"v6_with_a_port", []string{`for="[2001:db8:1:2::7]:4711"`}, "2001:db8:1:2::/64", nil},
		{"v6_with_a_port_that_is_a_name", []string{`for="[2001:db8:1:2::7]:_x"`}, "2001:db8:1:2::/64", nil},
		{"v6_without_quotes", []string{`for=[2001:db8:1:2::7]:4711`}, "2001:db8:1:2::/64", nil},
		{"v6_without_brackets_is_not_split", []string{`for="2001:db8:1:2:3:4:5:80"`}, "2001:db8:1:2::/64", nil},
		{"a_backslash_without_quotes_is_bad", []string{`for=203.0.113.9\`}, "", badKey},
		{"a_backslash_in_quotes", []string{`for="\2\03.0.113.9"`}, "203.0.113.9", nil},
		{"among_other_pairs", []string{`by=10.0.0.1;for=203.0.113.9;host="a.example:80";proto=https`}, "203.0.113.9", nil},
		{"with_spaces_around_the_semicolons", []string{"by=10.0.0.1 ;\tfor=203.0.113.9 ; proto=https \t"}, "203.0.113.9", nil},
		{"with_empty_pairs", []string{`;for=203.0.113.9;;proto=https;`}, "203.0.113.9", nil},
		{"what_a_client_invents_is_left_of_it", []string{`for=6.6.6.6, for=203.0.113.9`}, "203.0.113.9", nil},
		{"lines_are_one_list", []string{`for=6.6.6.6`, `for=203.0.113.9`, `for=10.0.0.7`}, "203.0.113.9", nil},
		{"trusted_hops_are_passed", []string{`for=6.6.6.6, for=203.0.113.9;proto=http, for="10.0.0.8:80",for="[::ffff:10.0.0.7]"`}, "203.0.113.9", nil},
		{"only_trusted_ones_are_the_peer", []string{`for=10.0.0.8, for=10.0.0.7`}, "10.0.0.1", nil},
		{"commas_in_quotes_do_not_separate", []string{`for=203.0.113.9;host="x, for=6.6.6.6"`}, "203.0.113.9", nil},
		{"nor_do_quotes_in_quotes", []string{`for=203.0.113.9;host="x\", for=6.6.6.6;a=\"y"`}, "203.0.113.9", nil},
		{"nor_a_backslash_at_the_end_of_quotes", []string{`for=203.0.113.9;host="x, for=6.6.6.6;a=\\"`}, "203.0.113.9", nil},
		{"a_quote_that_a_client_leaves_open", []string{`for="6.6.6.6, for=203.0.113.9`}, "203.0.113.9", nil},
		{"also_before_an_element_with_quotes", []string{`for=6.6.6.6;host="x, for="203.0.113.9:80";proto="https"`}, "203.0.113.9", nil},
		{"also_in_a_line_of_its_own", []string{`for="6.6.6.6`, `for="203.0.113.9"`}, "203.0.113.9", nil},
		{"garbage_left_of_the_client_is_not_read", []string{`=;"\,,for=203.0.113.9`}, "203.0.113.9", nil},

		{"unknown_is_bad", []string{`for=6.6.6.6, for=unknown`}, "", badKey},
		{"a_hidden_client_is_bad", []string{`for=6.6.6.6, for=_hidden`}, "", badKey},
		{"a_hidden_one_behind_a_trusted_one_too", []string{`for=6.6.6.6, for="_hidden:80", for=10.0.0.7`}, "", badKey},
		{"an_element_without_for_is_bad", []string{`for=6.6.6.6, proto=https`}, "", badKey},
		{"an_element_with_two_is_bad", []string{`for=6.6.6.6;for=203.0.113.9`}, "", badKey},
		{"an_empty_for_is_bad", []string{`for=6.6.6.6, for=`}, "", badKey},
		{"an_empty_one_in_quotes_too", []string{`for=""`}, "", badKey},
		{"an_empty_header_is_bad", []string{``}, "", badKey},
		{"an_empty_element_is_bad", []string{`for=203.0.113.9,`}, "", badKey},
		{"an_empty_last_line_is_bad", []string{`for=203.0.113.9`, ``}, "", badKey},
		{"an_address_without_a_name_is_bad", []string{`203.0.113.9`}, "", badKey},
		{"spaces_around_the_equals_sign_are_bad", []string{`for = 203.0.113.9`}, "", badKey},
		{"a_quote_that_is_not_opened_is_bad", []string{`for=203.0.113.9"`}, "", badKey},
		{"one_that_is_not_closed_is_bad", []string{`for="203.0.113.9`}, "", badKey},
		{"one_that_is_escaped_is_bad", []string{`for="203.0.113.9\"`}, "", badKey},
		{"text_behind_quotes_is_bad", []string{`for="203.0.113.9"x`}, "", badKey},
		{"v4_in_brackets_is_bad", []string{`for="[203.0.113.9]"`}, "", badKey},
		{"unspecified_is_bad", []string{`for=0.0.0.0`}, "", badKey},
		{"a_port_that_is_no_name_is_bad", []string{`for="203.0.113.9:_"`}, "", badKey},
		{"nor_with_another_character", []string{`for="203.0.113.9:_a b"`}, "", badKey},
		{"v6_without_brackets_has_no_port", []string{`for="2001:db8::7:_x"`}, "", badKey},
		{"a_megabyte_of_backslashes_is_bad", []string{`for="` + strings.Repeat(`\`, 1<<20) + `"`}, "", badKey},
		{"a_megabyte_of_quotes_is_bad", []string{`for=` + strings.Repeat(`\"`, 1<<19)}, "", badKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := from("10.0.0.1:80", "Forwarded", tt.lines...)
			key, err := keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...)(r)
			check(t, key, err, tt.want, tt.err)

			r.RemoteAddr = "198.51.100.1:80" // not trusted
			key, err = keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...)(r)
			check(t, key, err, "198.51.100.1", nil)
		})
	}
}

const (
	xff  = "X-Forwarded-For"
	fwd  = "Forwarded"
	peer = "10.0.0.1:80"
)

// through is a request through the proxy with both headers; "" is none.
func through(x, f string) *http.Request {
	r := from(peer, "")
	for name, line := range map[string]string{xff: x, fwd: f} {
		if line != "" {
			r.Header[name] = []string{line}
		}
	}
	return r
}

// If both headers come, no client gains by adding the one that the proxies do not write.
func TestForwardedAndXForwardedFor(t *testing.T) {
	const alice = "203.0.113.9"
	onlyX, onlyF := through("192.0.2.1", ""), through("", "for=192.0.2.1")
	for _, tt := range []struct {
		name   string
		before []*http.Request
		x, f   string
		want   string // "" is bad
	}{
		{"one_client_in_both", nil, alice, "for=" + alice, alice},
		{"one_client_in_two_forms", nil, alice + ":80", `for="[::ffff:203.0.113.9]"`, alice},
		{"two_clients,_and_nothing_is_known", nil, alice, "for=6.6.6.6", ""},
		{"the_proxies_write_X-Forwarded-For", []*http.Request{onlyX}, alice, "for=6.6.6.6", alice},
		{"the_proxies_write_Forwarded", []*http.Request{onlyF}, "6.6.6.6", "for=" + alice, alice},
		{"some_write_this_and_some_that", []*http.Request{onlyX, onlyF}, alice, "for=6.6.6.6", ""},
		{"one_client_in_both_of_them", []*http.Request{onlyX, onlyF}, alice, "for=" + alice, alice},
		{"a_Forwarded_that_a_proxy_has_not_written", nil, alice, "6.6.6.6", alice},
		{"one_without_for", nil, alice, "proto=https", alice},
		{"an_empty_one", nil, alice, " ", alice},
		{"no_element_if_they_write_Forwarded,_with_the_Host_as_it_came", []*http.Request{onlyF}, "6.6.6.6", "for=" + alice + ";host=x;for=6.6.6.6", ""},
		{"nor_if_they_write_both", []*http.Request{onlyX, onlyF}, "6.6.6.6", "for=" + alice + ";host=a=b", ""},
		{"a_hidden_client_is_bad", nil, "6.6.6.6", "for=_hidden", ""},
		{"also_if_the_proxies_write_Forwarded", []*http.Request{onlyF}, "6.6.6.6", "for=_hidden", ""},
		{"but_not_if_they_write_X-Forwarded-For", []*http.Request{onlyX}, alice, "for=_hidden", alice},
		{"a_bad_X-Forwarded-For_is_bad", []*http.Request{onlyX}, "x", "for=6.6.6.6", ""},
		{"but_not_if_the_proxies_write_Forwarded", []*http.Request{onlyF}, "x", "for=" + alice, alice},
		{"trusted_ones_only,_of_Forwarded", nil, alice, "for=10.0.0.7", alice},
		{"trusted_ones_only,_of_X-Forwarded-For", nil, "10.0.0.7", "for=" + alice, alice},
		{"also_if_the_proxies_write_X-Forwarded-For", []*http.Request{onlyX}, "10.0.0.7", "for=" + alice, alice},
		{"trusted_ones_only,_of_both", nil, "10.0.0.7", "for=10.0.0.8", "10.0.0.1"},
		{"a_CDN_writes_Forwarded_and_an_nginx_X-Forwarded-For", []*http.Request{onlyX, through("10.0.0.7", "for=192.0.2.1")}, "6.6.6.6, 10.0.0.7", "for=" + alice, ""},
		{"and_the_other_way_round", []*http.Request{onlyF, through("192.0.2.1", "for=10.0.0.7")}, alice, "for=6.6.6.6, for=10.0.0.7", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...)
			for _, r := range tt.before {
				if _, err := key(r); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 { // it teaches nothing
				got, err := key(through(tt.x, tt.f))
				if tt.want == "" {
					check(t, got, err, "", keyfuncs.ErrBadKey)
				} else {
					check(t, got, err, tt.want, nil)
				}
			}
		})
	}
}

// FuzzForwarded holds the last element to RFC 7239's grammar, and two headers to what a client may gain. f is
// what a client sends, behind which a proxy appends an element.
func FuzzForwarded(f *testing.F) {
	f.Add(`for=6.6.6.6`, `for=203.0.113.9`)
	f.Add(`for="6.6.6.6`, `for="[2001:db8::1]:80";proto=https`)
	f.Add(`host="\", for=6.6.6.6`, `by=_a;for="203.0.113.9:_b";host="x, \"y\""`)
	f.Add(`\"`, `for=unknown`)
	f.Add(`,`, `proto=https`)
	f.Add(`for=10.0.0.7`, `FOR=203.0.113.9 ; ;`)
	trusted := prefixes("10.0.0.0/8")
	f.Fuzz(func(t *testing.T, client, element string) {
		key := keyfuncs.ForwardedIP(trusted...)
		got, err := key(from(peer, fwd, client+","+element))
		if want, ok := elementByHand(element); ok && (got != want || errors.Is(err, keyfuncs.ErrBadKey) != (want == "")) {
			t.Fatalf("%q behind %q: %q, %v; want %q", element, client, got, err, want)
		}

		// A proxy writes one list; the client adds the other, and gets no other key.
		for _, write := range []func(own string, added ...string) *http.Request{
			func(own string, added ...string) *http.Request {
				r := from(peer, xff, own)
				r.Header[fwd] = added
				return r
			},
			func(own string, added ...string) *http.Request {
				r := from(peer, fwd, "for="+own)
				r.Header[xff] = added
				return r
			},
		} {
			for _, known := range []bool{false, true} {
				key := keyfuncs.ForwardedIP(trusted...)
				if known {
					_, _ = key(write("192.0.2.1"))
				}
				got, err := key(write("203.0.113.9", client, element))
				if got != "203.0.113.9" && !(got == "" && !known && errors.Is(err, keyfuncs.ErrBadKey)) {
					t.Fatalf("with %q and %q added, known %t: %q, %v", client, element, known, got, err)
				}
			}
		}
	})
}

const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"

var (
	pairForm    = token + `=(?:` + token + `|"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*")`
	elementForm = regexp.MustCompile(`^[ \t]*(?:` + pairForm + `)?(?:;(?:` + pairForm + `)?)*[ \t]*$`)
	pairs       = regexp.MustCompile(`(` + token + `)=(` + token + `|"(?:[^"\\]|\\.)*")`)
	nodeForm    = regexp.MustCompile(`^(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::(?:([0-9]{1,5})|_[A-Za-z0-9._-]+))?$`)
	backslash   = regexp.MustCompile(`(?s)\\(.)`)
)

// elementByHand reads an element in the grammar from its start. It returns the key, or "" if the element is bad. It
// reports false if it cannot tell: not in the grammar, or trusted, or an address in another form.
func elementByHand(element string) (key string, ok bool) {
	if !elementForm.MatchString(element) {
		return "", false
	}
	nodes := []string{}
	for _, m := range pairs.FindAllStringSubmatch(element, -1) {
		if v := m[2]; strings.EqualFold(m[1], "for") {
			if strings.HasPrefix(v, `"`) {
				v = backslash.ReplaceAllString(v[1:len(v)-1], "$1")
			}
			nodes = append(nodes, v)
		}
	}
	if len(nodes) != 1 {
		return "", true
	}
	m := nodeForm.FindStringSubmatch(nodes[0])
	if m == nil {
		return "", !strings.Contains(nodes[0], ":")
	}
	addr, err := netip.ParseAddr(m[1] + m[2])
	if port, _ := strconv.Atoi(m[3]); err != nil || port > 65535 || m[2] != "" && addr.Is4() {
		return "", true
	}
	key, bad := oracle(peer, "10.0.0.1", addr.String(), false)
	return key, bad || key != "10.0.0.1"
}

func BenchmarkForwardedIP(b *testing.B) {
	for _, bb := range []struct{ name, peer, header string }{
		{"one", peer, "203.0.113.9"},
		{"two_proxies", peer, "203.0.113.9, 10.0.0.7"},
		{"forged", peer, "6.6.6.6, 203.0.113.9"},
		{"IPv6", peer, "2001:db8:1:2:3:4:5:6"},
		{"untrusted", "203.0.113.9:4711", ""},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			r := through(bb.header, "")
			r.RemoteAddr = bb.peer
			r.Header["User-Agent"], r.Header["Accept"], r.Header["Accept-Encoding"] = []string{"x"}, []string{"y"}, []string{"z"}
			for forwarded := keyfuncs.ForwardedIP(prefixes("10.0.0.0/8")...); b.Loop(); {
				_, _ = forwarded(r)
			}
		})
	}
}
