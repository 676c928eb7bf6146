package keyfuncs

// What notices that many clients are limited as one address.

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// A crowd detects that the peers are not the clients, but a container host or nodes that hide the
// clients. It looks at the first requests with a private address and without a header that names a
// client. It warns if these have few addresses, and, if there are several addresses, also many
// ports. It does not warn about an intranet, where many private addresses come, or about callers
// that keep their connections.
type crowd struct {
	over     atomic.Bool
	mu       sync.Mutex
	requests int
	addrs    []netip.Addr
	ports    classes
}

const (
	manyPrivate = 500 // requests
	fewAddrs    = 3
	manyPorts   = 64 // classes: about 90 ports
)

// carriers is the shared address space of [RFC 6598], in which some clusters have their pods and nodes.
//
// [RFC 6598]: https://www.rfc-editor.org/rfc/rfc6598
var carriers = netip.MustParsePrefix("100.64.0.0/10")

// note counts a request that comes from addr. maker reads the address, and remote is the request's
// RemoteAddr. note warns once: when the crowd is detected.
func (c *crowd) note(addr netip.Addr, remote, maker string) {
	if c.over.Load() || addr.IsLoopback() { // a check of the host itself
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.addrs, addr) {
		c.addrs = append(c.addrs, addr)
	}
	if c.over.Load() || len(c.addrs) > fewAddrs || !private(addr) {
		c.over.Store(true)
		return
	}
	if peer, err := netip.ParseAddrPort(remote); err == nil {
		c.ports.add(uint64(peer.Port()))
	}
	if c.requests++; c.requests < manyPrivate {
		return
	}
	c.over.Store(true)
	from := "one private address"
	if n := len(c.addrs); n > 1 {
		from = fmt.Sprintf("%d private addresses", n)
		if c.ports.count() < manyPorts {
			return
		}
	}
	warn("one-private-address", fmt.Sprintf(
		"the first %d requests whose address %s reads came from %s; if they are of more clients, something in between hides these, such as the published port of a container or the node of a cluster, and they share limits: publish the port in host mode, set externalTrafficPolicy: Local, or have a proxy in front send the client's address and use ForwardedIP",
		manyPrivate, maker, from), "address", c.addrs[0])
}

// suspects finds clients that may be proxies which are not trusted. In each request of such a
// client, the header names a public address left of the client's, and these addresses are many.
// Others differ: the proxy of an office names private addresses, and a client that makes up
// addresses makes up some that are not public, or sends always the same.
//
// The table has a fixed size. A new client takes the place of one that comes less often.
type suspects struct {
	any   atomic.Bool // whether there was one
	over  atomic.Bool // whether one was reported
	looks sample
	mu    sync.Mutex
	table [64]suspect
}

type suspect struct {
	addr    netip.Addr
	left    classes // of addresses left of it
	credit  int32   // its requests, less those of others that have its place
	cleared bool
}

const manyLeft = 40 // classes: about 50 addresses

var addrSeed = maphash.MakeSeed()

// note counts a request of a client. left is the address left of the client's in the header, or
// invalid. note reports true once: when the suspicion is confirmed.
func (ss *suspects) note(client, left netip.Addr) bool {
	public := left.IsGlobalUnicast() && !private(left)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := &ss.table[maphash.Comparable(addrSeed, client)%uint64(len(ss.table))]
	if s.addr != client {
		if !public {
			return false
		}
		if s.credit--; s.credit > 0 {
			return false
		}
		*s = suspect{addr: client}
	}
	s.credit++
	if s.cleared = s.cleared || !public; s.cleared {
		return false
	}
	ss.any.Store(true)
	s.left.add(maphash.Comparable(addrSeed, left))
	return s.left.count() >= manyLeft && !ss.over.Swap(true)
}

// noteLeft notes a client, and what is left of it in a list.
func (s *source) noteLeft(l *list, client netip.Addr, left string) {
	if s.suspects.over.Load() || !s.suspects.looks.next() {
		return
	}
	node, _, _ := l.last(left)
	if addr, _ := parseAddress(node); s.suspects.note(client, addr) {
		warn("one-client", fmt.Sprintf(
			"many requests are limited as one client by %s, and each names an address before that client's in %s, often another one; if the client is a proxy or load balancer of yours or of your CDN, all clients behind it share one limit: give its address to %[1]s too; if you do not know it, it makes the addresses up, and nothing is to be done",
			s.maker, l.name), "client", client)
	}
}

// classes says how many different numbers there were, roughly: it has a bit for each of 128 classes.
type classes [2]uint64

func (c *classes) add(n uint64) { c[n/64%2] |= 1 << (n % 64) }
func (c *classes) count() int   { return bits.OnesCount64(c[0]) + bits.OnesCount64(c[1]) }

// private reports whether an address is for private networks.
func private(addr netip.Addr) bool { return addr.IsPrivate() || carriers.Contains(addr) }
