package core_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// "If ctx is canceled before the turn, the turn is given back"
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
