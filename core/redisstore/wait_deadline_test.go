package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// What Wait has charged is charged for a caller that passes, however short the deadlines are beside the
// way to Redis.
func TestWaitChargesNobodyWhoIsLate(t *testing.T) {
	window := core.SlidingWindow(10_000, time.Hour)
	for _, c := range []struct {
		name   string
		limits []core.Limit
		opts   redis.Options
	}{
		{"a deadline", []core.Limit{core.Funnel(40, core.Per(400, time.Second)), window}, redis.Options{}},
		{"a deadline, of a client that heeds it", []core.Limit{core.Funnel(40, core.Per(400, time.Second)), window}, redis.Options{ContextTimeoutEnabled: true}},
		{"a window alone", []core.Limit{window}, redis.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			direct := reliable(t, server.Addr)
			charged(t, direct, user, window) // the server knows the library from here on
			c.opts.Addr = redistest.Far(t, server.Addr, 20*time.Millisecond)
			store := redisstore.New(connect(t, &c.opts), &redisstore.Options{Timeout: patient})
			if err := store.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			lim := core.Must(core.New(store, c.limits...))
			var passed, late, cut atomic.Int64
			var wg sync.WaitGroup
			for i := range 400 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 2 * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(25+i%36)*time.Millisecond)
					defer cancel()
					end, _ := ctx.Deadline()
					switch d, err := lim.Wait(ctx, user, action); {
					case err == nil && d.Allowed:
						passed.Add(1)
					case errors.Is(err, context.DeadlineExceeded) && time.Since(end) >= time.Second: // on a busy machine
						cut.Add(1)
					case errors.Is(err, core.ErrRefused), errors.Is(err, context.DeadlineExceeded):
						late.Add(1)
					default:
						t.Errorf("%+v, %v", d, err)
					}
				})
			}
			wg.Wait()
			idle(t, store)
			if n := int64(charged(t, direct, user, window)); n < max(1, passed.Load()) || n > passed.Load()+cut.Load() {
				t.Errorf("%d units are charged, and %d callers pass; %d are late, and %d got no answer for a second", n, passed.Load(), late.Load(), cut.Load())
			}
		})
	}
}
