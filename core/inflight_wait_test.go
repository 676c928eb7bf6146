package core_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestWaitGetsAReleasedSlot(t *testing.T) {
	one := core.InFlight(1).Lease(time.Hour)
	for _, tt := range []struct {
		name     string
		limit    core.Limit
		action   string
		releases func(store core.Store, l *core.Limiter) *core.Limiter
		after    time.Duration // from the release
	}{
		{"at once, if the limiter releases it", one, "stream",
			func(_ core.Store, l *core.Limiter) *core.Limiter { return l }, 0},
		{"at once, if a derived limiter releases it", one, "stream",
			func(_ core.Store, l *core.Limiter) *core.Limiter { return core.Must(l.With(core.BanPolicy{})) }, 0},
		{"at once, if it is the user's", one.PerUser(), "upload",
			func(_ core.Store, l *core.Limiter) *core.Limiter { return l }, 0},
		{"at once, if another limiter releases it", one, "stream",
			func(s core.Store, _ *core.Limiter) *core.Limiter { return core.Must(core.New(s, one)) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memorystore.New(nil)
				l, taken := slots(t, store, tt.limit)
				begun := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() {
					d, err := l.Wait(t.Context(), "alice", tt.action)
					if took := time.Since(begun); err != nil || !d.Allowed || took != 600*time.Millisecond+tt.after {
						t.Errorf("after %s: %+v, %v", took, d, err)
					}
				})
				time.Sleep(600 * time.Millisecond)
				if err := tt.releases(store, l).Release(t.Context(), taken); err != nil {
					t.Error(err)
				}
				wg.Wait()
			})
		})
	}
}

// Another limiter may be one of another process.
func TestWaitGetsASlotThatAnotherLimiterTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memorystore.New(nil)
		other, taken := slots(t, store, core.InFlight(1).Lease(time.Hour))
		l := core.Must(core.New(store, core.InFlight(1).Lease(time.Hour)))
		begun := time.Now()
		time.AfterFunc(600*time.Millisecond, func() { _ = other.Release(context.Background(), taken) })
		if d, err := l.Wait(t.Context(), "alice", "stream"); err != nil || !d.Allowed || time.Since(begun) != 750*time.Millisecond {
			t.Errorf("after %s: %+v, %v", time.Since(begun), d, err)
		}
	})
}

func TestWaitersForSlotsPassInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, taken := slots(t, memorystore.New(nil), core.InFlight(1).Lease(time.Hour))
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				d, err := l.Wait(t.Context(), "alice", "stream")
				if err != nil {
					t.Error(err)
				}
				order = append(order, i)
				time.Sleep(10 * time.Millisecond)
				if err := l.Release(t.Context(), d); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		begun := time.Now()
		if err := l.Release(t.Context(), taken); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		for i := range order {
			if order[i] != i {
				t.Fatalf("they passed as %v", order)
			}
		}
		if took := time.Since(begun); took != 100*time.Millisecond {
			t.Errorf("ten took %s, not ten times 10 ms", took)
		}
	})
}

func TestWaitForASlotEnds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lease time.Duration
		wait  func(*core.Limiter, context.Context) (core.Decision, error)
		after time.Duration
		err   error
	}{
		{"at the deadline", time.Hour, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			ctx, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
			defer cancel()
			return l.Wait(ctx, "alice", "stream")
		}, 700 * time.Millisecond, core.ErrRefused},
		{"after most", time.Hour, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			return core.WaitAll(ctx, 700*time.Millisecond, l.For("alice", "stream"))
		}, 700*time.Millisecond + time.Microsecond, core.ErrRefused},
		{"when it leaves", time.Hour, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(700*time.Millisecond, cancel)
			return l.Wait(ctx, "alice", "stream")
		}, 700 * time.Millisecond, context.Canceled},
		{"when a lease ends", 700 * time.Millisecond, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			return l.Wait(ctx, "alice", "stream")
		}, 700 * time.Millisecond, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := slots(t, memorystore.New(nil), core.InFlight(1).Lease(tt.lease))
				begun := time.Now()
				d, err := tt.wait(l, t.Context())
				if took := time.Since(begun); !errors.Is(err, tt.err) || d.Allowed != (tt.err == nil) || took != tt.after {
					t.Errorf("after %s: %+v, %v; want %v after %s", took, d, err, tt.err, tt.after)
				}
			})
		})
	}
}
