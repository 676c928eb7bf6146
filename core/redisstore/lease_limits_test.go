package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

func TestLeaseRefund(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := core.Must(l.limiter(0, core.MovingWindow(5000, time.Minute).Leased(leaseTime)).With(core.Refundable{}))
		_, held := l.hold(lim, 0)
		d := allow(l, lim)
		if d.Source != core.SourceLease {
			l.Fatalf("%+v", d)
		}
		if err := lim.Refund(l.Context(), d); err != nil {
			l.Fatal(err)
		}
		l.m.SetError("LOADING") // the process can take no others
		for range held - 1 {
			allow(l, lim)
		}
		d = allow(l, lim)
		l.m.SetError("")
		time.Sleep(leaseTime)
		synctest.Wait()
		before := l.charged(lim)
		for range 2 {
			if err := lim.Refund(l.Context(), d); err != nil {
				l.Fatal(err)
			}
		}
		if n := l.charged(lim); n != before-1 {
			l.Errorf("%d are charged after the refund, %d before it", n, before)
		}
	})
}

// What an action costs above its estimate is charged in Redis.
func TestLeaseSettle(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := core.Must(l.limiter(0, core.MovingWindow(5000, time.Minute).Leased(leaseTime)).With(core.Refundable{}))
		l.hold(lim, 0)
		d := allow(l, lim)
		before := l.charged(lim)
		if err := lim.Settle(l.Context(), d, 11); err != nil || d.Source != core.SourceLease {
			l.Fatalf("%v, %+v", err, d)
		}
		if n := l.charged(lim); n != before+10 {
			l.Errorf("%d are charged after 10 more than the estimate, %d before", n, before)
		}
	})
}

// If all limits of a limiter are leased, the process decides. Else, and of several subjects, Redis does.
func TestLeaseIsNotForAll(t *testing.T) {
	leased(t, func(l *leasing) {
		mixed := l.limiter(0, leasedWindow, core.FixedWindow(1000, time.Hour))
		shadowed := l.limiter(0, leasedWindow.Named("x"), core.FixedWindow(1000, time.Hour).Shadow())
		joint := l.limiter(0, leasedWindow.Named("y"))
		for range 20 {
			for _, lim := range []*core.Limiter{mixed, shadowed} {
				if d := allow(l, lim); d.Source != core.SourceStore {
					l.Fatalf("%+v", d)
				}
			}
			d, err := core.All(l.Context(), joint.For(user, action), joint.For("bob", action))
			if err != nil || d.Source != core.SourceStore {
				l.Fatalf("%+v, %v", d, err)
			}
		}
		if taken, _, _ := l.stores[0].Leases(); taken != 0 {
			l.Errorf("%d units were taken", taken)
		}
	})
}

func TestLeaseOfSeveralLimits(t *testing.T) {
	leased(t, func(l *leasing) {
		small := core.FixedWindow(60, time.Hour).Leased(leaseTime)
		shadow := core.FixedWindow(30, time.Hour).Leased(leaseTime).Shadow()
		lim := l.limiter(0, leasedWindow, small, shadow)
		leases, shadowed := 0, 0
		for i := range 100 {
			d := l.decided(lim, 1)
			if d.Allowed != (i < 60) || d.Allowed && (d.Limit != 60 && d.Limit != 200 || d.Remaining != 59-i) {
				l.Fatalf("action %d: %+v", i, d)
			}
			if d.Source == core.SourceLease {
				leases++
			}
			if d.Reason == core.ReasonShadowed {
				shadowed++
			}
		}
		if leases < 20 || shadowed < 25 || shadowed > 45 {
			l.Errorf("a lease decided %d, and %d were shadowed", leases, shadowed)
		}
	})
}

func TestLeaseWithCosts(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := l.limiter(0, leasedWindow)
		passed := 0
		for i := range 300 {
			if cost := 1 + i%7; l.decided(lim, cost).Allowed {
				passed += cost
			}
		}
		if passed != 200 {
			l.Errorf("%d units passed", passed)
		}
	})
}
