package core_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"pgregory.net/rapid"
)

// Callers who leave a queue take their turns with them: nobody waits behind nobody.
func TestACrowdThatLeavesLeavesNoTurns(t *testing.T) {
	for name, limit := range map[string]core.Limit{
		"funnel": core.Funnel(1, core.Per(50, time.Second)),
		"bucket": core.TokenBucket(1, core.Per(50, time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := core.Must(core.New(memorystore.New(nil), limit))
				ctx, leave := context.WithTimeout(t.Context(), 5*time.Second)
				var crowd sync.WaitGroup
				var passed atomic.Int64
				for range 240 {
					crowd.Go(func() {
						if d, err := l.Wait(ctx, "u", "a"); err == nil && d.Allowed {
							passed.Add(1)
						}
					})
				}
				time.Sleep(200 * time.Millisecond)
				leave()
				crowd.Wait()
				start := time.Now()
				if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				if waited := time.Since(start); waited > 40*time.Millisecond {
					t.Errorf("the next caller waited %s behind nobody", waited)
				}
				if n := passed.Load(); n < 10 || n > 11 { // one every 20 ms
					t.Errorf("%d passed in 200 ms", n)
				}
			})
		})
	}
}

// A caller who is in the middle of the queue and leaves makes it shorter for those behind.
func TestWhoStaysMovesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Second))))
		_, _ = l.Allow(t.Context(), "u", "a")
		leaving, leave := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range 20 {
			crowd.Go(func() { _, _ = l.Wait(leaving, "u", "a") })
			synctest.Wait()
		}
		start := time.Now()
		crowd.Go(func() {
			if _, err := l.Wait(t.Context(), "u", "a"); err != nil {
				t.Error(err)
			}
			if waited := time.Since(start); waited != time.Second {
				t.Errorf("the caller who stayed waited %s", waited)
			}
		})
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		leave()
		crowd.Wait()
	})
}

// A caller that cannot have its turn in time is told at once, though others wait before it.
func TestTheEndOfAQueueIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Second))))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
		defer cancel()
		var crowd sync.WaitGroup
		var passed, refused atomic.Int64
		for range 20 {
			crowd.Go(func() {
				start := time.Now()
				switch d, err := l.Wait(ctx, "u", "a"); {
				case err == nil && d.Allowed:
					passed.Add(1)
				case err == core.ErrRefused && time.Since(start) == 0 && d.RetryAfter > 0:
					refused.Add(1)
				default:
					t.Errorf("%+v, %v after %s", d, err, time.Since(start))
				}
			})
			synctest.Wait()
		}
		crowd.Wait()
		if passed.Load() != 6 || refused.Load() != 14 {
			t.Errorf("%d passed and %d were refused", passed.Load(), refused.Load())
		}
	})
}

// overdrawn reports whether a meter of that capacity and rate could not have let all pass,
// recounted from what passed when.
func overdrawn(at []time.Duration, units []int, capacity int, every time.Duration) bool {
	debt, last := time.Duration(0), time.Duration(0)
	for i := range at {
		debt = max(0, debt-(at[i]-last)) + time.Duration(units[i])*every
		last = at[i]
		if debt > time.Duration(capacity)*every {
			return true
		}
	}
	return false
}

// Whatever limiters share a meter, and whoever waits, leaves or asks without waiting: what
// passes is never more than each meter allows by itself, recounted.
func TestWaitsOverSharedMetersAdmitNoMoreThanEach(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type meter struct {
			capacity int
			every    time.Duration
		}
		draw := func(name string) meter {
			return meter{rapid.IntRange(1, 4).Draw(rt, name), time.Duration(rapid.IntRange(1, 5).Draw(rt, name+" every")) * time.Second}
		}
		a, b := draw("a"), draw("b")
		synctest.Test(t, func(t *testing.T) {
			store := memorystore.New(nil)
			fast := core.TokenBucket(a.capacity, core.Every(a.every))
			slow := core.Funnel(b.capacity, core.Every(b.every))
			limiters := []*core.Limiter{
				core.Must(core.New(store, fast)), core.Must(core.New(store, slow)), core.Must(core.New(store, slow, fast)),
			}
			var mu sync.Mutex
			type passage struct {
				at    time.Duration
				units int
			}
			var passed [2][]passage // through fast, through slow
			start := time.Now()
			note := func(which, units int) {
				mu.Lock()
				defer mu.Unlock()
				for m := range passed {
					if which == m || which == 2 {
						passed[m] = append(passed[m], passage{time.Since(start), units})
					}
				}
			}
			var all sync.WaitGroup
			for range rapid.IntRange(1, 25).Draw(rt, "callers") {
				which, units := rapid.IntRange(0, 2).Draw(rt, "limiter"), rapid.IntRange(1, 2).Draw(rt, "units")
				patience := time.Duration(rapid.IntRange(0, 30).Draw(rt, "patience")) * time.Second
				leaves := rapid.Bool().Draw(rt, "leaves")
				all.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), patience+time.Millisecond)
					defer cancel()
					if leaves {
						time.AfterFunc(patience/2, cancel)
					}
					if d, err := limiters[which].WaitN(ctx, "u", "a", units); err == nil && d.Allowed {
						note(which, units)
					}
				})
				if rapid.Bool().Draw(rt, "at once") {
					if d, err := limiters[which].AllowN(context.Background(), "u", "a", units); err == nil && d.Allowed {
						note(which, units)
					}
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "pause")) * time.Millisecond)
			}
			all.Wait()
			for m, of := range []meter{a, b} {
				var at []time.Duration
				var units []int
				for _, p := range passed[m] {
					at, units = append(at, p.at), append(units, p.units)
				}
				if overdrawn(at, units, of.capacity, of.every) {
					rt.Fatalf("meter %d of %+v let pass %v", m, of, passed[m])
				}
			}
		})
	})
}
