//go:build !386 && !arm

package redisstore_test

// The examples run on miniredis, which reads PXAT as an int.

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// exampleRedis is the host:port of a Redis that lives in the test.
func exampleRedis() (addr string, stop func()) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		panic(err)
	}
	return m.Addr(), m.Close
}

// Two processes share a limit. If Redis fails, each decides by itself.
func Example() {
	addr, stop := exampleRedis()
	defer stop()
	process := func() *core.Limiter {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		store := core.Fallback(redisstore.New(rdb, &redisstore.Options{Timeout: time.Second}), memorystore.New(nil))
		return core.Must(core.New(store, core.SlidingWindow(2, time.Minute)))
	}
	one, other := process(), process()
	for _, replies := range []*core.Limiter{one, other, one} {
		d, err := replies.Allow(context.Background(), "alice", "reply")
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

// History reads back the actions of a SlidingWindow.
func ExampleStore_History() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	store := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}), &redisstore.Options{Timeout: time.Minute})
	limit := core.SlidingWindow(2, time.Minute).CountRefused()
	logins := core.Must(core.New(store, limit))
	for range 3 {
		_, _ = logins.Allow(ctx, "alice", "login")
	}
	entries, err := store.History(ctx, "alice", "login", limit)
	for _, e := range entries {
		fmt.Println("admitted:", e.Admitted)
	}
	fmt.Println(err)
	// Output:
	// admitted: true
	// admitted: false
	// <nil>
}

// Two applications on one Redis. The second one keeps its users' names out of Redis.
func ExampleOptions() {
	addr, stop := exampleRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	for _, o := range []*redisstore.Options{
		{Prefix: "forum", Timeout: time.Minute},
		{Prefix: "shop", Timeout: time.Minute, Secret: "from the configuration"},
	} {
		replies := core.Must(core.New(redisstore.New(rdb, o), core.SlidingWindow(2, time.Minute)))
		_, err := replies.Allow(ctx, "alice", "reply")
		fmt.Println(rdb.Keys(ctx, o.Prefix+":*").Val(), err)
	}
	// Output:
	// [forum:{alice}:reply:sliding:1m] <nil>
	// [shop:{^ejFP7c2tYYdrEsaIrOwJsEMQZ6mPLz3-3GzncYoxcjk}:reply:sliding:1m] <nil>
}
