package redisstore_test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Redis answers over a slow network, and no more is charged than is answered and under way.
// TAILCUT_FAR=1 runs all cells, one after another: those of 5,000 callers need more than two
// processors. Package batch has the same test without a real Redis, in which no time is spent.
func TestStoreFarAway(t *testing.T) {
	type cell struct{ roundTrip, callers, poolSize int }
	cells := []cell{{40, 80, 20}}
	all := os.Getenv("TAILCUT_FAR") != ""
	if all {
		cells = nil
		for _, roundTrip := range []int{1, 15, 25, 40} {
			for _, callers := range []int{10, 80, 500, 5000} {
				for _, poolSize := range []int{4, 10, 20} {
					cells = append(cells, cell{roundTrip, callers, poolSize})
				}
			}
		}
	}
	for _, c := range cells {
		t.Run(fmt.Sprintf("%d ms, %d callers, PoolSize %d", c.roundTrip, c.callers, c.poolSize), func(t *testing.T) {
			server := redistest.Start(t)
			direct := reliable(t, server.Addr)
			limit := core.FixedWindow(1e9, time.Hour)
			charged(t, direct, user, limit) // the server knows the library from here on
			rdb := connect(t, &redis.Options{Addr: redistest.Far(t, server.Addr, time.Duration(c.roundTrip)*time.Millisecond), PoolSize: c.poolSize})
			store := redisstore.New(rdb, nil)
			lim := core.Must(core.New(store, limit))
			if err := store.Connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			var asked, unanswered [2]atomic.Int64 // in the first two seconds, and after them
			start := time.Now()
			var wg sync.WaitGroup
			for i := range c.callers {
				wg.Go(func() {
					who := fmt.Sprint(user, i)
					for since := time.Since(start); since < 4*time.Second; since = time.Since(start) {
						part := min(1, int(since/(2*time.Second)))
						asked[part].Add(1)
						if _, err := lim.Allow(t.Context(), who, action); err != nil {
							unanswered[part].Add(1)
						}
					}
				})
			}
			stalls := time.Duration(0) // of this process
			for time.Since(start) < 4*time.Second {
				before := time.Now()
				time.Sleep(time.Millisecond)
				if late := time.Since(before); late > 5*time.Millisecond {
					stalls += late
				}
			}
			wg.Wait()
			idle(t, store)
			without := unanswered[0].Load() + unanswered[1].Load() - asked[0].Load() - asked[1].Load()
			for i := range c.callers {
				without += int64(charged(t, direct, fmt.Sprint(user, i), limit))
			}
			part := func(i int) float64 { return float64(unanswered[i].Load()) / float64(max(1, asked[i].Load())) }
			t.Logf("%.2f%% of %d without an answer in the first two seconds, then %.2f%% of %d; %d were charged without an answer; the process stood still for %s",
				100*part(0), asked[0].Load(), 100*part(1), asked[1].Load(), without, stalls.Round(time.Millisecond))
			// A process that stands still for what the timeout leaves makes all calls under way late.
			spare := 50*time.Millisecond - time.Duration(c.roundTrip)*time.Millisecond
			if (part(0) > 0.05 || part(1) > 0.01) && stalls < spare {
				t.Error("too many calls have no answer")
			}
		})
	}
}
