package keyfuncs_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// from is a request from addr with the lines of one header.
func from(addr, header string, lines ...string) *http.Request {
	r := get()
	r.RemoteAddr = addr
	for _, line := range lines {
		r.Header.Add(header, line)
	}
	return r
}

func prefixes(ss ...string) (ps []netip.Prefix) {
	for _, s := range ss {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

// "It reads no header."
func TestRemoteIP(t *testing.T) {
	noKey, badKey := keyfuncs.ErrNoKey, keyfuncs.ErrBadKey
	for _, tt := range []struct {
		name, addr, want string
		err              error
	}{
		{"v4_is_whole", "203.0.113.9:4711", "203.0.113.9", nil},
		{"v4_without_a_port", "203.0.113.9", "203.0.113.9", nil},
		{"v6_is_its_64", "[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64", nil},
		{"v6_without_a_port", "2001:db8:1:2::7", "2001:db8:1:2::/64", nil},
		{"v6_of_eight_groups_without_a_port", "2001:db8:1:2:3:4:5:80", "2001:db8:1:2::/64", nil},
		{"the_neighbour_64_is_another", "[2001:db8:1:3::7]:1", "2001:db8:1:3::/64", nil},
		{"v6_in_capitals_and_zeros_is_the_same", "[2001:0DB8:0001:0002:0:0:0:0001]:1", "2001:db8:1:2::/64", nil},
		{"v6_with_groups_in_full", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:1", "ffff:ffff:ffff:ffff::/64", nil},
		{"v6_with_dots_is_v6", "[2001:db8::1.2.3.4]:1", "2001:db8::/64", nil},
		{"mapped_is_v4", "[::ffff:203.0.113.9]:1", "203.0.113.9", nil},
		{"mapped_in_hex_is_v4", "[::FFFF:CB00:7109]:1", "203.0.113.9", nil},
		{"mapped_without_a_port_is_v4", "::ffff:203.0.113.9", "203.0.113.9", nil},
		{"6to4_is_v6", "[2002:cb00:7109::1]:1", "2002:cb00:7109::/64", nil},
		{"v6_in_brackets_without_a_port", "[2001:db8:1:2::7]", "2001:db8:1:2::/64", nil},
		{"nat64_is_its_v4", "[64:ff9b::203.0.113.9]:1", "203.0.113.9", nil},
		{"nat64_in_hex_is_its_v4", "[64:ff9b::cb00:7109]:1", "203.0.113.9", nil},
		{"nat64_without_a_port_is_its_v4", "64:ff9b::203.0.113.9", "203.0.113.9", nil},
		{"beside_nat64_is_v6", "[64:ff9b::1:203.0.113.9]:1", "64:ff9b::/64", nil},
		{"a_prefix_of_one's_own_for_nat64_is_v6", "[64:ff9b:1::203.0.113.9]:1", "64:ff9b:1::/64", nil},
		{"loopback_is_an_address", "[::1]:1", "::/64", nil},
		{"a_zone_is_dropped", "[fe80::1%eth0]:1", "fe80::/64", nil},
		{"a_zone_without_a_port_is_dropped", "fe80::1%eth0", "fe80::/64", nil},
		{"nothing_is_no_key", "", "", noKey},
		{"a_unix_socket_has_no_key", "@", "", noKey},
		{"an_abstract_unix_socket_has_no_key", "@app", "", noKey},
		{"a_path_is_not_a_key", "/run/app.sock", "", noKey},
		{"unspecified_v4_is_bad", "0.0.0.0:1", "", badKey},
		{"unspecified_v6_is_bad", "[::]:1", "", badKey},
		{"unspecified_without_a_port_is_bad", "::", "", badKey},
		{"unspecified_mapped_is_bad", "[::ffff:0.0.0.0]:1", "", badKey},
		{"unspecified_with_a_zone_is_bad", "[::%eth0]:1", "", badKey},
		{"unspecified_in_nat64_is_bad", "[64:ff9b::]:1", "", badKey},
		{"a_name_is_bad", "localhost:80", "", badKey},
		{"a_word_is_bad", "pipe", "", badKey},
		{"a_leading_zero_is_bad", "1.2.3.004:80", "", badKey},
		{"three_octets_are_bad", "1.2.3:80", "", badKey},
		{"hex_octets_are_bad", "0x7f.1:80", "", badKey},
		{"an_octet_too_large_is_bad", "1.2.2.355:80", "", badKey},
		{"a_port_too_large_is_bad", "203.0.113.9:65536", "", badKey},
		{"no_port_after_the_colon_is_bad", "203.0.113.9:", "", badKey},
		{"v6_with_a_port_but_no_brackets_is_bad", "1:2:3:4:5:6:7:8:80", "", badKey},
		{"v4_in_brackets_is_bad", "[203.0.113.9]:80", "", badKey},
		{"spaces_are_bad", " 203.0.113.9:80", "", badKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Headers have no say: everything is set that some server believes.
			r := from(tt.addr, "X-Forwarded-For", "6.6.6.6")
			for _, name := range []string{"X-Real-IP", "True-Client-IP", "Forwarded", "CF-Connecting-IP"} {
				r.Header.Set(name, "6.6.6.6")
			}
			key, err := keyfuncs.RemoteIP(r)
			check(t, key, err, tt.want, tt.err)
		})
	}
}

func TestSubnet(t *testing.T) {
	const v4, v6 = "203.0.113.9", "2001:db8:1:2:3:4:5:6"
	ok := prefixes("10.0.0.0/8")
	for _, tt := range []struct {
		name   string
		subnet keyfuncs.Subnet
		v4, v6 string
	}{
		{"the_zero_value_is_the_default", keyfuncs.Subnet{}, v4, "2001:db8:1:2::/64"},
		{"a_shorter_IPv6_leaves_IPv4", keyfuncs.Subnet{IPv6: 56}, v4, "2001:db8:1::/56"},
		{"a_shorter_IPv4_leaves_IPv6", keyfuncs.Subnet{IPv4: 24}, "203.0.113.0/24", "2001:db8:1:2::/64"},
		{"both", keyfuncs.Subnet{IPv4: 20, IPv6: 48}, "203.0.112.0/20", "2001:db8:1::/48"},
		{"all_of_it_is_the_address", keyfuncs.Subnet{IPv4: 32, IPv6: 128}, v4, v6},
		{"a_longer_IPv6", keyfuncs.Subnet{IPv6: 127}, v4, "2001:db8:1:2:3:4:5:6/127"},
		{"the_least", keyfuncs.Subnet{IPv4: 1, IPv6: 1}, "128.0.0.0/1", "::/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for addr, want := range map[string]string{v4: tt.v4, "::ffff:" + v4: tt.v4, v6: tt.v6} {
				key, err := tt.subnet.Of(keyfuncs.RemoteAddr)(from("["+addr+"]:1", ""))
				if addr == v4 {
					key, err = tt.subnet.Of(keyfuncs.RemoteAddr)(from(addr+":1", ""))
				}
				check(t, key, err, want, nil)
				key, err = tt.subnet.Of(keyfuncs.ForwardedAddr(ok...))(from("10.0.0.1:1", "X-Forwarded-For", addr))
				check(t, key, err, want, nil)
				key, err = tt.subnet.Of(keyfuncs.TrustedHeaderAddr("X-Real-IP", ok...))(from("10.0.0.1:1", "X-Real-IP", addr))
				check(t, key, err, want, nil)
			}
		})
	}
}

// A function of your own may return an address in any form.
func TestSubnetOfAnyAddress(t *testing.T) {
	for _, tt := range []struct {
		name string
		addr netip.Addr
		err  error
		want string
	}{
		{"mapped", netip.MustParseAddr("::ffff:203.0.113.9"), nil, "203.0.113.9"},
		{"with_a_zone", netip.MustParseAddr("fe80::1%eth0"), nil, "fe80::/64"},
		{"none", netip.Addr{}, nil, ""},
		{"unspecified", netip.IPv6Unspecified(), nil, ""},
		{"its_error", netip.Addr{}, keyfuncs.ErrNoKey, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := keyfuncs.Subnet{}.Of(func(*http.Request) (netip.Addr, error) { return tt.addr, tt.err })(from("", ""))
			if tt.want == "" && tt.err == nil {
				tt.err = keyfuncs.ErrBadKey
			}
			check(t, key, err, tt.want, tt.err)
		})
	}
}

// The address is whole, of the client as ForwardedIP and TrustedHeaderIP see it, and in one form.
func TestAddr(t *testing.T) {
	proxy := prefixes("10.0.0.0/8")
	forwarded, edge := keyfuncs.ForwardedAddr(proxy...), keyfuncs.TrustedHeaderAddr("X-Real-IP", proxy...)
	for _, tt := range []struct {
		name string
		f    func(*http.Request) (netip.Addr, error)
		r    *http.Request
		want string // "" is no address
		err  error
	}{
		{"the_peer", keyfuncs.RemoteAddr, from("[2001:db8:1:2:3:4:5:6]:80", ""), "2001:db8:1:2:3:4:5:6", nil},
		{"a_mapped_peer", keyfuncs.RemoteAddr, from("[::ffff:203.0.113.9]:80", ""), "203.0.113.9", nil},
		{"a_peer_with_a_zone", keyfuncs.RemoteAddr, from("[fe80::1%eth0]:80", ""), "fe80::1", nil},
		{"a_unix_socket", keyfuncs.RemoteAddr, from("@", ""), "", keyfuncs.ErrNoKey},
		{"a_bad_peer", keyfuncs.RemoteAddr, from("0.0.0.0:80", ""), "", keyfuncs.ErrBadKey},
		{"forwarded", forwarded, from("10.0.0.1:80", "X-Forwarded-For", "198.51.100.1, 2001:db8::1"), "2001:db8::1", nil},
		{"forwarded_by_a_stranger", forwarded, from("203.0.113.9:80", "X-Forwarded-For", "198.51.100.1"), "203.0.113.9", nil},
		{"forwarded_garbage", forwarded, from("10.0.0.1:80", "X-Forwarded-For", "x"), "", keyfuncs.ErrBadKey},
		{"forwarded_with_a_port", forwarded, from("10.0.0.1:80", "X-Forwarded-For", "[2001:db8::1]:80"), "2001:db8::1", nil},
		{"nat64_as_it_came", forwarded, from("10.0.0.1:80", "X-Forwarded-For", "64:ff9b::10.1.2.3"), "64:ff9b::a01:203", nil},
		{"a_nat64_peer_as_it_came", keyfuncs.RemoteAddr, from("[64:ff9b::10.1.2.3]:80", ""), "64:ff9b::a01:203", nil},
		{"an_edge's", edge, from("10.0.0.1:80", "X-Real-IP", "2001:db8::1"), "2001:db8::1", nil},
		{"an_edge's_with_a_port", edge, from("10.0.0.1:80", "X-Real-IP", "203.0.113.9:80"), "203.0.113.9", nil},
		{"an_edge's_garbage", edge, from("10.0.0.1:80", "X-Real-IP", "x"), "", keyfuncs.ErrBadKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			addr, err := tt.f(tt.r)
			got := ""
			if addr.IsValid() {
				got = addr.String()
			}
			check(t, got, err, tt.want, tt.err)
		})
	}
}

// The forms of an address are in TestRemoteIP.
func TestForwardedIP(t *testing.T) {
	badKey := keyfuncs.ErrBadKey
	const proxy = "10.0.0.1:80"
	for _, tt := range []struct {
		name, peer string
		lines      []string
		want       string
		err        error
	}{
		{"a_proxy's_entry_is_the_client", proxy, []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"what_a_client_invents_is_left_of_him", proxy, []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9", nil},
		{"the_last_line_is_the_nearest", proxy, []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9", nil},
		{"lines_are_one_list", proxy, []string{"6.6.6.6, 203.0.113.9", "10.0.0.7", "10.0.0.8, 10.0.0.9"}, "203.0.113.9", nil},
		{"trusted_hops_are_passed", proxy, []string{"6.6.6.6, 203.0.113.9, 10.0.0.7, 10.0.0.8"}, "203.0.113.9", nil},
		{"a_trusted_hop_in_the_middle_does_not_count", proxy, []string{"6.6.6.6, 10.0.0.7, 203.0.113.9, 10.0.0.8"}, "203.0.113.9", nil},
		{"a_mapped_hop_is_recognised", proxy, []string{"1.1.1.1, ::ffff:10.0.0.7"}, "1.1.1.1", nil},
		{"a_mapped_peer_is_recognised", "[::ffff:10.0.0.1]:80", []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"a_mapped_prefix_is_recognised", "172.16.0.1:80", []string{"203.0.113.9, 172.31.255.255"}, "203.0.113.9", nil},
		{"outside_the_mapped_prefix_is_a_client", "172.16.0.1:80", []string{"6.6.6.6, 172.32.0.1"}, "172.32.0.1", nil},
		{"a_v6_proxy_is_recognised", "[2001:db8:ffff::1]:80", []string{"203.0.113.9, 2001:db8:ffff::2"}, "203.0.113.9", nil},
		{"a_zone_does_not_hide_a_proxy", "[2001:db8:ffff::1%eth0]:80", []string{"203.0.113.9, 2001:db8:ffff::2%x"}, "203.0.113.9", nil},
		{"a_v6_client_is_his_64", proxy, []string{"2001:db8:1:2::7"}, "2001:db8:1:2::/64", nil},
		{"spaces_and_tabs_are_trimmed", proxy, []string{"6.6.6.6 ,\t 203.0.113.9\t,  10.0.0.7 "}, "203.0.113.9", nil},
		{"garbage_left_of_the_client_is_not_looked_at", proxy, []string{"junk:{x}\x01,,0.0.0.0, 203.0.113.9"}, "203.0.113.9", nil},
		{"an_empty_line_left_of_the_client_neither", proxy, []string{"", "203.0.113.9"}, "203.0.113.9", nil},

		{"an_untrusted_peer_is_the_client", "203.0.113.9:80", []string{"6.6.6.6"}, "203.0.113.9", nil},
		{"whatever_its_header", "203.0.113.9:80", []string{"\x00{,"}, "203.0.113.9", nil},
		{"and_though_he_invents_a_proxy", "203.0.113.9:80", []string{"6.6.6.6, 10.0.0.1"}, "203.0.113.9", nil},
		{"no_header_is_the_peer", proxy, nil, "10.0.0.1", nil},
		{"only_trusted_ones_are_the_peer", proxy, []string{"10.0.0.9, 10.0.0.8", "::ffff:10.0.0.7"}, "10.0.0.1", nil},

		{"a_v4_port_is_dropped", proxy, []string{"6.6.6.6, 203.0.113.9:5555"}, "203.0.113.9", nil},
		{"a_v6_port_is_dropped", proxy, []string{"6.6.6.6, [2001:db8:1:2::7]:5555"}, "2001:db8:1:2::/64", nil},
		{"brackets_are_dropped", proxy, []string{"[2001:db8:1:2::7]"}, "2001:db8:1:2::/64", nil},
		{"brackets_around_a_mapped_address_are_dropped", proxy, []string{"[::ffff:203.0.113.9]:1"}, "203.0.113.9", nil},
		{"a_trusted_hop_with_a_port_is_passed", proxy, []string{"203.0.113.9:5555, 10.0.0.7:80"}, "203.0.113.9", nil},
		{"a_trusted_hop_in_brackets_is_passed", proxy, []string{"203.0.113.9, [2001:db8:ffff::2], [2001:db8:ffff::3]:80"}, "203.0.113.9", nil},
		{"v6_without_brackets_is_not_split", proxy, []string{"2001:db8:1:2:3:4:5:80"}, "2001:db8:1:2::/64", nil},
		{"nat64_is_its_v4", proxy, []string{"64:ff9b::203.0.113.9"}, "203.0.113.9", nil},
		{"nat64_with_a_port_is_its_v4", proxy, []string{"[64:ff9b::203.0.113.9]:5555"}, "203.0.113.9", nil},
		{"a_hop_in_nat64_is_never_the_trusted_v4", proxy, []string{"203.0.113.9, 64:ff9b::10.1.2.3"}, "10.1.2.3", nil},
		{"nor_is_a_peer_in_nat64", "[64:ff9b::10.1.2.3]:80", []string{"203.0.113.9"}, "10.1.2.3", nil},

		{"a_port_too_large_is_bad", proxy, []string{"203.0.113.9:65536"}, "", badKey},
		{"a_v6_port_too_large_is_bad", proxy, []string{"[2001:db8::1]:65536"}, "", badKey},
		{"no_port_after_the_colon_is_bad", proxy, []string{"203.0.113.9:"}, "", badKey},
		{"nor_after_brackets", proxy, []string{"[2001:db8::1]:"}, "", badKey},
		{"a_port_with_a_sign_is_bad", proxy, []string{"203.0.113.9:+80"}, "", badKey},
		{"a_port_that_is_a_name_is_bad", proxy, []string{"203.0.113.9:http"}, "", badKey},
		{"two_ports_are_bad", proxy, []string{"203.0.113.9:80:80"}, "", badKey},
		{"a_port_alone_is_bad", proxy, []string{":80"}, "", badKey},
		{"v4_in_brackets_is_bad", proxy, []string{"[203.0.113.9]"}, "", badKey},
		{"one_bracket_is_bad", proxy, []string{"[2001:db8::1"}, "", badKey},
		{"brackets_twice_are_bad", proxy, []string{"[[2001:db8::1]]"}, "", badKey},
		{"empty_brackets_are_bad", proxy, []string{"[]"}, "", badKey},
		{"a_space_before_the_port_is_bad", proxy, []string{"203.0.113.9 :80"}, "", badKey},
		{"quotes_are_bad", proxy, []string{"\"[2001:db8::1]:80\""}, "", badKey},
		{"unspecified_in_nat64_is_bad", proxy, []string{"64:ff9b::0.0.0.0"}, "", badKey},
		{"an_empty_header_is_bad", proxy, []string{""}, "", badKey},
		{"a_trailing_comma_is_bad", proxy, []string{"203.0.113.9,"}, "", badKey},
		{"an_empty_entry_is_bad", proxy, []string{"203.0.113.9,,10.0.0.7"}, "", badKey},
		{"a_leading_comma_after_trusted_ones_is_bad", proxy, []string{",10.0.0.7"}, "", badKey},
		{"an_empty_last_line_is_bad", proxy, []string{"203.0.113.9", ""}, "", badKey},
		{"unspecified_is_bad", proxy, []string{"203.0.113.9, 0.0.0.0"}, "", badKey},
		{"unknown_is_bad", proxy, []string{"203.0.113.9, unknown"}, "", badKey},
		{"garbage_behind_trusted_ones_is_bad", proxy, []string{"203.0.113.9, x, 10.0.0.7"}, "", badKey},
		{"no_other_white_space_is_trimmed", proxy, []string{"203.0.113.9\u00a0"}, "", badKey},
		{"nor_a_newline", proxy, []string{"203.0.113.9\n"}, "", badKey},
		{"a_megabyte_of_garbage_is_bad", proxy, []string{strings.Repeat("9", 1<<20)}, "", badKey},

		{"a_unix_socket_has_no_key", "@", []string{"203.0.113.9"}, "", keyfuncs.ErrNoKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := from(tt.peer, "X-Forwarded-For", tt.lines...)
			// Never another header, whatever becomes of the first.
			for _, name := range []string{"X-Real-IP", "X_Forwarded_For", "Forwarded", "True-Client-IP"} {
				if name != "Forwarded" || tt.lines != nil { // alone it is read: see TestForwarded
					r.Header[name] = []string{"6.6.6.6"}
				}
			}
			key, err := keyfuncs.ForwardedIP(prefixes("10.0.0.0/8", "::ffff:172.16.0.0/108", "2001:db8:ffff::1/48")...)(r)
			check(t, key, err, tt.want, tt.err)
		})
	}
}

func TestTrustedHeaderIP(t *testing.T) {
	badKey := keyfuncs.ErrBadKey
	const edge = "10.0.0.1:80"
	for _, tt := range []struct {
		name, peer string
		lines      []string
		want       string
		err        error
	}{
		{"the_edge's_header_is_the_client", edge, []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"of_several_lines_the_last", edge, []string{"6.6.6.6", "203.0.113.9"}, "203.0.113.9", nil},
		{"spaces_and_tabs_are_trimmed", edge, []string{"\t 203.0.113.9 "}, "203.0.113.9", nil},
		{"a_mapped_edge_is_recognised", "[::ffff:10.0.0.1]:80", []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"a_client_at_the_edge_is_himself", edge, []string{"10.0.0.7"}, "10.0.0.7", nil},
		{"no_header_is_the_peer", edge, nil, "10.0.0.1", nil},
		{"an_untrusted_peer_is_the_client", "203.0.113.9:80", []string{"6.6.6.6"}, "203.0.113.9", nil},
		{"whatever_its_header", "203.0.113.9:80", []string{"a:{b}\x01" + strings.Repeat("x", 8192)}, "203.0.113.9", nil},
		{"a_list_is_bad", edge, []string{"6.6.6.6, 203.0.113.9"}, "", badKey},
		{"a_port_is_dropped", edge, []string{"203.0.113.9:5555"}, "203.0.113.9", nil},
		{"and_with_a_port", edge, []string{"[2001:db8:1:2::7]:5555"}, "2001:db8:1:2::/64", nil},
		{"an_edge_in_nat64_is_never_the_trusted_v4", "[64:ff9b::10.0.0.1]:80", []string{"203.0.113.9"}, "10.0.0.1", nil},
		{"an_empty_last_line_is_bad", edge, []string{"203.0.113.9", ""}, "", badKey},
		{"unspecified_is_bad", edge, []string{"::"}, "", badKey},
		{"garbage_is_bad", edge, []string{"not-an-ip:{evil}\x01"}, "", badKey},
		{"a_unix_socket_has_no_key", "@", []string{"203.0.113.9"}, "", keyfuncs.ErrNoKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := from(tt.peer, "CF-Connecting-IP", tt.lines...)
			r.Header.Set("X-Forwarded-For", "6.6.6.6")
			key, err := keyfuncs.TrustedHeaderIP("cf-connecting-ip", prefixes("10.0.0.0/8")...)(r)
			check(t, key, err, tt.want, tt.err)
		})
	}
}

// A peer on a unix socket is trusted only if that was said, and has no address of its own.
func TestUnixSocket(t *testing.T) {
	noKey, badKey := keyfuncs.ErrNoKey, keyfuncs.ErrBadKey
	said, unsaid := append(prefixes("10.0.0.0/8"), keyfuncs.UnixSocket), prefixes("10.0.0.0/8")
	for _, tt := range []struct {
		name, peer string
		trusted    []netip.Prefix
		lines      []string
		want       string
		err        error
	}{
		{"its_header_is_the_client", "@", said, []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"with_an_abstract_name_too", "@nginx", said, []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"with_a_path_too", "/run/nginx.sock", said, []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"the_socket_alone_is_enough", "@", []netip.Prefix{keyfuncs.UnixSocket}, []string{"203.0.113.9:5555"}, "203.0.113.9", nil},
		{"its_text_is_the_same", "@", prefixes("::/128"), []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"not_by_itself", "@", unsaid, []string{"203.0.113.9"}, "", noKey},
		{"never_an_empty_peer", "", said, []string{"203.0.113.9"}, "", noKey},
		{"nor_a_bad_one", "unix", said, []string{"203.0.113.9"}, "", badKey},
		{"an_address_is_not_the_socket", "192.0.2.1:80", said, []string{"203.0.113.9"}, "192.0.2.1", nil},
		{"nor_is_one_of_the_same_host", "127.0.0.1:80", said, []string{"203.0.113.9"}, "127.0.0.1", nil},
		{"the_others_are_trusted_as_well", "10.0.0.1:80", said, []string{"203.0.113.9"}, "203.0.113.9", nil},
		{"without_the_header_there_is_no_key", "@", said, nil, "", noKey},
		{"garbage_is_bad", "@", said, []string{"unix:"}, "", badKey},
		{"an_empty_header_is_bad", "@", said, []string{""}, "", badKey},
		{"the_unspecified_address_is_bad", "@", said, []string{"::"}, "", badKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for header, f := range map[string]keyfuncs.Func{
				"X-Forwarded-For": keyfuncs.Func(keyfuncs.ForwardedIP(tt.trusted...)),
				"X-Real-Ip":       keyfuncs.Func(keyfuncs.TrustedHeaderIP("X-Real-IP", tt.trusted...)),
			} {
				key, err := f(from(tt.peer, header, tt.lines...))
				check(t, key, err, tt.want, tt.err)
			}
			for header, f := range map[string]func(*http.Request) (netip.Addr, error){
				"X-Forwarded-For": keyfuncs.ForwardedAddr(tt.trusted...),
				"X-Real-Ip":       keyfuncs.TrustedHeaderAddr("X-Real-IP", tt.trusted...),
			} {
				addr, err := f(from(tt.peer, header, tt.lines...))
				check(t, strings.Replace(addr.String(), "invalid IP", "", 1), err, tt.want, tt.err)
			}
		})
	}
	forwarded := keyfuncs.ForwardedIP(said...)
	key, err := forwarded(from("@", "X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.0.0.7"))
	check(t, key, err, "203.0.113.9", nil)
	key, err = forwarded(from("@", "X-Forwarded-For", "10.0.0.8, 10.0.0.7")) // trusted ones only
	check(t, key, err, "", noKey)
	_, err = keyfuncs.ForwardedIP(unsaid...)(from("@", "X-Forwarded-For", "203.0.113.9"))
	if err == nil || !strings.Contains(err.Error(), "trust UnixSocket") {
		t.Errorf("%v; want the remedy", err)
	}
}

func BenchmarkRemoteIP(b *testing.B) {
	for name, addr := range map[string]string{"IPv4": "203.0.113.9:4711", "IPv6": "[2001:db8:1:2:3:4:5:6]:4711"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for r := from(addr, ""); b.Loop(); {
				_, _ = keyfuncs.RemoteIP(r)
			}
		})
	}
}
