package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

func get(h http.Handler, key string) int {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// passed is how many of 20,000 requests a second pass, which go to the processes in turn.
func passed(t *testing.T, seconds int, processes ...http.Handler) int {
	t.Helper()
	n := 0
	for i := range seconds * 20_000 {
		switch code := get(processes[i%len(processes)], "key-of-acme"); code {
		case http.StatusOK:
			n++
		case http.StatusTooManyRequests:
		default:
			t.Fatalf("request %d: %d", i, code)
		}
		time.Sleep(time.Second / 20_000)
	}
	return n
}

func TestTwoProcessesShareATenantsRequests(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("miniredis reads PXAT as an int, which is too small here")
	}
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		defer server.Close()
		server.ClockTTL(true)
		var processes []http.Handler
		for range 2 {
			rdb := redis.NewClient(&redis.Options{
				Addr:   "127.0.0.1:6379", // a name would be looked up
				Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			})
			defer rdb.Close()
			processes = append(processes, limited(core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil)), http.HandlerFunc(api)))
		}
		start := time.Now()
		n := passed(t, 2, processes...)
		lasted := time.Since(start) // some requests wait for a process's next command
		if most := 10_000 + int(10_000*lasted.Seconds()); n > most || n < most*9/10 {
			t.Errorf("%d requests pass in %s, want at most %d and almost as many", n, lasted, most)
		}
		if commands := server.CommandCount(); commands > n/10 {
			t.Errorf("Redis was sent %d commands for %d requests", commands, n)
		}
		if code := get(processes[0], "key-of-globex"); code != http.StatusOK {
			t.Errorf("another tenant: %d", code)
		}
		if code := get(processes[0], "made-up"); code != http.StatusBadRequest {
			t.Errorf("an unknown key: %d", code)
		}
		time.Sleep(time.Second) // the leases end
	})
}

func TestOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if n := passed(t, 1, limited(memorystore.New(nil), http.HandlerFunc(api))); n != 9_500+9_999 {
			t.Errorf("%d requests pass in a second", n)
		}
	})
}
