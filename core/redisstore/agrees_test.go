package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// inBubble connects without the network, which is outside a bubble.
func inBubble(m *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1", // a name would be looked up
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
}

// Both stores, asked the same at the same instants, say the same. Here the app's
// clock is Redis's too, which is the only way to give memorystore one.
func TestAgreesWithMemory(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMini(t)
				m.ClockTTL(true)
				defer m.Close()
				rdb := inBubble(m)
				defer rdb.Close()
				shared, memory := redisstore.New(rdb, nil), memorystore.New(nil)
				r := rand.New(rand.NewPCG(seed, 1))
				limits := []core.Limit{
					core.SlidingWindow(3, time.Second), core.SlidingWindow(3, time.Second).CountRefused(), core.MovingWindow(9, time.Second),
					core.FixedWindow(4, time.Second), core.ElasticWindow(3, time.Second), core.TokenBucket(5, core.Per(7, time.Second)),
					core.TokenBucket(5, core.Per(11, time.Second)).Named("i").Initial(2).ForgetAfter(1500 * time.Millisecond),
					core.Funnel(3, core.Per(3, time.Second)),
				}
				refused := 0
				for step := range 300 {
					time.Sleep(time.Duration(r.IntN(2)*r.IntN(400_000)) * time.Microsecond)
					r.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
					set := limits[:1+r.IntN(3)]
					user, cost := fmt.Sprint(r.IntN(2)), r.IntN(4)
					var d [2]core.Decision
					for i, s := range []core.Store{shared, memory} {
						var err error
						if d[i], err = core.Must(core.New(s, set...)).AllowN(t.Context(), user, action, cost); err != nil {
							t.Fatal(err)
						}
					}
					if d[0] != d[1] {
						t.Fatalf("step %d, %v, cost %d:\nredis %+v\nmemory %+v", step, set, cost, d[0], d[1])
					}
					if !d[0].Allowed {
						refused++
					}
				}
				if refused < 30 {
					t.Errorf("%d were refused", refused)
				}
			})
		})
	}
}

// An app whose clock is decades behind, the bubble's being in the year 2000, and a day
// ahead of itself at every call: windows, bans, turns and what is given back go by
// Redis's. Only a calendar window needs a clock that is not off by more than a period.
func TestAppClockDoesNotMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMini(t)
		m.ClockTTL(true)
		m.SetTime(epoch)
		defer m.Close()
		rdb := inBubble(m)
		defer rdb.Close()
		store := redisstore.New(rdb, nil)
		for _, l := range kinds {
			if l.Rule().Calendar != nil {
				continue
			}
			lim := core.Must(core.Must(core.New(store, l)).With(core.Refundable{}, core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
			var taken core.Decision
			for i := range 7 {
				d, err := lim.Allow(t.Context(), user, l.String())
				if err != nil || d.Allowed != (i < 5) {
					t.Fatalf("%s: %+v, %v", l, d, err)
				}
				if i == 1 { // the first has opened a window, and stays
					taken = d
				}
				time.Sleep(24 * time.Hour) // only here
			}
			reason := core.ReasonBanned
			if l.Rule().TakesSlots() { // whose refusals count towards no ban
				reason = core.ReasonInFlight
			}
			if d, err := lim.Allow(t.Context(), user, l.String()); err != nil || d.Reason != reason || d.RetryAfter < time.Minute {
				t.Errorf("%s: %+v, %v", l, d, err)
			}
			if err := lim.Unban(t.Context(), user, l.String()); err != nil {
				t.Error(err)
			}
			time.Sleep(24 * time.Hour)
			if err := lim.Refund(t.Context(), taken); err != nil {
				t.Error(err)
			}
			if err := lim.Release(t.Context(), taken); err != nil {
				t.Error(err)
			}
			// Of Redis's instant, one is given back; CountRefused is full.
			if d, err := lim.Peek(t.Context(), user, l.String()); err != nil || d.Allowed != (l.Rule().Kind != machine.KindSlidingRefused) {
				t.Errorf("%s: %+v, %v", l, d, err)
			}
		}
		// A turn comes when Redis has said that it does, by whatever clock one sleeps.
		funnel := core.Must(core.New(store, core.Funnel(1, core.Every(time.Minute))))
		for i := range 3 {
			start := time.Now()
			if d, err := funnel.Wait(t.Context(), user, action); err != nil || !d.Allowed || time.Since(start).Truncate(time.Second) != time.Duration(i)*time.Minute {
				t.Errorf("turn %d after %s: %+v, %v", i, time.Since(start), d, err)
			}
		}
	})
}
