package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Far returns the address of the server at target as it is seen over a network with that
// round-trip time. See StartNetwork.
func Far(t testing.TB, target string, roundTrip time.Duration) (addr string) {
	t.Helper()
	return StartNetwork(t, target, roundTrip).Addr
}

// A Network is between clients and a server.
type Network struct {
	Addr string // 127.0.0.1:port

	opened, requests, replies atomic.Int64 // connections: all, and those whose requests or replies are dropped
}

// Forget has the network drop, from now on and in silence, the replies of all connections that are open,
// and if deaf their requests too.
func (n *Network) Forget(deaf bool) {
	n.replies.Store(n.opened.Load())
	if deaf {
		n.requests.Store(n.opened.Load())
	}
}

// StartNetwork starts a network with that round-trip time in front of the server at target. Whatever is sent
// arrives after half of it, however much is under way. A connection takes one round trip to open. It ends
// with the test.
func StartNetwork(t testing.TB, target string, roundTrip time.Duration) *Network {
	t.Helper()
	network := new(Network)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	closed := false
	track := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return !closed
	}
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		closed = true
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			opened := time.Now().Add(roundTrip)
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			if !track(client) || !track(server) {
				_ = client.Close()
				_ = server.Close()
				return
			}
			number := network.opened.Add(1)
			wg.Go(func() {
				delay(server, client, roundTrip/2, opened, func() bool { return number <= network.requests.Load() })
			})
			wg.Go(func() {
				delay(client, server, roundTrip/2, opened, func() bool { return number <= network.replies.Load() })
			})
		}
	})
	network.Addr = l.Addr().String()
	return network
}

// delay copies what comes from one connection to the other, each piece after the delay, unless it is dropped.
// Nothing is sent on before the connection is open.
func delay(to, from net.Conn, by time.Duration, opened time.Time, dropped func() bool) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			sent := time.Now()
			if sent.Before(opened) {
				sent = opened
			}
			if n > 0 {
				pieces <- piece{b[:n], sent.Add(by)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if dropped() {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range pieces {
	}
}
