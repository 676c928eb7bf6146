package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// The client heeds deadlines at its socket, and not while it waits for a connection.
func TestACallerThatSendsLeavesAtTheTimeout(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolSize: 1, PoolTimeout: patient})
	lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: slack / 2}), kinds[0]))
	for range 3 { // the timer of the first one still runs when the last one starts
		if _, err := lim.Peek(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	conn := rdb.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 2*slack {
		t.Errorf("it took %s", took)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := lim.Peek(t.Context(), user, action); err != nil || d.Remaining != d.Limit {
		t.Errorf("%+v, %v: what was not sent is charged, or the next call fails", d, err)
	}
}

// The client tries for 400 ms to open a connection.
func TestACallerThatSendsIsToldOfARefusedConnection(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: 300 * time.Millisecond}), kinds[0]))
	if _, err := lim.Peek(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

// A connection could not be opened, the server answers again, is demoted, so that the client
// closes its connection, and then its address answers nothing.
func TestACallerThatSendsDoesNotProbe(t *testing.T) {
	_, proxy := proxied(t)
	const refuses, connects, hangs = 0, 1, 2
	var dialer atomic.Int32
	release := make(chan struct{})
	defer close(release)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, PoolSize: 1, DialerRetries: 1, Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		switch dialer.Load() {
		case hangs:
			hang(release)
			fallthrough
		case refuses:
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return net.Dial(network, addr)
	}})
	lim := core.Must(core.New(redisstore.New(rdb, nil), kinds[0]))
	if _, err := lim.Peek(t.Context(), user, action); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
	dialer.Store(connects)
	within(t, "it answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
	proxy.Spoil(say("-READONLY You can't write against a read only replica.\r\n"))
	if _, err := lim.Allow(t.Context(), user, action); !redis.HasErrorPrefix(err, "READONLY") {
		t.Errorf("%v", err)
	}
	dialer.Store(hangs)
	start := time.Now()
	if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
		t.Errorf("%v, not ErrTimeout", err)
	}
	if took := time.Since(start); took > slack {
		t.Errorf("it took %s", took)
	}
}

// Where the client heeds deadlines and nothing is under way, the caller sends its call
// itself: it leaves with the answer, though its context was canceled meanwhile. What comes
// meanwhile is sent by others.
func TestCallerSendsItself(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, plenty))
	if _, err := lim.Peek(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		idle(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		proxy.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
			proxy.Spoil(nil)
			cancel()
			together(3, func(j int) {
				if d, err := lim.Allow(t.Context(), fmt.Sprint("another", i, j), action); err != nil || !d.Allowed {
					t.Errorf("meanwhile: %+v, %v", d, err)
				}
			})
			return reply, false
		})
		if d, err := lim.Allow(ctx, user, action); err != nil || d.Remaining != plenty.Quota()-i-1 {
			t.Errorf("%+v, %v", d, err)
		}
		cancel()
	}
	if n := charged(t, reliable(t, server.Addr), user, plenty); n != 20 {
		t.Errorf("%d are charged", n)
	}
}
