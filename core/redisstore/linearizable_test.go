package redisstore_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
)

// Combined or not, and whatever becomes of the replies, every call happens at one
// instant, or is an error and happens once or never.
func TestLinearizableWithFaults(t *testing.T) {
	t.Parallel()
	server, proxy := proxied(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	var corrupt atomic.Int64
	proxy.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
		switch random(40) {
		case 0:
			corrupt.Add(1)
			return nil, true
		case 1:
			corrupt.Add(1)
			return reply[:len(reply)/2], true
		case 2, 3, 4, 5:
			time.Sleep(time.Duration(random(10)) * time.Millisecond)
		}
		return reply, false
	})
	for _, c := range clients {
		if c.name != "Client" && c.name != "ClusterClient" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			rdb := c.open(proxy.Addr)
			t.Cleanup(func() { _ = rdb.Close() })
			storetest.Linearizable(t, func(testing.TB) storetest.Fixture {
				server.Do("FLUSHALL")
				return storetest.Fixture{Store: redisstore.New(rdb, &redisstore.Options{Timeout: 100 * time.Millisecond}), Now: time.Now}
			})
			if corrupt.Swap(0) == 0 {
				t.Error("no reply was corrupt")
			}
		})
	}
}
