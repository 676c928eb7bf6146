package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// free is how many slots of the user are free.
func free(t testing.TB, l *core.Limiter) int {
	t.Helper()
	d, err := l.Peek(t.Context(), user, action)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// A release or a renewal whose reply is lost may be tried again, and meets no other action's slot.
func TestLostReplyOfARelease(t *testing.T) {
	server, proxy := proxied(t)
	slots := core.InFlight(2).Lease(time.Hour)
	lim := core.Must(core.New(ready(t, redisstore.New(connect(t, &redis.Options{Addr: proxy.Addr}), nil)), slots))
	others := core.Must(core.New(reliable(t, server.Addr), slots))
	take := func(l *core.Limiter) core.Decision {
		t.Helper()
		for {
			d, err := l.Allow(t.Context(), user, action)
			if err == nil && d.Allowed {
				return d
			}
			if err == nil {
				t.Fatalf("%+v", d)
			}
		}
	}
	first := take(others)
	for range 3 {
		server.Do("FLUSHALL")
		d := take(lim)
		for _, do := range []func(context.Context, core.Decision) error{lim.Renew, lim.Release} {
			proxy.Spoil(nil)
			within(t, "it answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
			proxy.Spoil(lose)
			if err := do(t.Context(), d); !errors.Is(err, redisstore.ErrTimeout) {
				t.Fatal(err)
			}
		}
		within(t, "the release is done", func() bool { return free(t, others) == 2 })
		proxy.Spoil(nil)
		proxy.HangUp()
		take(others)
		take(others)
		for range 3 {
			var err error
			for range 5 { // the proxy has hung up
				if err = lim.Release(t.Context(), d); err == nil {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if n := free(t, others); n != 0 {
			t.Fatalf("the second try freed %d slots of others", n)
		}
		if err := lim.Renew(t.Context(), d); err != core.ErrLeaseEnded {
			t.Fatal(err)
		}
	}
	if err := others.Release(t.Context(), first); err != nil { // the server has forgotten it
		t.Fatal(err)
	}
}

// A slot that was taken before an outage is freed in Redis afterwards, and one that the fallback gave is
// freed there.
func TestSlotsOutliveAnOutage(t *testing.T) {
	server := redistest.Start(t)
	slots := core.InFlight(1).Lease(time.Hour)
	memory := memorystore.New(nil)
	lim := core.Must(core.New(core.Fallback(redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), nil), memory), slots))
	inRedis, inMemory := core.Must(core.New(reliable(t, server.Addr), slots)), core.Must(core.New(memory, slots))
	allow := func(want core.Source) core.Decision {
		t.Helper()
		d, err := lim.Allow(t.Context(), user, action)
		if err != nil || !d.Allowed || d.Source != want {
			t.Fatalf("%+v, %v", d, err)
		}
		return d
	}
	before := allow(core.SourceStore)
	server.Pause()
	during := allow(core.SourceFallback)
	if err := lim.Release(t.Context(), before); err == nil {
		t.Fatal("a slot is freed in a server that hangs")
	}
	if n := free(t, inMemory); n != 0 {
		t.Fatalf("%d slots of the fallback are free", n)
	}
	server.Resume()
	within(t, "the slot is freed in Redis", func() bool { return lim.Release(t.Context(), before) == nil })
	if r, m := free(t, inRedis), free(t, inMemory); r != 1 || m != 0 {
		t.Errorf("%d are free in Redis, %d in memory", r, m)
	}
	if err := lim.Release(t.Context(), during); err != nil || free(t, inMemory) != 1 {
		t.Errorf("the slot of the fallback is not freed: %v", err)
	}
}
