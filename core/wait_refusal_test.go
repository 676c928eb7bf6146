package core_test

// What Wait makes of limits that record refusals.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// Of those who arrive together, no more ask than can pass: each refusal would count.
func TestWaitingTogetherIsNotAnAttempt(t *testing.T) {
	for _, limit := range []core.Limit{core.FixedWindow(4, time.Minute), core.SlidingWindow(4, time.Minute), core.Funnel(4, core.Every(15*time.Second))} {
		for _, taken := range []int{0, 1, 4} {
			synctest.Test(t, func(t *testing.T) {
				l := core.Must(core.New(slow{memorystore.New(nil)}, limit))
				l = core.Must(l.With(core.BanPolicy{Refusals: 9, Within: time.Minute / 2, Bans: []time.Duration{time.Hour}}))
				if _, err := l.AllowN(t.Context(), "u", "a", taken); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				start := time.Now()
				for range 30 {
					wg.Go(func() {
						if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed {
							t.Errorf("%s, %d taken: %+v, %v", limit, taken, d, err)
						}
					})
				}
				wg.Wait()
				if took := time.Since(start); took > 9*time.Minute {
					t.Errorf("%s, %d taken: it took %s", limit, taken, took)
				}
			})
		}
	}
}

// The error says if no wait is long enough.
func TestWaitSaysThatAnActionNeverPasses(t *testing.T) {
	late := core.ErrRefused.Error()
	costly := "core: the action gets no turn at any time: it costs more than the quota of a limit"
	off := "core: the action gets no turn at any time: its limit is Nothing()"
	for _, tt := range []struct {
		name   string
		limits []core.Limit
		shares int
		cost   int
		want   string
	}{
		{"a cost above a window", []core.Limit{core.SlidingWindow(5, time.Minute)}, 1, 6, costly},
		{"a cost above a funnel, whose turns are reserved", []core.Limit{core.Funnel(5, core.Every(time.Minute))}, 1, 6, costly},
		{"a cost above one of two limits", []core.Limit{core.SlidingWindow(9, time.Minute), core.FixedWindow(5, time.Hour)}, 1, 6, costly},
		{"a cost above a limit that records refusals", []core.Limit{core.ElasticWindow(5, time.Minute)}, 1, 6, costly},
		{"a cost above a share of the quota", []core.Limit{core.FixedWindow(10, time.Minute)}, 2, 6, costly},
		{"nothing", []core.Limit{core.Nothing()}, 1, 1, off},
		{"a turn after the deadline", []core.Limit{core.SlidingWindow(5, time.Minute)}, 1, 5, late},
		{"a reserved turn after the deadline", []core.Limit{core.Funnel(5, core.Every(time.Minute))}, 1, 5, late},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.New(core.Divide(memorystore.New(nil), tt.shares), tt.limits...))
			if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for name, wait := range map[string]func() (core.Decision, error){
				"WaitN": func() (core.Decision, error) { return l.WaitN(ctx, "u", "a", tt.cost) },
				"WaitAll": func() (core.Decision, error) {
					return core.WaitAll(t.Context(), time.Second, l.For("u", "a").Cost(tt.cost))
				},
			} {
				d, err := wait()
				if !errors.Is(err, core.ErrRefused) || err.Error() != tt.want || d.Allowed || (d.RetryAfter == core.Never) != (tt.want != late) {
					t.Errorf("%s, %s: %+v, %v; want %s", tt.name, name, d, err, tt.want)
				}
			}
		})
	}
}

// Waiters that ask because there was room, which another process has taken since, are not refused
// either.
func TestAWaiterThatLosesItsRoomIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, limit := memorystore.New(nil), core.FixedWindow(3, time.Second)
		l := core.Must(core.Must(core.New(slow{memory}, limit)).With(
			core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
		var wg sync.WaitGroup
		start := time.Now()
		for range 3 {
			wg.Go(func() {
				if d, err := l.Wait(t.Context(), "u", "a"); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		time.Sleep(5 * latency / 4) // the first has its answer, and the others' questions are under way
		if d, err := core.Must(core.New(memory, limit)).AllowN(t.Context(), "u", "a", 2); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		wg.Wait()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// One failed call of the store is no refusal of those who wait.
func TestAFailedCallBansNoWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &failsOnce{Store: memorystore.New(nil)}
		l := core.Must(core.Must(core.New(store, core.FixedWindow(1, time.Second))).With(
			core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
		if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				d, err := l.Wait(t.Context(), "u", "a")
				if failed := errors.Is(err, errDown); failed != (i == 0) || !failed && err != nil {
					t.Errorf("caller %d: %+v, %v", i, d, err)
				}
			})
			synctest.Wait()
		}
		store.fails.Store(true)
		wg.Wait()
	})
}

type failsOnce struct {
	core.Store
	fails atomic.Bool
}

func (s *failsOnce) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.fails.CompareAndSwap(true, false) {
		return core.Decision{}, nil, errDown
	}
	return s.Store.Take(ctx, c)
}

// A crowd that waits in vain is refused, and so banned.
func TestWaitersThatAreRefusedGetBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.Must(core.New(slow{memorystore.New(nil)}, core.FixedWindow(10, time.Minute))).With(
			core.BanPolicy{Refusals: 100, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { _, _ = core.WaitAll(t.Context(), 2*time.Second, l.For("u", "a")) })
		}
		wg.Wait()
		if s, err := l.Status(t.Context(), "u", "a"); err != nil || !s.Ban.Banned {
			t.Errorf("%+v, %v", s.Ban, err)
		}
	})
}

// The second ask of a limiter that records refusals reserves no turn after the deadline.
func TestARefusalIsRecordedOnceHoweverSlowTheStore(t *testing.T) {
	for _, limit := range []core.Limit{core.Funnel(1, core.Every(time.Second)), core.FixedWindow(1, time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.Must(core.New(slow{memorystore.New(nil)}, limit)).With(
				core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
			if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
				t.Fatal(err)
			}
			patience := time.Second - 3*latency/2
			start := time.Now()
			d, err := core.WaitAll(t.Context(), patience, l.For("u", "a"))
			if !errors.Is(err, core.ErrRefused) || time.Since(start) != 2*latency {
				t.Errorf("%s: %+v, %v after %s", limit, d, err, time.Since(start))
			}
			if s, err := l.Status(t.Context(), "u", "a"); err != nil || s.Ban.Refusals != 1 {
				t.Errorf("%s: %+v, %v", limit, s.Ban, err)
			}
		})
	}
}

// After the end of its context a caller has left: its refusal is none.
func TestNoRefusalIsRecordedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.Must(core.New(slow{memorystore.New(nil)}, core.FixedWindow(1, time.Minute))).With(
			core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
		if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), latency/2)
		defer cancel()
		if d, err := l.Wait(ctx, "u", "a"); !errors.Is(err, core.ErrRefused) || d.RetryAfter == 0 {
			t.Errorf("%+v, %v", d, err)
		}
		if s, err := l.Status(t.Context(), "u", "a"); err != nil || s.Ban.Refusals != 0 {
			t.Errorf("%+v, %v", s.Ban, err)
		}
	})
}

// A refusal that Wait returns is an attempt, as one of Allow is.
func TestARefusedWaitIsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.Must(core.New(memorystore.New(nil), core.SlidingWindow(1, time.Minute))).With(
			core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
		for i, want := range []core.Reason{"", core.ReasonLimited, core.ReasonBanned, core.ReasonBanned} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			d, err := l.Wait(ctx, "u", "a")
			cancel()
			if d.Reason != want || (want != "") != errors.Is(err, core.ErrRefused) {
				t.Errorf("call %d: %+v, %v, want %q", i, d, err, want)
			}
		}
	})
}

// Whoever waits behind a banned user, or behind one for whom the store has no room, has his turn
// with him: nothing is reserved.
func TestAWaiterWithoutATurnDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.Must(core.New(memorystore.New(nil), core.Funnel(5, core.Every(time.Minute)))).With(
			core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
		if err := l.Ban(t.Context(), "u", "a", 30*time.Second); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		start := time.Now()
		for range 2 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if d, err := l.Wait(ctx, "u", "a"); err != nil || time.Since(start) != 30*time.Second {
					t.Errorf("%+v, %v after %s", d, err, time.Since(start))
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// "A limiter without a policy ignores bans"
//
// A caller does not wait behind one of a derived limiter, which waits for what only that limiter asks for.
func TestALimiterDoesNotWaitForWhatADerivedOneAddsToIt(t *testing.T) {
	for name, c := range map[string]struct {
		option core.Option
		block  func(ctx context.Context, derived *core.Limiter) error
	}{
		"a ban": {core.BanPolicy{Refusals: 5, Within: time.Minute, Bans: []time.Duration{time.Minute}}, func(ctx context.Context, derived *core.Limiter) error {
			return derived.Ban(ctx, "u", "a", time.Hour)
		}},
		"a slot": {core.OnlyFailures{}, func(ctx context.Context, derived *core.Limiter) error {
			_, err := derived.AllowN(ctx, "u", "a", 5)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(5, time.Minute)))
				derived := core.Must(l.With(c.option))
				if err := c.block(t.Context(), derived); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = derived.Wait(t.Context(), "u", "a") })
				synctest.Wait()
				start := time.Now()
				if d, err := l.Wait(t.Context(), "u", "a"); err != nil || time.Since(start) > 0 {
					t.Errorf("%+v, %v after %s", d, err, time.Since(start))
				}
				wg.Wait()
			})
		})
	}
}
