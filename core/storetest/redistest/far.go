package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Far returns the address of the server at target as it is seen over a network with that
// round-trip time. Whatever is sent arrives after half of it, however much is under way. A
// connection takes one round trip to open. It ends with the test.
func Far(t testing.TB, target string, roundTrip time.Duration) (addr string) {
	t.Helper()
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
			wg.Go(func() { delay(server, client, roundTrip/2, opened) })
			wg.Go(func() { delay(client, server, roundTrip/2, opened) })
		}
	})
	return l.Addr().String()
}

// delay copies what comes from one connection to the other, each piece after the delay. Nothing
// is sent on before the connection is open.
func delay(to, from net.Conn, by time.Duration, opened time.Time) {
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
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range pieces {
	}
}
