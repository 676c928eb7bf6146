package keyfuncs

// What notices that many clients are limited as one address.

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
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
	addrs    []netip.Addr // up to fewAddrs
	ports    [16]uint64   // a bit for each of 1,024 classes
}

const (
	manyPrivate = 500 // requests
	fewAddrs    = 3
	manyPorts   = 100
)

// carriers is the shared address space of [RFC 6598], in which some clusters have their pods and nodes.
//
// [RFC 6598]: https://www.rfc-editor.org/rfc/rfc6598
var carriers = netip.MustParsePrefix("100.64.0.0/10")

// note notes the address of a request, and its peer. It reports true once: if that confirms it.
func (c *crowd) note(addr netip.Addr, remote string) bool {
	if c.over.Load() || addr.IsLoopback() { // a check of the host itself
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over.Load() { // since: warn reads it
		return false
	}
	known := slices.Contains(c.addrs, addr)
	if !known && len(c.addrs) < fewAddrs {
		c.addrs = append(c.addrs, addr)
		known = true
	}
	if !known || !private(addr) {
		c.over.Store(true)
		return false
	}
	if peer, err := netip.ParseAddrPort(remote); err == nil {
		c.ports[peer.Port()%16] |= 1 << (peer.Port() / 16 % 64)
	}
	if c.requests++; c.requests < manyPrivate {
		return false
	}
	c.over.Store(true)
	ports := 0
	for _, some := range c.ports {
		ports += bits.OnesCount64(some)
	}
	return len(c.addrs) == 1 || ports >= manyPorts
}

// warn logs what the crowd has confirmed.
func (c *crowd) warn(maker string) {
	from := "one private address"
	if n := len(c.addrs); n > 1 {
		from = fmt.Sprintf("%d private addresses", n)
	}
	warn("one-private-address", fmt.Sprintf(
		"the first %d requests whose address %s reads came from %s; if they are of more clients, something in between hides these, such as the published port of a container or the node of a cluster, and they share limits: publish the port in host mode, set externalTrafficPolicy: Local, or have a proxy in front send the client's address and use ForwardedIP",
		manyPrivate, maker, from), "address", c.addrs[0])
}

// noteClient notes the client of a request through trusted proxies.
func (s *source) noteClient(addr netip.Addr, remote string) {
	if s.crowd.note(addr, remote) {
		s.crowd.warn(s.maker)
	}
}

// suspects finds clients that may be proxies which are not trusted. In each request of such a
// client, the header names a public address left of the client's, and these addresses are many.
// Others differ: the proxy of an office names private addresses, and a client that makes up
// addresses makes up some that are not public, or sends always the same.
//
// The table has a fixed size. A new client takes the place of one that comes less often.
type suspects struct {
	any   atomic.Bool  // whether there was one
	over  atomic.Bool  // whether one was reported
	looks atomic.Int32 // at how many requests it has looked, up to manyLooks
	mu    sync.Mutex
	table [64]suspect
}

type suspect struct {
	addr    netip.Addr
	left    [2]uint64 // a bit for each of 128 classes of addresses left of it
	credit  int32     // its requests, less those of others that have its place
	cleared bool
}

const manyLeft = 40 // classes: about 50 addresses

var addrSeed = maphash.MakeSeed()

// note counts a request of a client. left is the address left of the client's in the header, or
// invalid. note reports true once: when the suspicion is confirmed.
func (ss *suspects) note(client, left netip.Addr) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := &ss.table[maphash.Comparable(addrSeed, client)%uint64(len(ss.table))]
	if s.addr != client {
		if s.credit--; s.credit > 0 {
			return false
		}
		*s = suspect{addr: client}
	}
	s.credit++
	s.cleared = s.cleared || !left.IsGlobalUnicast() || private(left)
	if s.cleared {
		return false
	}
	ss.any.Store(true)
	class := maphash.Comparable(addrSeed, left) % 128
	s.left[class/64] |= 1 << (class % 64)
	return bits.OnesCount64(s.left[0])+bits.OnesCount64(s.left[1]) >= manyLeft && !ss.over.Swap(true)
}

// clear is for a client that has come without an address left of it.
func (ss *suspects) clear(client netip.Addr) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s := &ss.table[maphash.Comparable(addrSeed, client)%uint64(len(ss.table))]; s.addr == client {
		s.cleared = true
	}
}

// noteLeft notes a client, and what is left of it in a list.
func (s *source) noteLeft(client netip.Addr, l *list, left string) {
	ss := &s.suspects
	switch {
	case ss.over.Load():
		return
	case ss.looks.Load() < manyLooks:
		ss.looks.Add(1)
	case rand.Uint32()%64 > 0:
		return
	}
	if left == "" {
		ss.clear(client)
		return
	}
	if ss.note(client, l.last(left)) {
		warn("one-client", fmt.Sprintf(
			"many requests are limited as one client by %s, and each names an address before that client's in %s, often another one; if the client is a proxy or load balancer of yours or of your CDN, all clients behind it share one limit: give its address to %[1]s too; if you do not know it, it makes the addresses up, and nothing is to be done",
			s.maker, l.name), "client", client)
	}
}

// private reports whether an address is for private networks.
func private(addr netip.Addr) bool { return addr.IsPrivate() || carriers.Contains(addr) }
