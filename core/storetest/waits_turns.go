package storetest

// Turns of callers that wait: over several limits, given back, and at a deadline.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"pgregory.net/rapid"
)

// Wait over several limits charges each of them when the turn comes. To charge all when the
// turn is reserved would let others pass in between, or too soon after.
func turnsOfSeveral(t *testing.T, f Fixture) {
	rare, often := rule{kind: funnel, max: 1, n: 1, d: 5_000_000}, rule{kind: bucket, max: 1, n: 1, d: 1_000_000}
	var passed passages
	f.bubble(t, func(store core.Store) {
		alone, both := core.Must(core.New(store, often.limit())), core.Must(core.New(store, rare.limit(), often.limit()))
		passed.start = time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = alone.Wait(context.Background(), "u", "a") })
		}
		synctest.Wait()
		for range 4 {
			all.Go(func() {
				if d, err := both.Wait(context.Background(), "u", "a"); err == nil && d.Allowed {
					passed.add(1)
				}
			})
			time.Sleep(5 * sec)
		}
		all.Wait()
	})
	if len(passed.all) != 4 || rare.exceeded(passed.all) {
		t.Errorf("%s let pass %v", rare.limit(), passed.all)
	}

	quick := rule{kind: bucket, max: 10, n: 1, d: 10_000}
	passed = passages{}
	f.bubble(t, func(store core.Store) {
		slow := core.Funnel(10, core.Every(sec))
		alone, both := core.Must(core.New(store, quick.limit())), core.Must(core.New(store, slow, quick.limit()))
		passed.start = time.Now()
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if d, err := both.WaitN(context.Background(), "v", "a", 10); err == nil && d.Allowed {
					passed.add(10)
				}
			})
			synctest.Wait()
		}
		time.Sleep(10*sec - usec)
		if d, err := alone.AllowN(context.Background(), "v", "a", 10); err == nil && d.Allowed {
			passed.add(10)
		}
		all.Wait()
	})
	if len(passed.all) != 3 || quick.exceeded(passed.all) {
		t.Errorf("%s let pass %v", quick.limit(), passed.all)
	}
}

// handover is how long before its turn core lets the next caller of a process ask.
const handover = 10 * ms

// Many callers of one process or two wait, and all leave at once. Their reserved turns come
// back: the next caller waits only for the actions that have passed. A turn is lost only if
// one of another process, or of a caller who was about to ask, depends on it.
func crowdThatLeaves(t *testing.T, f Fixture) {
	f.refunds(t)
	f.random(t, func(rt *rapid.T, run int) {
		user := fmt.Sprint("u", run)
		r := rule{kind: rapid.SampledFrom([]kind{funnel, bucket}).Draw(rt, "kind"), max: rapid.IntRange(1, 3).Draw(rt, "max"), n: 1}
		r.d = rapid.SampledFrom([]int64{20_000, 100_000, 1_000_000, 7_000_000}).Draw(rt, "d")
		every := us(r.d)
		processes := rapid.IntRange(1, 2).Draw(rt, "processes")
		pauses := rapid.SliceOfN(rapid.Int64Range(0, r.d/2), 1, 40).Draw(rt, "pauses")
		lasts := us(rapid.Int64Range(0, 5*r.d).Draw(rt, "lasts"))
		before := rapid.IntRange(0, r.max).Draw(rt, "before")

		var passed passages
		var waited, own, lost time.Duration
		var err error
		f.bubble(t, func(store core.Store) {
			limiters := []*core.Limiter{core.Must(core.New(store, r.limit())), core.Must(core.New(store, r.limit()))}
			passed.start = time.Now()
			for range before {
				if d, _ := limiters[0].Allow(context.Background(), user, "a"); d.Allowed {
					passed.add(1)
				}
			}
			ctx, leave := context.WithCancel(context.Background())
			defer leave()
			var crowd sync.WaitGroup
			for i, pause := range pauses {
				time.Sleep(us(pause))
				crowd.Go(func() {
					if d, err := limiters[i%processes].Wait(ctx, user, "a"); err == nil && d.Allowed {
						passed.add(1)
					}
				})
			}
			time.Sleep(lasts)
			leave()
			crowd.Wait()
			now := time.Since(passed.start)
			own = max(0, debt(passed.all, every, now)+every-time.Duration(r.max)*every)
			lost = time.Duration(processes-1) * every
			if own <= handover {
				lost += time.Duration(processes) * every
			}
			_, err = limiters[0].Wait(context.Background(), user, "a")
			waited = time.Since(passed.start) - now
		})
		if err != nil || waited < own || waited > own+lost {
			rt.Fatalf("%s, after %v passed: the next caller waited %v, not %v, and at most %v of lost turns; %v",
				r.limit(), passed.all, waited, own, lost, err)
		}
	})
}

// If the callers before it leave, a caller at the end of a queue passes at the turn of the first
// one who canceled.
func stayingCallerMovesUp(t *testing.T, f Fixture) {
	f.refunds(t)
	f.bubble(t, func(store core.Store) {
		l := core.Must(core.New(store, core.Funnel(1, core.Every(sec))))
		if d, err := l.Allow(context.Background(), "u", "a"); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		ctx, leave := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { _, _ = l.Wait(ctx, "u", "a") })
			synctest.Wait()
		}
		start := time.Now()
		all.Go(func() {
			if d, err := l.Wait(context.Background(), "u", "a"); err != nil || !d.Allowed || time.Since(start) != sec {
				t.Errorf("the caller that stayed waited %v: %s, %v", time.Since(start), show(d), err)
			}
		})
		synctest.Wait()
		time.Sleep(500 * ms)
		leave()
		all.Wait()
	})
}

// Callers who stay, each behind callers who leave, get turns of their own: two of them never
// pass together.
func turnsGivenBack(t *testing.T, f Fixture) {
	var passed passages
	f.bubble(t, func(store core.Store) {
		processes := []*core.Limiter{core.Must(core.New(store, core.Funnel(1, core.Every(sec)))), core.Must(core.New(store, core.Funnel(1, core.Every(sec))))}
		passed.start = time.Now()
		var all sync.WaitGroup
		wait := func(ctx context.Context, i int) {
			all.Go(func() {
				if d, err := processes[i%2].Wait(ctx, "u", "a"); err == nil && d.Allowed {
					passed.add(1)
				}
			})
			synctest.Wait()
		}
		wait(context.Background(), 0)
		for i := range 5 {
			ctx, leave := context.WithCancel(context.Background())
			for n := range 9 - i {
				wait(ctx, n)
			}
			wait(context.Background(), i)
			leave()
			synctest.Wait()
		}
		all.Wait()
	})
	if len(passed.all) != 6 {
		t.Errorf("%d passed of the 6 that stayed", len(passed.all))
	}
	for i := 1; i < len(passed.all); i++ {
		if passed.all[i].at-passed.all[i-1].at < sec {
			t.Fatalf("they passed at %v", passed.all)
		}
	}
}

func turnsAtTheDeadline(t *testing.T, f Fixture) {
	f.bubble(t, func(store core.Store) {
		for _, l := range []core.Limit{core.Funnel(1, core.Every(time.Minute)), core.TokenBucket(1, core.Every(time.Minute)), core.SlidingWindow(1, time.Minute)} {
			for after, comes := range map[time.Duration]bool{-usec: false, 0: false, usec: true} {
				user := fmt.Sprint(l, after)
				limiter := core.Must(core.New(store, l))
				if d, err := limiter.Allow(context.Background(), user, "a"); err != nil || !d.Allowed {
					t.Error(d, err)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute+after)
				start := time.Now()
				d, err := limiter.Wait(ctx, user, "a")
				cancel()
				waited := time.Since(start)
				if d.Allowed != comes || errors.Is(err, core.ErrRefused) == comes || comes && (waited != time.Minute || d.ResetAfter != time.Minute) || !comes && waited != 0 {
					t.Errorf("%s, with a deadline %v after the turn: after %v %s, %v", l, after, waited, show(d), err)
				}
			}
		}
	})
	// The turn of a caller in a queue: of a window it is known only that it is not before the first one's.
	for _, tt := range []struct {
		l    core.Limit
		turn time.Duration
	}{{core.Funnel(1, core.Every(time.Minute)), 3 * time.Minute}, {core.SlidingWindow(1, time.Minute), time.Minute}} {
		f.bubble(t, func(store core.Store) {
			limiter := core.Must(core.New(store, tt.l))
			user := "queue of " + tt.l.Identity()
			if d, err := limiter.Allow(context.Background(), user, "a"); err != nil || !d.Allowed {
				t.Error(d, err)
			}
			var all sync.WaitGroup
			defer all.Wait()
			for i := range 2 {
				all.Go(func() {
					if d, err := limiter.Wait(context.Background(), user, "a"); err != nil || !d.Allowed {
						t.Errorf("%s: caller %d: %s, %v", tt.l, i, show(d), err)
					}
				})
				synctest.Wait()
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), tt.turn)
			defer cancel()
			d, err := limiter.Wait(ctx, user, "a")
			if !errors.Is(err, core.ErrRefused) || d.RetryAfter != tt.turn || time.Since(start) != 0 {
				t.Errorf("%s: the third, with its turn at the deadline: after %v %s, %v", tt.l, time.Since(start), show(d), err)
			}
		})
	}
}
