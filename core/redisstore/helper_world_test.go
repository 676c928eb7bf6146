package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

// A world is a server with its clock in the test's hands.
type world struct {
	name   string
	rdb    *redis.Client
	store  *redisstore.Store
	move   func(time.Duration)
	expiry func(key string) int64 // in Unix milliseconds; -1 if there is none
	now    int64                  // Unix microseconds
}

func (w *world) advance(d time.Duration) {
	w.move(d)
	w.now += d.Microseconds()
}

// newMini is miniredis.NewMiniRedis, or skips the test.
func newMini(t testing.TB) *miniredis.Miniredis {
	t.Helper()
	if strconv.IntSize < 64 {
		t.Skip("miniredis reads PXAT as an int, which is too small here")
	}
	return miniredis.NewMiniRedis()
}

func miniWorld(t testing.TB, protocol int) *world {
	m := newMini(t)
	now := epoch
	m.ClockTTL(true)
	m.SetTime(now)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	rdb := connect(t, &redis.Options{Addr: m.Addr(), Protocol: protocol})
	store, move := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), func() time.Time { return now }, func(d time.Duration) {
		now = now.Add(d)
		m.SetTime(now)
		// Redis keeps the instant at which a key expires, miniredis the time until then.
		for _, k := range m.Keys() {
			if ttl := m.TTL(k); d < 0 && ttl > 0 {
				m.SetTTL(k, ttl-d)
			}
		}
	})
	return &world{
		name: "miniredis", rdb: rdb, now: now.UnixMicro(), move: move, store: store,
		expiry: func(key string) int64 {
			ttl := m.TTL(key)
			if ttl == 0 {
				return -1
			}
			at := now.Add(ttl)
			if at.UnixNano()%1e6 != 0 {
				t.Errorf("%s expires at %s", key, at)
			}
			return at.UnixMilli()
		},
	}
}

func realWorld(t testing.TB, protocol int) *world {
	server, clock := redistest.StartAt(t, epoch)
	rdb := connect(t, &redis.Options{Addr: server.Addr, Protocol: protocol})
	store, move := follow(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), clock.Now, clock.Advance)
	return &world{
		name: "redis", rdb: rdb, now: epoch.UnixMicro(), move: move, store: store,
		expiry: func(key string) int64 {
			at, err := rdb.Do(context.Background(), "pexpiretime", key).Int64()
			if err != nil {
				t.Error(err)
			}
			return at
		},
	}
}

// worlds are both servers, and the real one with both protocols.
func worlds(t *testing.T, test func(t *testing.T, w *world)) {
	t.Run("miniredis", func(t *testing.T) { test(t, miniWorld(t, 3)) })
	for _, protocol := range []int{3, 2} {
		t.Run(fmt.Sprint("redis, RESP", protocol), func(t *testing.T) { test(t, realWorld(t, protocol)) })
	}
}

// dump is all that a server holds: keys, types, values and expiries.
func (w *world) dump(t testing.TB) string {
	t.Helper()
	ctx := context.Background()
	// Unlike KEYS, SCAN has what is past its end be gone for good, also if the clock
	// steps back.
	keys, _, err := w.rdb.Scan(ctx, 0, "*", 10_000).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		at := w.expiry(k)
		if at > 0 && at*1000 <= w.now { // Redis keeps it for the rest of the millisecond
			w.rdb.Del(ctx, k)
			continue
		}
		fmt.Fprintf(&b, "%s %s %d\n", k, w.value(t, k), at)
	}
	return b.String()
}

func (w *world) value(t testing.TB, key string) string {
	t.Helper()
	ctx := context.Background()
	kind, err := w.rdb.Type(ctx, key).Result()
	var value any
	switch kind {
	case "string":
		value, err = w.rdb.Get(ctx, key).Result()
		value = fmt.Sprintf("%q", value)
	case "zset":
		var z []redis.Z
		z, err = w.rdb.ZRangeWithScores(ctx, key, 0, -1).Result()
		parts := []string{}
		for _, e := range z {
			parts = append(parts, fmt.Sprintf("%v@%.6f", e.Member, e.Score))
		}
		value = parts
	case "list":
		value, err = w.rdb.LRange(ctx, key, 0, -1).Result()
	case "hash":
		value, err = w.rdb.HGetAll(ctx, key).Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(kind, " ", value)
}

// bare is a decision without its receipt.
func bare(d core.Decision) core.Decision {
	return core.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter,
		Binding: d.Binding, Reason: d.Reason, Source: d.Source, Shadow: d.Shadow, BanLevel: d.BanLevel, Subject: d.Subject,
	}
}
