package core_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// "As soon as Wait knows that the turn does not come before the deadline, it returns [ErrRefused] and the
// refusal."
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

// "It blocks for at most the duration most, and for at most 365 days."
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

// A caller that is told that its turn comes too late asks once more, and takes the room that there is by then: another
// process has reset the user.
func TestAWaiterThatIsLateTakesTheRoomThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flaky{Store: memorystore.New(nil)}
		l := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
		if d, err := l.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		first, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		go func() { _, _ = l.Wait(first, "u", "a") }()
		synctest.Wait() // it knows the turn
		store.during = func() {
			store.during = nil
			if err := core.Must(core.New(store.Store, core.FixedWindow(1, time.Hour))).Reset(t.Context(), "u", "a"); err != nil {
				t.Error(err)
			}
		}
		late, cancelLate := context.WithTimeout(t.Context(), time.Minute)
		defer cancelLate()
		if d, err := l.Wait(late, "u", "a"); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		cancel()
		synctest.Wait()
	})
}
