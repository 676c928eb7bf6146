package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// everyKind uses all there is of a store once.
func everyKind(t *testing.T, store *redisstore.Store, user string) {
	t.Helper()
	lim := core.Must(core.New(store, kinds...))
	if err := lim.Reset(t.Context(), user, action); err != nil { // all of a user's keys are in one slot
		t.Fatal(err)
	}
	for i := range 6 {
		if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Allowed != (i < 5) {
			t.Fatalf("%s: %+v, %v", user, d, err)
		}
	}
	if h, err := store.History(t.Context(), user, action, kinds[0]); err != nil || len(h) != 5 {
		t.Fatalf("%v, %v", h, err)
	}
	if err := lim.Reset(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	for _, l := range kinds {
		if n := charged(t, store, user, l); n != 0 {
			t.Fatalf("%s: %s: %d are charged after Reset", user, l, n)
		}
	}
}

func TestCluster(t *testing.T) {
	servers := redistest.StartCluster(t)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr)
	}
	open := func() *redis.ClusterClient {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	rdb := open()
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})

	t.Run("users spread over the masters", func(t *testing.T) {
		lim := core.Must(core.New(store, kinds...))
		for i := range 100 {
			if d, err := lim.Allow(t.Context(), fmt.Sprint("user", i, "{x}"), action); err != nil || !d.Allowed {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		total := 0
		for i, s := range servers[:3] {
			var n int
			if _, err := fmt.Sscanf(s.Do("DBSIZE"), ":%d", &n); err != nil {
				t.Fatal(err)
			}
			if n < 15*len(kinds) {
				t.Errorf("master %d has %d keys", i, n)
			}
			total += n
		}
		if total != 100*len(kinds) {
			t.Errorf("%d keys", total)
		}
	})

	t.Run("one command each", func(t *testing.T) {
		count := func() (n int) {
			for _, s := range servers {
				n += calls(t, s.Do, "evalsha") + calls(t, s.Do, "eval")
			}
			return n
		}
		before := count()
		lim := core.Must(core.New(store, kinds...))
		for i := range 50 {
			if _, err := lim.Allow(t.Context(), fmt.Sprint("user", i, "{x}"), action); err != nil {
				t.Fatal(err)
			}
		}
		if n := count() - before; n != 50 {
			t.Errorf("50 decisions take %d scripts", n)
		}
	})

	t.Run("all calls work", func(t *testing.T) {
		for i := range 10 {
			everyKind(t, store, fmt.Sprint("all ", i))
		}
	})

	// A key space of its own for each of the suite's subtests.
	t.Run("conforms", func(t *testing.T) {
		n := 0
		storetest.Run(t, func(t testing.TB) storetest.Fixture {
			n++
			opts := &redisstore.Options{Timeout: patient, Prefix: fmt.Sprint("suite", n)}
			return storetest.Fixture{Store: redisstore.New(rdb, opts), Traces: 40}
		})
	})

	t.Run("a slot that moves", func(t *testing.T) {
		lim := core.Must(core.New(store, kinds[0]))
		who := "moving user"
		if _, err := lim.Allow(t.Context(), who, action); err != nil {
			t.Fatal(err)
		}
		key := store.Key(who, action, kinds[0])
		slot, err := rdb.ClusterKeySlot(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		from := servers[int(slot)*3/16384]
		to := servers[(int(slot)*3/16384+1)%3]
		for _, c := range [][]string{
			{"CLUSTER", "SETSLOT", fmt.Sprint(slot), "IMPORTING", from.Do("CLUSTER", "MYID")},
		} {
			to.Do(c...)
		}
		from.Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "MIGRATING", to.Do("CLUSTER", "MYID"))
		if reply := from.Do("MIGRATE", "127.0.0.1", to.Port, key, "0", "5000"); reply != "+OK" {
			t.Fatal(reply)
		}
		// Its key is over there, which the client is told by ASK, and then by MOVED.
		for i, d := range []core.Decision{{Remaining: 3}, {Remaining: 2}} {
			got, err := lim.Allow(t.Context(), who, action)
			if err != nil || !got.Allowed || got.Remaining != d.Remaining {
				t.Errorf("move %d: %+v, %v", i, got, err)
			}
			for _, s := range []*redistest.Server{to, from} {
				s.Do("CLUSTER", "SETSLOT", fmt.Sprint(slot), "NODE", to.Do("CLUSTER", "MYID"))
			}
		}
	})
}

// A Ring shares keys out by itself; all of a user's go to one server.
func TestRing(t *testing.T) {
	one, two := redistest.Start(t), redistest.Start(t)
	rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "two": two.Addr}})
	t.Cleanup(func() { _ = rdb.Close() })
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, kinds...))
	for i := range 40 {
		if d, err := lim.Allow(t.Context(), fmt.Sprint("user", i, "{x}"), action); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	for _, s := range []*redistest.Server{one, two} {
		var n int
		if _, err := fmt.Sscanf(s.Do("DBSIZE"), ":%d", &n); err != nil || n < 8*len(kinds) || n%len(kinds) != 0 {
			t.Errorf("%d keys, %v", n, err)
		}
	}
	for i := range 10 {
		everyKind(t, store, fmt.Sprint("all ", i))
	}
	n := 0
	open := func(t testing.TB) storetest.Fixture {
		n++
		opts := &redisstore.Options{Timeout: patient, Prefix: fmt.Sprint("suite", n)}
		return storetest.Fixture{Store: redisstore.New(rdb, opts), Traces: 40}
	}
	t.Run("conforms", func(t *testing.T) {
		t.Run("Rules", func(t *testing.T) { storetest.Rules(t, open) })
		t.Run("Trace", func(t *testing.T) { storetest.Trace(t, open) })
	})
}

// A replica that is promoted does not know the script, and goes on counting.
func TestPromotion(t *testing.T) {
	master, replica := redistest.Start(t, "repl-diskless-sync-delay 0"), redistest.Start(t)
	for _, l := range kinds {
		lim := core.Must(core.New(reliable(t, master.Addr), l))
		for range 3 {
			if _, err := lim.Allow(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
		}
	}
	replica.Do("REPLICAOF", "127.0.0.1", master.Port)
	level(t, master, replica)
	live := core.Must(core.New(reliable(t, master.Addr), kinds...)) // replicated as effects, not run again
	if _, err := live.Allow(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	level(t, master, replica)
	master.Kill()
	replica.Do("REPLICAOF", "NO", "ONE")
	store := redisstore.New(connect(t, &redis.Options{Addr: replica.Addr}), &redisstore.Options{Timeout: patient})
	for _, l := range kinds {
		if n := charged(t, store, user, l); n != 4 {
			t.Errorf("%s: %d are charged, not 4", l, n)
		}
		rdb := connect(t, &redis.Options{Addr: replica.Addr})
		if ttl := rdb.PTTL(t.Context(), store.Key(user, action, l)).Val(); ttl <= 0 || ttl > 40*24*time.Hour {
			t.Errorf("%s lives %s", l, ttl)
		}
	}
}
