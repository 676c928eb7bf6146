package redisstore_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// The client heeds deadlines at its socket, and not while it waits for a connection.
func TestACallerThatSendsLeavesAtTheTimeout(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolSize: 1, PoolTimeout: patient})
	lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: slack / 2}), kinds[0]))
	for range 3 { // the timer of the first one still runs when the last one starts
		if _, err := lim.Peek(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	conn := rdb.Conn()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, redisstore.ErrTimeout) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 2*slack {
		t.Errorf("it took %s", took)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := lim.Peek(t.Context(), user, action); err != nil || d.Remaining != d.Limit {
		t.Errorf("%+v, %v: what was not sent is charged, or the next call fails", d, err)
	}
}

// The client tries for 400 ms to open a connection.
func TestACallerThatSendsIsToldOfARefusedConnection(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: 300 * time.Millisecond}), kinds[0]))
	if _, err := lim.Peek(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := lim.Allow(t.Context(), user, action); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}
