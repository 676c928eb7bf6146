package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
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

// A client that ignores deadlines is logged once, in Connect or after some answers.
func TestAClientThatIgnoresDeadlines(t *testing.T) {
	server := redistest.Start(t)
	single := func(o redis.Options) func() redis.UniversalClient {
		return func() redis.UniversalClient {
			o.Addr = server.Addr
			return redis.NewClient(&o)
		}
	}
	shards := map[string]string{"a": server.Addr}
	for _, tt := range []struct {
		name string
		rdb  func() redis.UniversalClient
		opts *redisstore.Options
		said bool
	}{
		{"as it comes", single(redis.Options{}), nil, true},
		{"without a ReadTimeout", single(redis.Options{ReadTimeout: -1}), nil, true},
		{"a Ring", func() redis.UniversalClient { return redis.NewRing(&redis.RingOptions{Addrs: shards}) }, nil, true},
		{"a type of one's own", func() redis.UniversalClient { return ownClient{single(redis.Options{})().(*redis.Client)} }, nil, true},
		{"it heeds them", single(redis.Options{ContextTimeoutEnabled: true}), nil, false},
		{"a Ring that heeds them", func() redis.UniversalClient {
			return redis.NewRing(&redis.RingOptions{Addrs: shards, ContextTimeoutEnabled: true})
		}, nil, false},
		{"it gives up as soon by itself", single(redis.Options{ReadTimeout: 150 * time.Millisecond}), nil, false},
		{"the store waits as long", single(redis.Options{}), &redisstore.Options{Timeout: time.Minute}, false},
	} {
		for _, connects := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, ", Connect ", connects), func(t *testing.T) {
				log, rdb := logged(t), tt.rdb()
				defer rdb.Close()
				store := redisstore.New(rdb, tt.opts)
				lim := core.Must(core.New(store, plenty))
				const said = "code=client-ignores-deadlines"
				if connects {
					ready(t, ready(t, store)) // twice
				} else {
					for range 99 {
						_, _ = lim.Allow(t.Context(), user, action)
					}
					if strings.Contains(log.String(), said) {
						t.Errorf("said too early: %s", log)
					}
					within(t, "it has answered", func() bool {
						_, err := lim.Allow(t.Context(), user, action)
						return err == nil && (!tt.said || strings.Contains(log.String(), said))
					})
				}
				want := 0
				if tt.said {
					want = 1
				}
				if got := strings.Count(log.String(), said); got != want {
					t.Errorf("said %d times, want %d: %s", got, want, log)
				}
			})
		}
	}
}

// ownClient is a client of another type.
type ownClient struct{ *redis.Client }
