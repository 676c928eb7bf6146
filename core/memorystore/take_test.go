package memorystore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

func TestKnownKeyTakesNoAllocation(t *testing.T) {
	for name, l := range benchLimits {
		limiter := core.Must(core.New(New(nil), l...))
		for range 300 { // a queue has found its size
			allow(t, limiter, "user")
		}
		if n := testing.AllocsPerRun(1000, func() { _, _ = limiter.Allow(ctx, "user", "a") }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestConcurrentKeys(t *testing.T) {
	s := New(&Options{MaxKeys: 5000})
	funnel := core.Funnel(5, core.Every(time.Hour))
	alone, two := core.Must(core.New(s, funnel)), core.Must(core.New(s, core.SlidingWindow(3, time.Hour), funnel))
	brief := core.Must(core.New(s, core.Funnel(5, core.Every(time.Millisecond))))
	held := core.Must(alone.With(core.Refundable{}))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 3000 {
				user, err := fmt.Sprint(rnd.IntN(6000)), error(nil)
				switch rnd.IntN(20) {
				case 0:
					err = two.Reset(ctx, user, "a")
				case 1:
					d, _ := held.Allow(ctx, user, "a")
					if d.Allowed && d.Reason != core.ReasonFull {
						err = held.Refund(ctx, d)
					}
				case 2, 3, 4, 5:
					_, err = brief.Allow(ctx, user, "a")
				case 6, 7, 8, 9:
					_, err = two.Allow(ctx, user, "a")
				default:
					_, err = alone.Allow(ctx, user, "a")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s.check(t)
}

// A decorator of somebody else's may ask for what can never pass without a Peek.
func TestAChargeAboveTheQuotaCanNeverPass(t *testing.T) {
	s := New(nil)
	l := core.Must(core.New(s, core.Funnel(2, core.Every(time.Hour))))
	charge := core.Charge{User: "u", Action: "a", Cost: 3, Terms: &core.Terms{Limits: l.Limits()}}
	for _, known := range []bool{false, true} {
		d, _, err := s.Take(ctx, charge)
		if err != nil || d.Allowed || d.RetryAfter != core.Never {
			t.Errorf("known %v: %+v, %v", known, d, err)
		}
		allow(t, l, "u")
	}
}

// The store reads the clock under the lock. Before it, another charge of the key could come in
// between at a later instant. The clock would seem to step back, and the debt would be cut.
func TestTheClockIsReadUnderTheLock(t *testing.T) {
	var s *Store
	reads := 0
	s = newStore(&Options{MaxKeys: 1}, func() int64 {
		if reads++; s.shards[0].mu.TryLock() {
			s.shards[0].mu.Unlock()
			t.Error("the lock is free")
		}
		return 1
	}, func() int64 { return 0 })
	l := core.Must(core.Must(core.New(s, core.Funnel(2, core.Every(time.Second)))).With(core.Refundable{}))
	d := allow(t, l, "u")
	if err := l.Refund(ctx, d); err != nil || reads != 2 {
		t.Errorf("the clock was read %d times for a charge and a refund, %v", reads, err)
	}
}

// A refund holds the lock until it has written, so it loses no charge that comes meanwhile. That of
// an early action of a long queue takes longest.
func TestARefundLosesNoCharge(t *testing.T) {
	const early, since, most, quota = 100, 40_000, 25_000, 1_000_000 // no refund after 65,536 actions
	var now atomic.Int64
	s := newStore(nil, now.Load, func() int64 { return 0 })
	l := core.Must(core.Must(core.New(s, core.MovingWindow(quota, time.Hour))).With(core.Refundable{}))
	now.Store(1)
	var made [early]core.Decision
	for i := range made {
		made[i] = allow(t, l, "u")
	}
	now.Store(2)
	if d, err := l.AllowN(ctx, "u", "a", since); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	charged := 0
	var refunded atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for ; !refunded.Load() && charged < most; charged++ {
			if _, err := l.Allow(ctx, "u", "a"); err != nil {
				t.Error(err)
			}
		}
	})
	for _, d := range made {
		if err := l.Refund(ctx, d); err != nil {
			t.Error(err)
		}
	}
	refunded.Store(true)
	wg.Wait()
	if d, err := l.Peek(ctx, "u", "a"); err != nil || d.Remaining != quota-since-charged {
		t.Errorf("%d are charged: %+v, %v", since+charged, d, err)
	}
}
