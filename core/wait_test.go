package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// waits runs n waiters that arrive in order, a millisecond apart, and returns who came
// when, in seconds since the first arrived, in the order in which they passed.
func waits(l *core.Limiter, n int) []string {
	start := time.Now()
	passed := make(chan string, n)
	for i := range n {
		go func() {
			d, err := l.Wait(context.Background(), "u", "a")
			if err != nil || !d.Allowed {
				passed <- fmt.Sprint(i, d, err)
				return
			}
			passed <- fmt.Sprintf("%d at %v", i, time.Since(start).Truncate(time.Second))
		}()
		time.Sleep(time.Millisecond)
	}
	var order []string
	for range n {
		order = append(order, <-passed)
	}
	return order
}

// "take turns in the order of arrival"
func TestWaitersPassInOrderAtTheRate(t *testing.T) {
	rate := core.Every(2 * time.Second)
	for _, limits := range [][]core.Limit{
		{core.Funnel(2, rate)},
		{core.TokenBucket(2, rate)},
		{core.TokenBucket(2, rate).Initial(2)},
		{core.Funnel(2, rate), core.TokenBucket(9, core.Every(time.Second)), core.FixedWindow(1, time.Hour).Shadow()},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &flaky{Store: memorystore.New(nil)}
			l := core.Must(core.New(store, limits...))
			got := waits(l, 5)
			want := []string{"0 at 0s", "1 at 0s", "2 at 2s", "3 at 4s", "4 at 6s"}
			if !slices.Equal(got, want) {
				t.Errorf("%v: %v, want %v", limits, got, want)
			}
			if n := store.asked.Load(); n > 8 || len(limits) == 1 && n != 5 { // several limits reserve nothing
				t.Errorf("%v: the store was asked %d times for 5 turns", limits, n)
			}
		})
	}
}

// Windows reserve nothing: whoever waits asks again when RetryAfter is over.
func TestWaitersOfWindowsAskAgain(t *testing.T) {
	for _, limits := range [][]core.Limit{
		{core.SlidingWindow(2, 2*time.Second)},
		{core.MovingWindow(2, 2*time.Second)},
		{core.FixedWindow(2, 2*time.Second)},
		{core.Funnel(2, core.Every(time.Second)), core.FixedWindow(2, 2*time.Second)},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(memorystore.New(nil), limits...))
			count := map[string]int{}
			for _, s := range waits(l, 6) {
				count[s[2:]]++
			}
			if count["at 0s"] != 2 || count["at 2s"] != 2 || count["at 4s"] != 2 {
				t.Errorf("%v: %v", limits, count)
			}
		})
	}
}

// A crowd that waits for a window takes what room there is, and does not come back for
// each bit of it: that would be an ask of everyone for everyone's turn.
func TestACrowdOfWaitersAsksRarely(t *testing.T) {
	for _, limit := range []core.Limit{core.SlidingWindow(100, time.Second), core.MovingWindow(100, time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			store := &flaky{Store: memorystore.New(nil)}
			l := core.Must(core.New(store, limit))
			var passed atomic.Int64
			var wg sync.WaitGroup
			const crowd = 1000
			for range crowd {
				time.Sleep(time.Millisecond)
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					if d, err := l.Wait(ctx, "u", "a"); err != nil && !errors.Is(err, core.ErrRefused) {
						t.Error(err)
					} else if d.Allowed {
						passed.Add(1)
					}
				})
			}
			wg.Wait()
			if n := passed.Load(); n != 300 { // in the three seconds that they are there
				t.Errorf("%s: %d passed", limit, n)
			}
			if n := store.asked.Load(); n > 3*crowd {
				t.Errorf("%s: the store was asked %d times by %d", limit, n, crowd)
			}
		})
	}
}

// While there is room for all, each asks for itself: otherwise a distant store would answer one
// of them at a time.
func TestNobodyWaitsWhileThereIsRoom(t *testing.T) {
	for _, limit := range []core.Limit{core.SlidingWindow(10_000, time.Minute), core.Funnel(10_000, core.Every(time.Minute)), core.FixedWindow(10_000, time.Minute)} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(slow{memorystore.New(nil)}, limit))
			start := time.Now()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed {
						t.Errorf("%s: %+v, %v", limit, d, err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(start); took > 2*latency {
				t.Errorf("%s: it took %s", limit, took)
			}
		})
	}
}

// Those for whom there is no room queue in the order of arrival, however slow the store.
func TestASlowStoreKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(slow{memorystore.New(nil)}, core.Funnel(3, core.Every(10*time.Second))))
		got := waits(l, 6)
		want := []string{"0 at 0s", "1 at 0s", "2 at 0s", "3 at 10s", "4 at 20s", "5 at 30s"}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// A large action that came first is not overtaken by small ones for which there is room.
func TestTheFirstIsNotOvertaken(t *testing.T) {
	for _, limit := range []core.Limit{core.FixedWindow(10, time.Minute), core.SlidingWindow(10, time.Minute), core.Funnel(10, core.Every(6*time.Second))} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(slow{memorystore.New(nil)}, limit))
			if _, err := l.AllowN(t.Context(), "u", "a", 3); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var passed atomic.Int64
			for i, n := range []int{8, 1, 1, 1} {
				wg.Go(func() {
					if _, err := l.WaitN(t.Context(), "u", "a", n); err != nil {
						t.Error(err)
					}
					if at := passed.Add(1); i == 0 && at > 1 {
						t.Errorf("%s: the first is number %d", limit, at)
					}
				})
				time.Sleep(time.Millisecond)
			}
			wg.Wait()
		})
	}
}

func TestAShadowStoreMakesNobodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(core.Shadow(slow{memorystore.New(nil)}), core.SlidingWindow(3, time.Minute)))
		ctx, cancel := context.WithTimeout(t.Context(), 2*latency)
		defer cancel()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				if d, err := l.Wait(ctx, "u", "a"); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestWaitReturnsAtTheExactTurn(t *testing.T) {
	for _, l := range []core.Limit{core.Funnel(1, core.Per(7, time.Second)), core.FixedWindow(1, 142858*time.Microsecond)} {
		synctest.Test(t, func(t *testing.T) {
			lim := core.Must(core.New(memorystore.New(nil), l))
			start := time.Now()
			for i := range 2 {
				if d, err := lim.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed {
					t.Fatalf("%s, action %d: %+v, %v", l, i, d, err)
				}
			}
			if got := time.Since(start); got != 142858*time.Microsecond { // a seventh of a second, rounded up
				t.Errorf("%s: waited %v", l, got)
			}
		})
	}
}

// A caller for whom others make the first one pause is not late before the limit says so.
func TestAPauseDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memorystore.New(nil)}
		others := core.Must(core.New(store.Store, core.FixedWindow(1, time.Second)))
		store.during = func() { _, _ = others.Allow(t.Context(), "u", "a") }
		l := core.Must(core.New(store, core.FixedWindow(1, time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		go func() { _, _ = l.Wait(ctx, "u", "a") }()
		time.Sleep(10*time.Minute + time.Millisecond)
		late, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if d, err := l.Wait(late, "u", "a"); time.Since(start) == 0 {
			t.Errorf("refused at once, though the window is 1 s: %+v, %v", d, err)
		}
		cancel()
	})
}

// What Wait borrows a receipt for is not thereby one that can be given back.
func TestWaitIssuesAReceiptOnlyOnRequest(t *testing.T) {
	l := core.Must(core.New(memorystore.New(nil), core.Funnel(5, core.Every(time.Hour))))
	d, err := l.Wait(t.Context(), "u", "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Refund(t.Context(), d); !errors.Is(err, core.ErrNoReceipt) {
		t.Errorf("without Refundable: %v", err)
	}
	l = core.Must(l.With(core.Refundable{}))
	if d, err = l.Wait(t.Context(), "u", "a"); err != nil {
		t.Fatal(err)
	}
	if err := l.Refund(t.Context(), d); err != nil {
		t.Errorf("with Refundable: %v", err)
	}
	if d, _ = l.Peek(t.Context(), "u", "a"); d.Remaining != 4 {
		t.Errorf("%d remain", d.Remaining)
	}
}

// A funnel beside another limit reserves nothing, so nobody counts its time for those before him.
func TestAFunnelWithRoomDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(slow{memorystore.New(nil)}, core.Funnel(100, core.Every(time.Hour)), core.FixedWindow(1, time.Second)))
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				if d, err := core.WaitAll(t.Context(), time.Minute, l.For("u", "a")); err != nil || !d.Allowed {
					t.Errorf("caller %d: %+v, %v", i, d, err)
				}
			})
		}
		wg.Wait()
	})
}

// One user's queue delays only its own callers.
func TestALongQueueDelaysNoOtherUser(t *testing.T) {
	for _, limit := range []core.Limit{core.Funnel(1, core.Every(time.Hour)), core.SlidingWindow(1000, time.Second)} {
		l := core.Must(core.New(memorystore.New(nil), limit))
		ctx, leave := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range 16_000 {
			crowd.Go(func() { _, _ = l.Wait(ctx, "u", "a") })
		}
		for i := range 100 {
			start := time.Now()
			if d, err := l.Wait(t.Context(), fmt.Sprint("other", i), "a"); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", limit, d, err)
			}
			if took := time.Since(start); took > 300*time.Millisecond {
				t.Errorf("%s: another user waits %s", limit, took)
			}
		}
		leave()
		crowd.Wait()
	}
}

// unissued makes no receipt valid.
type unissued struct{ core.Store }

func (s unissued) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = nil
	}
	return d, r, err
}
