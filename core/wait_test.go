package core_test

import (
	"cmp"
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
	"github.com/tailcut/tailcut/core/machine"
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

func TestWaitRefusesAtOnceWhatCannotPassInTime(t *testing.T) {
	for _, tt := range []struct {
		name     string
		l        core.Limit
		patience time.Duration
		cost     int
		passes   bool
	}{
		{"a funnel's turn after the deadline", core.Funnel(1, core.Every(time.Minute)), time.Minute - time.Microsecond, 1, false},
		{"a funnel's turn at the deadline", core.Funnel(1, core.Every(time.Minute)), time.Minute, 1, false},
		{"a funnel's turn before the deadline", core.Funnel(1, core.Every(time.Minute)), time.Minute + time.Microsecond, 1, true},
		{"a bucket's turn after the deadline", core.TokenBucket(1, core.Every(time.Minute)), time.Minute - time.Microsecond, 1, false},
		{"a window's end after the deadline", core.FixedWindow(1, time.Minute), time.Minute - time.Microsecond, 1, false},
		{"a window's end before the deadline", core.FixedWindow(1, time.Minute), time.Minute + time.Millisecond, 1, true},
		{"a cost that never passes", core.Funnel(1, core.Every(time.Minute)), time.Hour, 2, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(memorystore.New(nil), tt.l))
			if d, err := l.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.patience)
			defer cancel()
			start := time.Now()
			d, err := l.WaitN(ctx, "u", "a", tt.cost)
			if errors.Is(err, core.ErrRefused) == tt.passes || d.Allowed != tt.passes {
				t.Errorf("%s: %+v, %v", tt.name, d, err)
			}
			if !tt.passes && (time.Since(start) != 0 || d.Reason != core.ReasonLimited || d.RetryAfter < time.Minute) {
				t.Errorf("%s: refused after %v: %+v", tt.name, time.Since(start), d)
			}
			if before, _ := l.Peek(t.Context(), "u", "a"); !tt.passes && before.RetryAfter != time.Minute {
				t.Errorf("%s: the refusal was charged: %+v", tt.name, before)
			}
		})
	}
}

// Wait asks ever more rarely while other processes take its turn. It asks in time
// nonetheless, and has its turn if that comes before the deadline.
func TestAWaitThatOthersOvertakeEndsBeforeItsDeadline(t *testing.T) {
	for _, patience := range []time.Duration{5500 * time.Millisecond, 20500 * time.Millisecond, 60500 * time.Millisecond, 61 * time.Second} {
		for _, free := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				store := &flaky{Store: memorystore.New(nil)}
				others := core.Must(core.New(store.Store, core.FixedWindow(1, time.Second)))
				store.during = func() {
					if !free || time.Since(start) < patience-1100*time.Millisecond {
						_, _ = others.Allow(t.Context(), "u", "a")
					}
				}
				l := core.Must(core.New(store, core.FixedWindow(1, time.Second)))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				d, err := l.Wait(ctx, "u", "a")
				took := time.Since(start)
				if free && (err != nil || !d.Allowed || took >= patience) {
					t.Errorf("%v, then free: %+v, %v after %v", patience, d, err, took)
				}
				if !free && (!errors.Is(err, core.ErrRefused) || d.Allowed || d.RetryAfter != time.Second || took >= patience) {
					t.Errorf("%v, never free: %+v, %v after %v", patience, d, err, took)
				}
				if n := store.asked.Load(); n > 60 {
					t.Errorf("%v: the store was asked %d times", patience, n)
				}
			})
		}
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

// Those who wait learn that the store fails as soon as the first of them does.
func TestAllWaitersLearnOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &flaky{err: errDown, during: func() { time.Sleep(time.Second) }}
		l := core.Must(core.New(down, core.SlidingWindow(5, time.Minute)))
		var wg sync.WaitGroup
		start := time.Now()
		for range 100 {
			wg.Go(func() {
				if _, err := l.Wait(t.Context(), "u", "a"); !errors.Is(err, errDown) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A caller that leaves while it asks is no outage: the others go on to ask one after the other.
func TestAWaiterThatLeavesIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		store := &flaky{Store: memorystore.New(nil)}
		store.during = func() { time.Sleep(latency) }
		l := core.Must(core.New(heeding{store}, core.FixedWindow(1, time.Second)))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := l.Wait(ctx, "u", "a"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				_, _ = core.WaitAll(t.Context(), 10*latency, l.For("u", "a"))
			})
		}
		time.Sleep(latency / 2)
		leave()
		time.Sleep(latency)
		if n := store.asked.Load(); n != 2 {
			t.Errorf("the store was asked %d times", n)
		}
		wg.Wait()
	})
}

// heeding is a store that tells its caller of a context that ended meanwhile.
type heeding struct{ *flaky }

func (s heeding) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.flaky.Take(ctx, c)
	return d, r, cmp.Or(err, ctx.Err())
}

// Another process may take a turn in between. Whoever is late by that learns it with the next answer.
func TestATurnThatMovesBackRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memorystore.New(nil)
		process := func() *core.Limiter {
			return core.Must(core.New(store, core.Funnel(1, core.Every(time.Second))))
		}
		here, there := process(), process()
		if _, err := here.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		start := time.Now()
		for i, l := range []*core.Limiter{here, here, here, there} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
				defer cancel()
				_, err := l.Wait(ctx, "u", "a")
				if refused := errors.Is(err, core.ErrRefused); refused != (i == 2) || refused && time.Since(start) > time.Second {
					t.Errorf("caller %d: %v after %s", i, err, time.Since(start))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// A turn that comes too late only because the store is slow is refused like any other.
func TestAWaitThatASlowStoreMakesLateIsRefused(t *testing.T) {
	for _, limit := range []core.Limit{core.FixedWindow(1, time.Second), core.Funnel(1, core.Every(time.Second))} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(slow{memorystore.New(nil)}, limit))
			if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second-latency/2)
			defer cancel()
			if d, err := l.Wait(ctx, "u", "a"); !errors.Is(err, core.ErrRefused) || d.Allowed || d.Limit != 1 {
				t.Errorf("%s: %+v, %v", limit, d, err)
			}
		})
	}
}

// Who gives up makes room for who comes next, and wakes nobody early.
func TestACanceledWaitGivesItsTurnBack(t *testing.T) {
	rate := core.Every(10 * time.Second)
	for _, limits := range [][]core.Limit{{core.Funnel(1, rate)}, {core.TokenBucket(1, rate).Initial(1)}} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(memorystore.New(nil), limits...))
			if d, err := l.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error)
			go func() {
				_, err := l.Wait(ctx, "u", "a")
				left <- err
			}()
			synctest.Wait()
			if d, _ := l.Peek(t.Context(), "u", "a"); d.RetryAfter != 20*time.Second {
				t.Errorf("a turn is reserved: %+v", d)
			}
			time.Sleep(4 * time.Second)
			cancel()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("the wait that was canceled: %v", err)
			}
			if d, _ := l.Peek(t.Context(), "u", "a"); d.RetryAfter != 6*time.Second {
				t.Errorf("%v: the turn was not given back: %+v", limits, d)
			}
			start := time.Now()
			if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed || time.Since(start) != 6*time.Second {
				t.Errorf("who comes next: %+v, %v, after %v", d, err, time.Since(start))
			}
		})
	}
}

// slow is a store on a network.
type slow struct{ *memorystore.Store }

const latency = 20 * time.Millisecond

func (s slow) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	time.Sleep(latency / 2)
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	time.Sleep(latency / 2)
	return d, r, err
}

func (s slow) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	time.Sleep(latency)
	return s.Store.Amend(ctx, r, a)
}

// The next caller asks when the turn has been given back, and not before: or it would queue
// behind a caller who has left.
func TestATurnIsGivenBackBeforeTheNextCallerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(slow{memorystore.New(nil)}, core.Funnel(1, core.Every(time.Second))))
		if d, err := l.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		start := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := l.Wait(ctx, "u", "a"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed || time.Since(start) != time.Second {
				t.Errorf("%+v, %v after %v", d, err, time.Since(start))
			}
		})
		time.Sleep(time.Second / 2)
		leave()
		all.Wait()
	})
}

// A caller that comes while a turn is given back, or after that, is not refused for the turn of the
// caller that has left.
func TestACanceledTurnRefusesNobody(t *testing.T) {
	for _, after := range []time.Duration{latency / 2, 3 * latency / 2} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(slow{memorystore.New(nil)}, core.Funnel(10, core.Every(time.Minute))))
			if d, err := l.AllowN(t.Context(), "u", "a", 10); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			start := time.Now()
			var all sync.WaitGroup
			ctx, leave := context.WithCancel(t.Context())
			all.Go(func() {
				if _, err := l.WaitN(ctx, "u", "a", 10); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			all.Go(func() {
				if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed {
					t.Error(d, err)
				}
			})
			time.Sleep(time.Second)
			leave()
			time.Sleep(after)
			patient, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if d, err := l.Wait(patient, "u", "a"); err != nil || !d.Allowed || time.Since(start).Round(time.Second) != 2*time.Minute {
				t.Errorf("%v after it: %+v, %v after %v", after, d, err, time.Since(start))
			}
			all.Wait()
		})
	}
}

func TestCanceledWaitersOfAWindowWriteNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Minute)))
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := l.Wait(ctx, "u", "a")
			if want := ctx.Err(); err != nil && !errors.Is(err, want) {
				t.Error(err)
			}
			cancel()
		}
		time.Sleep(time.Minute)
		if d, _ := l.Peek(t.Context(), "u", "a"); d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
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

func TestWaitDoesNotAskForTheImpossible(t *testing.T) {
	store := &flaky{Store: memorystore.New(nil)}
	l := core.Must(core.New(store, core.Funnel(5, core.Every(time.Hour))))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx          context.Context
		user, action string
		n            int
		want         error
	}{
		{t.Context(), "", "a", 1, core.ErrNoUser},
		{t.Context(), "u", "", 1, core.ErrNoAction},
		{t.Context(), "u", "a", -1, core.ErrCost},
		{done, "u", "a", 1, context.Canceled},
	} {
		if _, err := l.WaitN(tt.ctx, tt.user, tt.action, tt.n); !errors.Is(err, tt.want) || store.asked.Load() > 0 {
			t.Errorf("%+v: %v, want %v", tt, err, tt.want)
		}
	}
	if d, err := l.WaitN(t.Context(), "u", "a", 0); err != nil || !d.Allowed || d.Remaining != 5 {
		t.Errorf("a cost of 0: %+v, %v", d, err)
	}
	store.err = errDown
	if _, err := l.Wait(t.Context(), "u", "a"); !errors.Is(err, errDown) {
		t.Errorf("a store that fails: %v", err)
	}
}

// A caller that cannot have its turn in time is told at once, though others wait before it.
func TestWaitersLearnAtOnceThatTheirTurnIsGone(t *testing.T) {
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

// A turn exactly at the end of WaitAll is in time, and a later one is refused at once. An answer that
// comes after the end counts.
func TestWaitAllEnds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		most  time.Duration
		after time.Duration // -1: refused at once
	}{
		{"at the end", time.Second, time.Second},
		{"after the end", time.Second - time.Microsecond, -1},
		{"without a wait", 0, -1},
		{"a negative number", -time.Hour, -1},
		{"longer than a year", core.Never, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Every(time.Second))))
				for i := range 2 {
					start := time.Now()
					d, err := core.WaitAll(t.Context(), tt.most, l.For("u", "a"))
					took := time.Since(start)
					switch {
					case i == 0 || tt.after >= 0:
						if err != nil || !d.Allowed || took != time.Duration(i)*tt.after {
							t.Errorf("%d: %+v, %v after %s", i+1, d, err, took)
						}
					case !errors.Is(err, core.ErrRefused) || d.Allowed || d.RetryAfter != time.Second || took != 0:
						t.Errorf("%d: %+v, %v after %s", i+1, d, err, took)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(slow{memorystore.New(nil)}, core.FixedWindow(1, time.Second)))
		if d, err := core.WaitAll(t.Context(), latency/2, l.For("u", "a")); err != nil || !d.Allowed {
			t.Errorf("the answer comes after the end: %+v, %v", d, err)
		}
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

// The turns of those in front have fractions of a microsecond, which add up.
func TestTheRetryAfterOfARefusedWaitErrsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(memorystore.New(nil), core.Funnel(1, core.Per(3, time.Second))))
		start := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		var queue sync.WaitGroup
		for range 21 { // the first passes at once
			queue.Go(func() { _, _ = l.Wait(ctx, "u", "a") })
			synctest.Wait()
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d, err := l.Wait(late, "u", "a")
		turn := 7*time.Second - time.Since(start)
		if !errors.Is(err, core.ErrRefused) || d.RetryAfter < turn || d.RetryAfter > turn+2*time.Microsecond {
			t.Errorf("%+v, %v; its turn comes in %s", d, err, turn)
		}
		leave()
		queue.Wait()
	})
}

// A store that cannot refund keeps the turn of a caller who leaves.
func TestWaitOnAStoreThatCannotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(unissued{memorystore.New(nil)}, core.Funnel(1, core.Every(time.Second))))
		if _, err := l.Allow(t.Context(), "alice", "post"); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		time.AfterFunc(time.Second/2, leave)
		if d, err := l.Wait(ctx, "alice", "post"); err != context.Canceled || d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := l.Peek(t.Context(), "alice", "post"); err != nil || d.RetryAfter != 1500*time.Millisecond {
			t.Errorf("%+v, %v", d, err)
		}
	})
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
