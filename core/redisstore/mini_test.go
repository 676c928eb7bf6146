package redisstore_test

import (
	"fmt"
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

// A kind that has no machine in Lua fails its own charge only.
func TestUnknownKindIsAnError(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		reply, err := w.rdb.Eval(t.Context(), redisstore.Script, []string{"a", "b", "c"}, "1 fixed 1,5,1000000", "1 new 1,2,3", "1 fixed 1,5,1000000").Result()
		if want := "[3 1000000 !no such kind: new 3 1000000]"; err != nil || fmt.Sprint(reply) != want {
			t.Errorf("%v, %v; want %s", reply, err, want)
		}
	})
}
