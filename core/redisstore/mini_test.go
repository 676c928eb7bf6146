package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
)

func mini(t testing.TB) storetest.Fixture {
	m := miniredis.NewMiniRedis()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	m.ClockTTL(true)
	m.SetTime(now)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	store, advance := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
		// Redis keeps the instant at which a key expires, miniredis the time until then.
		for _, k := range m.Keys() {
			if ttl := m.TTL(k); d < 0 && ttl > 0 {
				m.SetTTL(k, ttl-d)
			}
		}
	})
	return storetest.Fixture{Store: store, Advance: advance, Traces: 30}
}

// The script does not take a kind that it has forgotten for another one.
func TestUnknownKindIsAnError(t *testing.T) {
	limits := []core.Limit{core.SlidingWindow(1, time.Minute)}
	limits[0].Rule().Kind = 0
	d, err := mini(t).Store.Take(t.Context(), core.Charge{User: "u", Action: "a", Limits: limits, Ask: machine.Ask{Cost: 1}})
	if err == nil || !strings.Contains(err.Error(), "no such kind") {
		t.Errorf("%+v, %v", d, err)
	}
}
