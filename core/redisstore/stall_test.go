//go:build !race

package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// While Redis runs a call it answers no other user. No call takes it long, whatever the
// cost, which a client may choose.
func TestNoCostStallsRedis(t *testing.T) {
	const most, timeout = 1_000_000, 150 * time.Millisecond // a call takes up to 30 ms on a quiet machine
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient}))
	// busy is how long Redis has run the call.
	busy := func(call func() error) time.Duration {
		t.Helper()
		server.Do("CONFIG", "RESETSTAT")
		if err := call(); err != nil {
			t.Fatal(err)
		}
		var calls, us int
		_, stats, _ := strings.Cut(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_fcall:calls=")
		if _, err := fmt.Sscanf(stats, "%d,usec=%d", &calls, &us); err != nil || calls != 1 {
			t.Fatalf("%d calls: %s, %v", calls, stats, err)
		}
		return time.Duration(us) * time.Microsecond
	}
	for _, limit := range []core.Limit{ // the others write a few bytes, whatever the cost
		core.SlidingWindow(10_000, time.Hour), core.SlidingWindow(10_000, time.Hour).CountRefused(),
		core.MovingWindow(most, time.Hour), core.MovingWindow(50*most, time.Hour), core.InFlight(10_000).Lease(time.Hour),
	} {
		half := limit.Quota() / 2
		for _, before := range slices.Compact([]int{0, 1, min(300_000, half), min(450_000, half)}) { // units that are charged already
			cost := min(limit.Quota()-before, most)
			lim := core.Must(core.Must(core.New(store, limit)).With(core.Refundable{}))
			var d core.Decision
			type call struct {
				name string
				do   func() error
			}
			calls := []call{
				{"charge", func() (err error) { d, err = lim.AllowN(t.Context(), user, action, cost); return err }},
				{"charge again", func() error { _, err := lim.AllowN(t.Context(), user, action, cost); return err }},
			}
			if limit.Rule().TakesSlots() {
				calls = append(calls,
					call{"renewal", func() error { return lim.Renew(t.Context(), d) }},
					call{"release", func() error { return lim.Release(t.Context(), d) }})
			} else {
				calls = append(calls, call{"refund", func() error { return lim.Refund(t.Context(), d) }})
			}
			least := map[string]time.Duration{} // of a few tries, since the machine may be busy with other things
			for range 3 {
				server.Do("FLUSHALL")
				if _, err := lim.AllowN(t.Context(), user, action, before); err != nil {
					t.Fatal(err)
				}
				for _, c := range calls {
					took := busy(c.do)
					if old, known := least[c.name]; !known || took < old {
						least[c.name] = took
					}
				}
			}
			t.Logf("%s, %d units after %d: %v", limit, cost, before, least)
			for name, d := range least {
				if d > timeout {
					t.Errorf("%s: the %s of %d units after %d takes %s of Redis", limit, name, cost, before, d)
				}
			}
		}
	}
}
