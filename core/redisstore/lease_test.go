package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// A leasing is two processes' stores on one server, in a bubble.
type leasing struct {
	*testing.T
	m      *miniredis.Miniredis
	stores [2]*redisstore.Store
}

func leased(t *testing.T, test func(l *leasing)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		l := &leasing{T: t, m: newMini(t)}
		l.m.ClockTTL(true)
		defer l.m.Close()
		for i := range l.stores {
			rdb := inBubble(l.m)
			defer rdb.Close()
			l.stores[i] = redisstore.New(rdb, nil)
		}
		test(l)
		time.Sleep(time.Minute) // leases end
	})
}

func (l *leasing) limiter(store int, limits ...core.Limit) *core.Limiter {
	l.Helper()
	return core.Must(core.New(l.stores[store], limits...))
}

// decided is allow for a cost, by the first answer that is no refusal by the process itself.
func (l *leasing) decided(lim *core.Limiter, cost int) core.Decision {
	l.Helper()
	for {
		d, err := lim.AllowN(l.Context(), user, action, cost)
		if err != nil {
			l.Fatal(err)
		}
		if d.Allowed || d.Source != core.SourceLease || d.RetryAfter > leaseTime {
			return d
		}
		time.Sleep(d.RetryAfter)
	}
}

// hold lets a limiter pass actions until the process holds units, and returns how many have passed
// and how many it holds.
func (l *leasing) hold(lim *core.Limiter, store int) (used, held int) {
	l.Helper()
	before := l.charged(lim)
	for {
		d := allow(l, lim)
		used++
		taken, _, _ := l.stores[store].Leases()
		if used > 50 || !d.Allowed {
			l.Fatalf("the process holds nothing after %d actions", used)
		}
		if total, quota := l.charged(lim)-before, lim.Limits()[0].Quota(); d.Source == core.SourceLease && taken > 10 && total > used {
			if d.Remaining != quota-before-used {
				l.Errorf("%d remain of %d after %d actions", d.Remaining, quota, used)
			}
			if s, err := lim.Status(l.Context(), user, action); err != nil || s.Limits[0].Remaining != quota-before-total {
				l.Errorf("%+v, %v: not %d of %d", s, err, quota-before-total, quota)
			}
			return used, total - used
		}
	}
}

// charged is how many units Redis has charged.
func (l *leasing) charged(lim *core.Limiter) int {
	l.Helper()
	d, err := lim.Peek(l.Context(), user, action)
	if err != nil {
		l.Fatal(err)
	}
	return lim.Limits()[0].Quota() - d.Remaining
}

const leaseTime = 100 * time.Millisecond

var leasedWindow = core.MovingWindow(200, time.Minute).Leased(leaseTime)

func TestLeaseGivesBackWhatIsLeft(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := l.limiter(0, leasedWindow)
		used, held := l.hold(lim, 0)
		time.Sleep(leaseTime)
		synctest.Wait()
		if n := l.charged(lim); n != used {
			l.Errorf("%d units are charged after the lease, %d were used and %d held", n, used, held)
		}
		taken, returned, lost := l.stores[0].Leases()
		if returned != uint64(held) || lost != 0 || taken < returned {
			l.Errorf("%d units were taken, %d returned and %d lost; %d were held", taken, returned, lost, held)
		}
	})
}

// Every unit of the limit can be used, whichever process asks.
func TestLeaseUsesAll(t *testing.T) {
	for _, limit := range []core.Limit{leasedWindow, core.FixedWindow(200, time.Minute).Leased(leaseTime), core.Funnel(200, core.Per(200, time.Hour)).Leased(leaseTime)} {
		t.Run(limit.String(), func(t *testing.T) {
			leased(t, func(l *leasing) {
				passed := 0
				for i := range 800 {
					if d := allow(l, l.limiter(i%2, limit)); d.Allowed {
						passed++
					}
					time.Sleep(time.Millisecond)
				}
				if passed != limit.Quota() {
					l.Errorf("%d passed, not %d", passed, limit.Quota())
				}
			})
		})
	}
}

// A refused user passes again when the units that another process held are back.
func TestLeaseOfAnotherProcessEnds(t *testing.T) {
	leased(t, func(l *leasing) {
		_, held := l.hold(l.limiter(0, leasedWindow), 0)
		other := l.limiter(1, leasedWindow)
		if d := l.decided(other, 200-l.charged(other)); !d.Allowed {
			l.Fatalf("%+v", d)
		}
		if d := allow(l, other); d.Allowed || d.RetryAfter < time.Second {
			l.Fatalf("%+v, %d held by the other process", d, held)
		}
		time.Sleep(leaseTime)
		if d := allow(l, other); !d.Allowed {
			l.Errorf("%+v after the other process's lease of %d units", d, held)
		}
	})
}

func TestLeaseEndsWithItsWindow(t *testing.T) {
	for _, limit := range []core.Limit{core.FixedWindow(200, time.Minute), core.CalendarWindow(200, core.Minute, nil)} {
		t.Run(limit.String(), func(t *testing.T) {
			leased(t, func(l *leasing) {
				lim := l.limiter(0, limit.Leased(leaseTime))
				allow(l, lim)
				time.Sleep(time.Minute - 50*time.Millisecond)
				_, held := l.hold(lim, 0)
				time.Sleep(50 * time.Millisecond)
				l.m.SetError("LOADING") // the process can take no others
				if d, err := lim.Allow(l.Context(), user, action); err == nil {
					l.Errorf("one of %d units passed in the next window: %+v", held, d)
				}
			})
		})
	}
}

func TestLeaseWhileRedisIsDown(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := l.limiter(0, leasedWindow)
		_, held := l.hold(lim, 0)
		l.m.SetError("LOADING")
		for range held {
			if d := allow(l, lim); !d.Allowed || d.Source != core.SourceLease {
				l.Fatalf("%+v", d)
			}
		}
		if d, err := lim.Allow(l.Context(), user, action); err == nil {
			l.Errorf("%+v without units", d)
		}
		l.m.SetError("")
	})
}

// With a Fallback, what the process holds is used up first. Then the fallback decides all actions, at once.
func TestLeaseBeforeTheFallback(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := core.Must(core.New(core.Fallback(l.stores[0], memorystore.New(nil)), leasedWindow))
		_, held := l.hold(lim, 0)
		l.m.SetError("LOADING")
		begun := time.Now()
		for i := range held + 100 {
			want := core.SourceLease
			if i >= held {
				want = core.SourceFallback
			}
			if d := allow(l, lim); !d.Allowed || d.Source != want || time.Since(begun) > time.Millisecond {
				l.Fatalf("action %d of %d after %s: %+v", i, held, time.Since(begun), d)
			}
		}
		l.m.SetError("")
	})
}

// What is not returned while Redis is down is lost, and nobody gets more.
func TestLeaseThatCannotBeReturned(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := l.limiter(0, leasedWindow)
		used, held := l.hold(lim, 0)
		l.m.SetError("LOADING")
		time.Sleep(leaseTime)
		synctest.Wait()
		l.m.SetError("")
		if _, returned, lost := l.stores[0].Leases(); returned != 0 || lost != uint64(held) {
			l.Errorf("%d returned, %d lost of %d", returned, lost, held)
		}
		if n := l.charged(lim); n != used+held {
			l.Errorf("%d are charged, not %d", n, used+held)
		}
	})
}

func TestLeaseIsDroppedByResetAndBan(t *testing.T) {
	tests := []struct {
		name string
		do   func(ctx context.Context, lim *core.Limiter) error
	}{
		{"reset", func(ctx context.Context, lim *core.Limiter) error { return lim.Reset(ctx, user, action) }},
		{"ban", func(ctx context.Context, lim *core.Limiter) error { return lim.Ban(ctx, user, action, time.Minute) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			leased(t, func(l *leasing) {
				own := core.Must(l.limiter(0, leasedWindow).With(core.BanPolicy{}))
				other := core.Must(l.limiter(1, leasedWindow).With(core.BanPolicy{}))
				l.hold(own, 0)
				if err := test.do(l.Context(), own); err != nil {
					l.Fatal(err)
				}
				l.m.SetError("LOADING") // the process can take no others
				if d, err := own.Allow(l.Context(), user, action); err == nil {
					l.Errorf("one passed: %+v", d)
				}
				l.m.SetError("")
				if err := own.Unban(l.Context(), user, action); err != nil {
					l.Fatal(err)
				}
				time.Sleep(time.Minute)
				l.hold(own, 0)
				if err := test.do(l.Context(), other); err != nil { // of another process
					l.Fatal(err)
				}
				time.Sleep(leaseTime)
				if d := allow(l, own); d.Allowed != (test.name == "reset") {
					l.Errorf("after the lease: %+v", d)
				}
			})
		})
	}
}

// A Reset or a Ban of another action drops what the process holds only if it concerns all of the user's
// actions.
func TestLeaseOfAnotherActionStays(t *testing.T) {
	tests := []struct {
		name  string
		limit core.Limit
		bans  core.BanPolicy
		do    func(ctx context.Context, lim *core.Limiter) error
		stays bool
	}{
		{"reset", leasedWindow, core.BanPolicy{}, func(ctx context.Context, lim *core.Limiter) error { return lim.Reset(ctx, user, "other") }, true},
		{"ban", leasedWindow, core.BanPolicy{}, func(ctx context.Context, lim *core.Limiter) error { return lim.Ban(ctx, user, "other", time.Hour) }, true},
		{"reset of all actions", leasedWindow.PerUser(), core.BanPolicy{}, func(ctx context.Context, lim *core.Limiter) error { return lim.Reset(ctx, user, "other") }, false},
		{"ban from all actions", leasedWindow, core.BanPolicy{PerUser: true}, func(ctx context.Context, lim *core.Limiter) error { return lim.Ban(ctx, user, "other", time.Hour) }, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			leased(t, func(l *leasing) {
				lim := core.Must(l.limiter(0, test.limit).With(test.bans))
				l.hold(lim, 0)
				if err := test.do(l.Context(), lim); err != nil {
					l.Fatal(err)
				}
				l.m.SetError("LOADING") // the process can take no others
				if d, err := lim.Allow(l.Context(), user, action); (err == nil) != test.stays || test.stays && !d.Allowed {
					l.Errorf("%+v, %v", d, err)
				}
				l.m.SetError("")
			})
		})
	}
}

// A ban policy counts every refusal, however many follow each other, and a process that learns of a ban keeps
// nothing.
func TestLeaseCountsRefusals(t *testing.T) {
	leased(t, func(l *leasing) {
		limit := core.MovingWindow(20, time.Minute).Leased(leaseTime)
		lim := core.Must(l.limiter(0, limit).With(core.BanPolicy{Refusals: 60, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
		for i := range 80 {
			if d := allow(l, lim); d.Allowed != (i < 20) || (d.Reason == core.ReasonBanned) != (i == 79) {
				l.Fatalf("action %d: %+v", i, d)
			}
		}
		if d := allow(l, lim); d.Reason != core.ReasonBanned {
			l.Errorf("%+v", d)
		}
	})
}

// Refusals of more than one unit are not in the cache. They cost few commands, and say when the limit has
// room.
func TestLeaseRefusesCostsByItself(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := l.limiter(0, core.FixedWindow(200, time.Minute).Leased(leaseTime))
		start := time.Now()
		for allow(l, lim).RetryAfter < time.Second {
			time.Sleep(leaseTime)
		}
		commands := l.m.CommandCount()
		for range 10_000 {
			d, err := lim.AllowN(l.Context(), user, action, 2)
			if left := time.Minute - time.Since(start); err != nil || d.Allowed || d.RetryAfter > left || d.RetryAfter < left-2*time.Millisecond {
				l.Fatalf("%+v, %v, %s before the end", d, err, left)
			}
			time.Sleep(time.Millisecond)
		}
		if n := l.m.CommandCount() - commands; n > 3*(32+40*10) { // miniredis counts those of the script too
			l.Errorf("%d commands in ten seconds", n)
		}
	})
}

// A caller who leaves while units are taken for it gets its own error.
func TestLeaseCallerLeaves(t *testing.T) {
	leased(t, func(l *leasing) {
		lim := l.limiter(0, leasedWindow)
		l.hold(lim, 0)
		ctx, cancel := context.WithCancel(l.Context())
		cancel()
		if d, err := lim.Allow(ctx, user, action); !errors.Is(err, context.Canceled) {
			l.Errorf("%+v, %v", d, err)
		}
		c := core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: []core.Limit{leasedWindow}}}
		if d, _, err := l.stores[0].Take(ctx, c); !errors.Is(err, context.Canceled) {
			l.Errorf("%+v, %v", d, err)
		}
	})
}

func TestCellStoreHasNoLeases(t *testing.T) {
	store := redisstore.NewCellStore(redis.NewClient(&redis.Options{}), nil)
	if _, err := core.New(store, core.Funnel(10, core.Per(10, time.Second)).Leased(time.Millisecond)); !errors.Is(err, core.ErrConfig) {
		t.Error(err)
	}
}
