package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// If only the old connections are dead, because a NAT or a balancer has forgotten them, Redis decides again within
// half a second. The connections to sentinels live: the client asks the sentinels before it connects. Package batch has the same test of a single server, in which no time is spent.
func TestConnectionsThatTheNetworkForgets(t *testing.T) {
	redistest.Need(t, false)
	type dialer = func(context.Context, string, string) (net.Conn, error)
	for name, open := range map[string]func(dialer) (rdb redis.UniversalClient, addrs []string){
		"Sentinel": func(dial dialer) (redis.UniversalClient, []string) {
			master, replica, sentinels := redistest.StartSentinels(t, "limits")
			var asked []string
			for _, s := range sentinels {
				asked = append(asked, s.Addr)
			}
			return redis.NewFailoverClient(&redis.FailoverOptions{
				MasterName: "limits", SentinelAddrs: asked, Dialer: dial, PoolSize: 50, ContextTimeoutEnabled: true,
			}), []string{master.Addr, replica.Addr}
		},
		"Cluster": func(dial dialer) (redis.UniversalClient, []string) {
			var addrs []string
			for _, s := range redistest.StartCluster(t) {
				addrs = append(addrs, s.Addr)
			}
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: addrs, Dialer: dial, PoolSize: 50, ContextTimeoutEnabled: true, ReadTimeout: 200 * time.Millisecond,
			}), addrs
		},
	} {
		t.Run(name, func(t *testing.T) {
			networks := map[string]*redistest.Network{}
			rdb, addrs := open(func(ctx context.Context, network, addr string) (net.Conn, error) {
				if n := networks[addr]; n != nil {
					addr = n.Addr
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			})
			defer rdb.Close()
			for _, addr := range addrs {
				networks[addr] = redistest.StartNetwork(t, addr, 10*time.Millisecond)
			}
			decidesAgain(t, rdb, networks)
		})
	}
}

// decidesAgain has users ask, and the networks forget their connections.
func decidesAgain(t *testing.T, rdb redis.UniversalClient, networks map[string]*redistest.Network) {
	store := redisstore.New(rdb, nil)
	if err := store.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	lim := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
	var mu sync.Mutex
	var forgotten time.Time
	var first, last time.Duration // after that, of an answer by Redis, and of none
	over := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 30 {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(2 * time.Millisecond):
				}
				begun := time.Now()
				d, err := lim.Allow(t.Context(), fmt.Sprint(user, i), action)
				mu.Lock()
				switch since := time.Since(forgotten); {
				case err != nil:
					t.Error(err)
				case forgotten.IsZero():
				case d.Source != core.SourceStore:
					last = since
				case first == 0 && begun.After(forgotten):
					first = since
				}
				mu.Unlock()
			}
		})
	}
	defer callers.Wait() // also if within fails
	defer close(over)
	for _, deaf := range []bool{false, true} {
		ok := false
		for range 6 { // a busy machine may be late
			time.Sleep(300 * time.Millisecond)
			mu.Lock()
			for _, n := range networks {
				n.Forget(deaf)
			}
			forgotten, first, last = time.Now(), 0, 0
			mu.Unlock()
			within(t, "Redis decides again", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return first > 0
			})
			mu.Lock()
			ok = first <= 500*time.Millisecond
			t.Logf("both ways: %t: Redis decides again after %s; the last call without an answer is after %s", deaf, first, last)
			mu.Unlock()
			if ok {
				break
			}
		}
		if !ok {
			t.Error("that is too long")
		}
	}
}
