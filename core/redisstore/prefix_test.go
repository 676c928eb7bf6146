package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Two applications under one prefix are noticed when the second one starts, once, and an application is not taken
// for another of itself.
func TestTwoApplicationsUnderOnePrefix(t *testing.T) {
	server := redistest.Start(t)
	start := func(app, prefix string, connects bool) (said int, log string) {
		b := logged(t)
		store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient, App: app, Prefix: prefix})
		if connects {
			ready(t, store)
		}
		lim := core.Must(core.New(store, plenty))
		for range 300 {
			allow(t, lim)
		}
		time.Sleep(50 * time.Millisecond) // it goes aside
		return strings.Count(b.String(), "code=redis-shared-prefix"), b.String()
	}
	for _, tc := range []struct {
		app, prefix string
		connects    bool
		said        int
	}{
		{app: "", connects: true}, // this module's own
		{app: "shop", connects: true},
		{app: "shop", connects: true},
		{app: "shop"},
		{app: "forum", connects: true, said: 1},
		{app: "forum", said: 1},
		{app: "forum", prefix: "forum", connects: true},
		{app: "shop"},
	} {
		if n, log := start(tc.app, tc.prefix, tc.connects); n != tc.said {
			t.Errorf("%+v: said %d times: %s", tc, n, log)
		}
	}
	if ttl := server.Do("PTTL", "tailcut:application"); len(ttl) != len(":2592000000") {
		t.Errorf("it is kept for %s", ttl)
	}
}

// Whatever a neighbour keeps under the name, the log has its first bytes only.
func TestALongNameOfAnotherApplicationIsCut(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	b := logged(t)
	if err := rdb.Set(t.Context(), "tailcut:application", "shop"+strings.Repeat("x", 1<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient, App: "shop"}))
	if log := b.String(); strings.Count(log, "code=redis-shared-prefix") != 1 || len(log) > 1000 {
		t.Errorf("the log has %d bytes: %.200s", len(log), log)
	}
}

// A prefix that ends in a colon gives keys with two, and the log says so at start-up.
func TestAPrefixWithItsOwnColonIsLogged(t *testing.T) {
	for prefix, want := range map[string]int{"": 0, "shop": 0, "shop:eu": 0, "shop:": 1} {
		b := logged(t)
		redisstore.New(connect(t, &redis.Options{}), &redisstore.Options{Prefix: prefix})
		if n := strings.Count(b.String(), "code=prefix-colon"); n != want {
			t.Errorf("prefix %q: logged %d times, want %d: %s", prefix, n, want, b)
		}
	}
}
