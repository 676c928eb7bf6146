package redisstore_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Connect opens a few connections to a server that is near, and more to one that is far away.
func TestConnect(t *testing.T) {
	server := redistest.Start(t)
	for roundTrip, want := range map[time.Duration][2]uint32{0: {1, 3}, 20 * time.Millisecond: {6, 6}} {
		addr := server.Addr
		if roundTrip > 0 {
			addr = redistest.Far(t, addr, roundTrip)
		}
		rdb := connect(t, &redis.Options{Addr: addr, PoolSize: 6})
		if err := redisstore.New(rdb, nil).Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := rdb.PoolStats().IdleConns; n < want[0] || n > want[1] {
			t.Errorf("%d connections are open to a server %s away", n, roundTrip)
		}
	}
}

// On a Ring it opens connections to each server.
func TestConnectToEachServer(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr, "b": b.Addr}})
	t.Cleanup(func() { _ = ring.Close() })
	connected(t, ring, ring.ForEachShard)
}

// connected calls Connect, and expects a connection to each server.
func connected(t *testing.T, rdb redis.UniversalClient, forEach func(context.Context, func(context.Context, *redis.Client) error) error) {
	t.Helper()
	if err := redisstore.New(rdb, nil).Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = forEach(t.Context(), func(_ context.Context, c *redis.Client) error {
		if c.PoolStats().IdleConns == 0 {
			t.Errorf("no connection is open to a server of a %T", rdb)
		}
		return nil
	})
}

// Connect does not wait longer than its caller, and says why there is no connection.
func TestConnectWithoutAServer(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	rdb := connect(t, &redis.Options{Addr: hung.Addr().String()})
	start := time.Now()
	if err := redisstore.New(rdb, nil).Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(start); took > slack {
		t.Errorf("it took %s", took)
	}
	var op *net.OpError
	if err := redisstore.New(connect(t, &redis.Options{Addr: closed, DialerRetries: 1}), nil).Connect(t.Context()); !errors.As(err, &op) {
		t.Error(err)
	}
}
