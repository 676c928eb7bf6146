package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
)

// newMini is miniredis.NewMiniRedis, or skips the test.
func newMini(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("miniredis reads PXAT as an int, which is too small here")
	}
	return miniredis.NewMiniRedis()
}

func mini(t testing.TB) storetest.Fixture {
	m := newMini(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	m.ClockTTL(true)
	m.SetTime(now)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	store, advance := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), func() time.Time { return now }, func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
		// Redis keeps the instant at which a key expires, miniredis the time until then.
		for _, k := range m.Keys() {
			if ttl := m.TTL(k); d < 0 && ttl > 0 {
				m.SetTTL(k, ttl-d)
			}
		}
	})
	return storetest.Fixture{Store: store, Advance: advance, Now: func() time.Time { return now }, Traces: 30}
}
