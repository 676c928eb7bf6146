//go:build !race

package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// What a key takes in Redis, of which the user and action of 128 bytes at most are a
// part. MEMORY USAGE leaves out the expiry and the slot in the table, some 60 bytes.
func TestMemory(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	usage := func(l core.Limit) int64 {
		t.Helper()
		n, err := rdb.MemoryUsage(t.Context(), store.Key("alice", "reply", l), 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	fill := func(l core.Limit, n int) {
		t.Helper()
		lim := core.Must(core.New(store, l))
		for n > 0 {
			portion := min(n, 10_000)
			if d, err := lim.AllowN(t.Context(), "alice", "reply", portion); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", l, d, err)
			}
			n -= portion
		}
	}
	for i, tc := range []struct {
		limit   core.Limit
		actions int
		most    int64
	}{
		{core.SlidingWindow(5, time.Minute), 1, 150},
		{core.SlidingWindow(5, time.Minute), 5, 260},
		{core.SlidingWindow(100, time.Minute), 100, 3000},
		{core.SlidingWindow(10_000, time.Minute), 10_000, 1_500_000},
		{core.SlidingWindow(5, time.Minute).CountRefused(), 1, 150},
		{core.MovingWindow(5, time.Minute), 1, 130},
		{core.MovingWindow(5, time.Minute), 5, 140},
		{core.MovingWindow(100, time.Minute), 32, 360},
		{core.MovingWindow(100, time.Minute), 100, 900},
		{core.MovingWindow(10_000, time.Minute), 10_000, 85_000},
		{core.FixedWindow(5, time.Minute), 1, 130},
		{core.FixedWindow(1_000_000_000, time.Minute), 1, 140},
		{core.ElasticWindow(5, time.Minute), 1, 130},
		{core.TokenBucket(5, core.Every(time.Minute)), 1, 100},
		{core.TokenBucket(5, core.Every(time.Minute)).Initial(2), 1, 150},
		{core.Funnel(5, core.Every(time.Minute)), 1, 100},
		{core.Funnel(5, core.Per(7, time.Minute)), 1, 130},
	} {
		l := tc.limit.Named(fmt.Sprint("n", i)) // a state of its own
		fill(l, tc.actions)
		n := usage(l)
		t.Logf("%8d bytes, %6d actions: %s", n, tc.actions, tc.limit)
		if n > tc.most {
			t.Errorf("%s with %d actions takes %d bytes, more than %d", tc.limit, tc.actions, n, tc.most)
		}
	}

	const million = 1_000_000
	big := core.MovingWindow(million, time.Minute).Named("million")
	fill(big, million)
	n := usage(big)
	t.Logf("%8d bytes, %d actions, %.3f bytes each: %s", n, million, float64(n)/million, big)
	if float64(n) > 8.5*million {
		t.Errorf("%d bytes for %d actions", n, million)
	}
	if d, err := core.Must(core.New(store, big)).Allow(t.Context(), "alice", "reply"); err != nil || d.Allowed || d.Remaining != 0 {
		t.Errorf("one above a million: %+v, %v", d, err)
	}
}

// A ring at its size takes no more for going round and round.
func TestRingDoesNotGrow(t *testing.T) {
	w := realWorld(t, 3)
	l := core.MovingWindow(1000, time.Second)
	lim := core.Must(core.New(w.store, l))
	key := w.store.Key("alice", "reply", l)
	most := int64(0)
	for range 300 {
		if d, err := lim.AllowN(t.Context(), "alice", "reply", 37); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		n, err := w.rdb.StrLen(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
		w.advance(41 * time.Millisecond)
	}
	if most > 56+7*1000 {
		t.Errorf("%d bytes", most)
	}
	w.advance(time.Second)
	if n := w.rdb.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("it is not gone when whole")
	}
}

// A long ring is copied for nobody's action, so it shrinks only when few of its actions count.
func TestALongRingShrinksWhenItIsShort(t *testing.T) {
	w := realWorld(t, 3)
	l := core.MovingWindow(2_100_000, time.Second)
	lim := core.Must(core.New(w.store, l))
	act := func(n int) (bytes int64) {
		t.Helper()
		if d, err := lim.AllowN(t.Context(), "alice", "reply", n); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		return w.rdb.StrLen(t.Context(), w.store.Key("alice", "reply", l)).Val()
	}
	act(600_000)
	whole := act(1_000_000)
	w.advance(600 * time.Millisecond)
	act(500_000)
	w.advance(500 * time.Millisecond)
	if n := act(1); n < whole {
		t.Errorf("with 500,001 actions it was copied: %d bytes, after %d", n, whole)
	}
	w.advance(600 * time.Millisecond)
	if n := act(1); n > 1000 {
		t.Errorf("with two actions it has %d bytes", n)
	}
}

func BenchmarkAllow(b *testing.B) {
	server := redistest.Start(b)
	rdb := connect(b, &redis.Options{Addr: server.Addr})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	const keys = 10_000
	users := make([]string, keys)
	for i := range users {
		users[i] = fmt.Sprint("user", i)
	}
	type op struct {
		name string
		do   func(user string) error
	}
	ops := []op{{"op=incr", func(user string) error { return rdb.Incr(b.Context(), user).Err() }}}
	for _, l := range []struct {
		name  string
		limit core.Limit
	}{
		{"sliding", core.SlidingWindow(10, time.Second)}, {"refused", core.SlidingWindow(10, time.Second).CountRefused()},
		{"moving", core.MovingWindow(10, time.Second)}, {"fixed", core.FixedWindow(10, time.Second)}, {"elastic", core.ElasticWindow(10, time.Second)},
		{"bucket", core.TokenBucket(10, core.Per(10, time.Second))}, {"initial", core.TokenBucket(10, core.Per(10, time.Second)).Named("i").Initial(5)},
		{"funnel", core.Funnel(10, core.Per(10, time.Second))}, {"throttle", core.Throttle(9, core.Per(10, time.Second)).Named("t")},
	} {
		lim := core.Must(core.New(store, l.limit))
		ops = append(ops, op{"limit=" + l.name, func(user string) error {
			_, err := lim.Allow(b.Context(), user, "reply")
			return err
		}})
	}
	for _, o := range ops {
		for _, goroutines := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/goroutines=%d/keys=%d", o.name, goroutines, keys), func(b *testing.B) {
				server.Do("FLUSHALL")
				b.ReportAllocs()
				b.ResetTimer()
				together(goroutines, func(g int) {
					// Each its share, from a place of its own.
					for i := g; i < b.N; i += goroutines {
						if err := o.do(users[uint64(i)*2654435761%keys]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}
