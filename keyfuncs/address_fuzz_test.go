package keyfuncs_test

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tailcut/tailcut/keyfuncs"
)

// FuzzForwardedIP holds the walk to what it means, written down naively: take
// the header as the one list that it is, cut off what is trusted at its end.
func FuzzForwardedIP(f *testing.F) {
	f.Add("10.0.0.1:80", "6.6.6.6, 203.0.113.9\n10.0.0.7", false)
	f.Add("10.0.0.1:80", "6.6.6.6\n203.0.113.9", false)
	f.Add("[::ffff:10.0.0.1]:80", "6.6.6.6,\t::ffff:10.0.0.7", false)
	f.Add("10.0.0.1", "2001:db8:1:2::7, 2001:db8:ffff::1", false)
	f.Add("203.0.113.9:1", "6.6.6.6", false)
	f.Add("10.0.0.1:80", "203.0.113.9:5555", false)
	f.Add("10.0.0.1:80", "[2001:db8::1]:5555, [2001:db8:ffff::1], 10.0.0.7:80", false)
	f.Add("10.0.0.1:80", "[203.0.113.9]:5555", false)
	f.Add("10.0.0.1:80", "64:ff9b::10.1.2.3", false)
	f.Add("[64:ff9b::10.0.0.1]:80", "203.0.113.9", false)
	f.Add("10.0.0.1:80", "203.0.113.9,, 10.0.0.7\n", false)
	f.Add("10.0.0.1:80", "fe80::1%eth0, ::, 0.0.0.0", false)
	f.Add("@", "", true)

	forwarded := keyfuncs.ForwardedIP(prefixes("10.0.0.0/8", "::ffff:172.16.0.0/108", "2001:db8:ffff::/48")...)

	f.Fuzz(func(t *testing.T, peerAddr, header string, absent bool) {
		var lines []string
		if !absent {
			lines = strings.Split(header, "\n")
		}
		r := from(peerAddr, "X-Forwarded-For", lines...)
		got, err := forwarded(r)

		own, ownErr := keyfuncs.RemoteIP(r)
		if ownErr != nil {
			if got != "" || !errors.Is(err, errors.Unwrap(ownErr)) {
				t.Fatalf("no peer: got %q, %v", got, err)
			}
			return
		}
		want, bad := oracle(peerAddr, own, strings.Join(lines, ","), absent)
		if got != want || errors.Is(err, keyfuncs.ErrBadKey) != bad || (err != nil) != bad {
			t.Fatalf("peer %q, header %q: got %q, %v; want %q, bad %v", peerAddr, header, got, err, want, bad)
		}
		if err != nil {
			return
		}
		embedded := strings.Contains(strings.ToLower(header), "64:ff9b") // and trusted by another address
		if got != own && !embedded && trustedByHand(keyAddr(t, got)) {
			t.Fatalf("%q is a proxy, and not the peer", got)
		}
		again, err := keyfuncs.RemoteIP(from(keyAddr(t, got).String(), ""))
		// The first address of some sites, ::/64, is the unspecified one.
		if !keyAddr(t, got).IsUnspecified() && (again != got || err != nil) {
			t.Fatalf("the key %q is not canonical: %q, %v", got, again, err)
		}
	})
}

// oracle answers from the whole header at once. own is the peer's key.
func oracle(peerAddr, own, header string, absent bool) (key string, bad bool) {
	if peer, err := netip.ParseAddr(bare(peerAddr)); err != nil || absent || !trustedByHand(peer) {
		return own, false
	}
	entries := strings.Split(header, ",")
	for len(entries) > 0 {
		entry := strings.Trim(entries[len(entries)-1], " \t")
		entries = entries[:len(entries)-1]
		addr, err := netip.ParseAddr(bare(entry))
		if err != nil {
			return "", true
		}
		b := addr.As16()
		if addr.Is6() && [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b} {
			return nat64ByHand(b)
		}
		if v4 := [4]byte(b[12:]); addr.Is4() || addr.Is4In6() {
			if v4 == [4]byte{} {
				return "", true
			}
			if !trustedByHand(addr) {
				return fmt.Sprintf("%d.%d.%d.%d", v4[0], v4[1], v4[2], v4[3]), false
			}
			continue
		}
		if b == [16]byte{} {
			return "", true
		}
		if !trustedByHand(addr) {
			clear(b[8:])
			return netip.AddrFrom16(b).String() + "/64", false
		}
	}
	return own, false
}

var (
	v4Port = regexp.MustCompile(`^([0-9.]+):([0-9]+)$`)
	v6Port = regexp.MustCompile(`^\[([^\[\]]*:[^\[\]]*)\](?::([0-9]+))?$`)
)

// bare takes the port and the brackets from an address that may have them.
func bare(s string) string {
	for _, form := range []*regexp.Regexp{v4Port, v6Port} {
		if m := form.FindStringSubmatch(s); m != nil {
			if n, err := strconv.ParseUint("0"+m[2], 10, 64); err == nil && n <= 65535 {
				return m[1]
			}
		}
	}
	return s
}

// nat64ByHand is the key of an address in 64:ff9b::/96.
func nat64ByHand(b [16]byte) (key string, bad bool) {
	if [4]byte(b[12:]) == [4]byte{} {
		return "", true
	}
	return fmt.Sprintf("%d.%d.%d.%d", b[12], b[13], b[14], b[15]), false
}

// trustedByHand looks at the bytes: 10/8, 172.16/12, 2001:db8:ffff::/48.
func trustedByHand(addr netip.Addr) bool {
	b := addr.As16()
	if addr.Is4() || addr.Is4In6() {
		return b[12] == 10 || b[12] == 172 && b[13]&0xf0 == 16
	}
	return [6]byte(b[:6]) == [6]byte{0x20, 0x01, 0x0d, 0xb8, 0xff, 0xff}
}

// keyAddr reads a key back: an IPv4 address, or an IPv6 prefix of 64 bits.
func keyAddr(t *testing.T, key string) netip.Addr {
	t.Helper()
	if addr, err := netip.ParseAddr(key); err == nil && addr.Is4() && addr.String() == key {
		return addr
	}
	p, err := netip.ParsePrefix(key)
	if err != nil || p.Bits() != 64 || !p.Addr().Is6() || p.Addr().Is4In6() || p.Masked().String() != key {
		t.Fatalf("%q is not the key of an address", key)
	}
	return p.Addr()
}
