package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// TestRealRedisConforms is not run under the race detector, and this part of it is.
func TestManyGoroutinesOnRealRedis(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartAt(t, epoch)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	open := func(t testing.TB) storetest.Fixture {
		server.Do("FLUSHALL")
		store, advance := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), clock.Now, clock.Advance)
		return storetest.Fixture{Store: store, Advance: advance, Now: clock.Now}
	}
	t.Run("Concurrent", func(t *testing.T) { storetest.Concurrent(t, open) })
	t.Run("Waits", func(t *testing.T) { storetest.Waits(t, open) })
}
