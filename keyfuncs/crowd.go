package keyfuncs

// Detects that many clients are limited as one address.

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// A crowd detects that the addresses are not those of clients: a container host or cluster nodes
// have replaced the clients' addresses by their own. It looks at the addresses of the first
// manyPrivate requests that do not come from the host itself. It warns if they are one private
// address, or up to fewAddrs private addresses with many ports.
//
// It does not warn about an intranet, where requests come from more private addresses. It also does
// not warn about two or three callers that keep their connections, because they use few ports.
type crowd struct {
	over     atomic.Bool
	mu       sync.Mutex
	requests int
	addrs    []netip.Addr
	ports    classes
}

const (
	manyPrivate = 500 // how many requests are looked at
	fewAddrs    = 3
	manyPorts   = 64 // as classes counts: about 90 different ports
)

// carriers is the shared address space of [RFC 6598]. Some clusters use it for pods and nodes.
//
// [RFC 6598]: https://www.rfc-editor.org/rfc/rfc6598
var carriers = netip.MustParsePrefix("100.64.0.0/10")

// note counts a request from addr. remote is the request's RemoteAddr, and maker is the function
// that has read addr. If the crowd is detected, note logs a warning, once.
func (c *crowd) note(addr netip.Addr, remote, maker string) {
	if c.over.Load() || addr.IsLoopback() { // such as a health check of the host itself
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

// suspects finds proxies that are not trusted, and so are taken for clients. In each request
// through such a proxy, the header has a public address to the left of the proxy's. These addresses
// differ, and there are many. Real clients differ. The proxy of an office adds private addresses. A
// client that invents addresses usually invents some that are not public, or sends the same address
// each time.
//
// The table has a fixed size. A new client takes the place of a client that comes less often.
type suspects struct {
	any   atomic.Bool // a client has been suspected
	over  atomic.Bool // the warning has been logged
	looks sample
	mu    sync.Mutex
	table [64]suspect
}

type suspect struct {
	addr    netip.Addr
	left    classes // of the addresses to its left
	credit  int32   // its requests, less those of other clients with the same place in the table
	cleared bool
}

const manyLeft = 40 // as classes counts: about 50 different addresses

var addrSeed = maphash.MakeSeed()

// note counts a request of a client. left is the address to the left of the client's in the header,
// and invalid if there is none. If the client has had many such addresses, note reports true, once.
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

// noteLeft passes a client to suspects, with the address in the last entry of left. left is the
// text to the left of the client's entry in the header, or the last line of the header if the
// client is the peer. It warns if the client looks like a proxy.
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

// classes estimates how many different numbers were added. Each of its 128 bits stands for a class
// of numbers.
type classes [2]uint64

func (c *classes) add(n uint64) { c[n/64%2] |= 1 << (n % 64) }
func (c *classes) count() int   { return bits.OnesCount64(c[0]) + bits.OnesCount64(c[1]) }

// private reports whether addr is in an address range for private networks.
func private(addr netip.Addr) bool { return addr.IsPrivate() || carriers.Contains(addr) }
