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

func TestInFlightTakesAndFreesSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := core.Must(core.New(memorystore.New(nil), core.InFlight(2).Lease(10*time.Second), core.FixedWindow(100, time.Hour)))
		if l.Lease() != 10*time.Second {
			t.Errorf("the lease is %s", l.Lease())
		}
		allow := func() core.Decision {
			t.Helper()
			d, err := l.Allow(ctx, "alice", "stream")
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		first := allow()
		time.Sleep(time.Second)
		second := allow()
		d := allow()
		if d.Allowed || d.Reason != core.ReasonInFlight || d.RetryAfter != 9*time.Second || d.Binding != 0 {
			t.Fatalf("%+v", d)
		}
		for range 3 {
			if err := l.Release(ctx, first); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		third := allow()
		if !third.Allowed || allow().Allowed {
			t.Error("three Releases of one decision did not free one slot")
		}
		if s, _ := l.Status(ctx, "alice", "stream"); s.Limits[1].Remaining != 97 {
			t.Errorf("a release gave back a rate limit's charge: %+v", s)
		}
		time.Sleep(9 * time.Second) // the lease of second ends now
		if err := l.Renew(ctx, second); !errors.Is(err, core.ErrLeaseEnded) {
			t.Errorf("Renew after the lease: %v", err)
		}
		if err := l.Renew(ctx, third); err != nil {
			t.Error(err)
		}
		fourth := allow()
		if err := l.Release(ctx, second); err != nil || !fourth.Allowed || allow().Allowed {
			t.Errorf("the Release of a slot whose lease has ended freed another: %v", err)
		}
		time.Sleep(10*time.Second - time.Microsecond)
		if allow().Allowed {
			t.Error("a renewed lease ended too soon")
		}
		time.Sleep(time.Microsecond)
		if !allow().Allowed {
			t.Error("a renewed lease did not end")
		}
		if err := l.Renew(ctx, first); !errors.Is(err, core.ErrLeaseEnded) {
			t.Errorf("Renew after Release: %v", err)
		}
	})
}

// losing does what it is asked, and loses the answers of so many Amends.
type losing struct {
	*memorystore.Store
	lose int
}

func (s *losing) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

var errLost = errors.New("the answer is lost")

func (s *losing) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	done, err := s.Store.Amend(ctx, r, a)
	if s.lose--; s.lose >= 0 {
		return false, errLost
	}
	return done, err
}

func TestAReleaseMayBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), &losing{Store: memorystore.New(nil), lose: 2}
		l := core.Must(core.New(store, core.InFlight(1)))
		first, _ := l.Allow(ctx, "alice", "stream")
		if err := l.Renew(ctx, first); err != errLost {
			t.Error(err)
		}
		if err := l.Release(ctx, first); err != errLost {
			t.Error(err)
		}
		time.Sleep(time.Microsecond)
		if second, _ := l.Allow(ctx, "alice", "stream"); !second.Allowed {
			t.Error("the release whose answer was lost freed nothing")
		}
		if err := l.Release(ctx, first); err != nil {
			t.Error(err)
		}
		if third, _ := l.Allow(ctx, "alice", "stream"); third.Allowed {
			t.Error("the second try freed another's slot")
		}
	})
}

// cannotAmend is a store that cannot amend while it is down.
type cannotAmend struct {
	*memorystore.Store
	panics          bool
	down            atomic.Bool
	failed, amended atomic.Int32
}

func (s *cannotAmend) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *cannotAmend) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	switch {
	case !s.down.Load():
		s.amended.Add(1)
		return s.Store.Amend(ctx, r, a)
	case s.panics:
		s.failed.Add(1)
		panic("down")
	}
	s.failed.Add(1)
	return false, errLost
}

// A release that has failed is tried again in the background, by itself and once a second, until the longest lease
// has ended.
func TestAFailedReleaseIsTriedAgain(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		panics bool
		outage time.Duration
		freed  bool
	}{
		"a short outage":           {t.Context(), false, time.Second / 16, true},
		"a long outage":            {t.Context(), false, 20 * time.Minute, true},
		"longer than the lease":    {t.Context(), false, 2 * time.Hour, false},
		"a store that panics":      {t.Context(), true, time.Minute, true},
		"a context that has ended": {ended, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &cannotAmend{Store: memorystore.New(nil), panics: c.panics}
				l := core.Must(core.New(s, core.InFlight(1).Lease(time.Minute), core.InFlight(1).Lease(time.Hour).PerUser()))
				d, err := l.Allow(t.Context(), "alice", "stream")
				if err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				s.down.Store(c.outage > 0)
				for range 3 { // the tries of a decision are one
					func() {
						defer func() { _ = recover() }()
						if err := l.Release(c.ctx, d); err == nil {
							t.Error("no error")
						}
					}()
				}
				time.Sleep(c.outage)
				synctest.Wait()
				if most := 3 + 10 + int(min(c.outage, time.Hour)/time.Second); int(s.failed.Load()) > most {
					t.Errorf("%d have failed, more than %d", s.failed.Load(), most)
				}
				s.down.Store(false)
				time.Sleep(1100 * time.Millisecond)
				synctest.Wait()
				if freed := s.amended.Load() > 0; freed != c.freed {
					t.Errorf("it is released after the outage: %t, want %t", freed, c.freed)
				}
				if c.freed && s.amended.Load() != 1 {
					t.Errorf("it is released %d times", s.amended.Load())
				}
				if got, _ := l.Allow(t.Context(), "alice", "stream"); !got.Allowed {
					t.Error("the slot is not free")
				}
			})
		})
	}
}

// hanging is a store that renews when it is told to.
type hanging struct {
	*memorystore.Store
	renews chan struct{}
}

func (s *hanging) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}

func (s *hanging) Amend(ctx context.Context, r *core.Record, a machine.Amendment) (bool, error) {
	if a.Verb == machine.VerbRenew {
		<-s.renews
	}
	return s.Store.Amend(ctx, r, a)
}

func TestAReleaseWhoseContextEndsDuringARenewalIsMadeAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hanging{memorystore.New(nil), make(chan struct{})}
		l := core.Must(core.New(s, core.InFlight(1)))
		d, _ := l.Allow(t.Context(), "alice", "stream")
		go func() { _ = l.Renew(context.Background(), d) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx, d); err != context.Canceled {
			t.Error(err)
		}
		time.Sleep(time.Second)
		close(s.renews)
		time.Sleep(time.Second)
		if d, _ := l.Allow(t.Context(), "alice", "stream"); !d.Allowed {
			t.Error("the slot is not free")
		}
	})
}

func TestConcurrentReleasesFreeOneSlot(t *testing.T) {
	ctx := t.Context()
	l := core.Must(core.New(memorystore.New(nil), core.InFlight(2)))
	for range 1000 {
		first, _ := l.Allow(ctx, "alice", "stream")
		second, _ := l.Allow(ctx, "alice", "stream")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := l.Release(ctx, first); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s, _ := l.Status(ctx, "alice", "stream"); s.Limits[0].Remaining != 1 {
			t.Fatalf("%d slots are free", s.Limits[0].Remaining)
		}
		if err := l.Release(ctx, second); err != nil {
			t.Fatal(err)
		}
	}
}

// A bareStore is a store that cannot amend.
type bareStore struct{ core.Store }

func TestInFlightNeedsAStoreThatFreesSlots(t *testing.T) {
	for name, store := range map[string]core.Store{
		"alone":              bareStore{memorystore.New(nil)},
		"behind a decorator": core.FailOpen(bareStore{memorystore.New(nil)}),
		"as the second":      core.Fallback(memorystore.New(nil), bareStore{memorystore.New(nil)}),
	} {
		if _, err := core.New(store, core.InFlight(1)); !errors.Is(err, core.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := core.New(core.Observe(core.Fallback(memorystore.New(nil), core.Divide(memorystore.New(nil), 2)),
		func(context.Context, core.Observation) {}), core.InFlight(1)); err != nil {
		t.Error(err)
	}
}

// slots is a limiter of one slot, and a decision that has it.
func slots(t *testing.T, store core.Store, limit core.Limit) (*core.Limiter, core.Decision) {
	t.Helper()
	l := core.Must(core.New(store, limit))
	d, err := l.Allow(t.Context(), "alice", "stream")
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	return l, d
}

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

// Several slots that are free at once go to as many waiters at once.
func TestWaitersShareReleasedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(memorystore.New(nil), core.InFlight(4).Lease(time.Hour)))
		taken, _ := l.AllowN(t.Context(), "alice", "stream", 4)
		var wg sync.WaitGroup
		begun := time.Now()
		for range 8 {
			wg.Go(func() {
				d, err := l.Wait(t.Context(), "alice", "stream")
				if err != nil {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond)
				_ = l.Release(t.Context(), d)
			})
		}
		synctest.Wait()
		_ = l.Release(t.Context(), taken)
		wg.Wait()
		if took := time.Since(begun); took != 20*time.Millisecond {
			t.Errorf("eight on four slots took %s", took)
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

// failing is a store that fails.
type failing struct{ *memorystore.Store }

func (failing) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{}, nil, errLost
}

func TestADecisionWithoutASlotIsReleased(t *testing.T) {
	ctx, one := t.Context(), core.InFlight(1)
	for name, store := range map[string]core.Store{
		"FailOpen, while the store fails":       core.FailOpen(failing{memorystore.New(nil)}),
		"Shadow, while the store fails":         core.Shadow(failing{memorystore.New(nil)}),
		"Shadow, if the store refuses":          core.Shadow(memorystore.New(nil)),
		"a store that refuses the second":       memorystore.New(nil),
		"a Fallback whose second store refuses": core.Fallback(failing{memorystore.New(nil)}, memorystore.New(nil)),
	} {
		l := core.Must(core.New(store, one))
		if _, err := l.Allow(ctx, "alice", "stream"); err != nil {
			t.Fatal(name, err)
		}
		d, err := l.Allow(ctx, "alice", "stream")
		if err != nil {
			t.Fatal(name, err)
		}
		if err := errors.Join(l.Renew(ctx, d), l.Release(ctx, d), l.Release(ctx, core.Decision{}), l.Renew(ctx, core.Decision{Allowed: true})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rate := core.Must(core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour))).With(core.Refundable{}))
	d, _ := rate.Allow(ctx, "alice", "stream")
	if err := errors.Join(rate.Renew(ctx, d), rate.Release(ctx, d)); err != nil || rate.Lease() != 0 {
		t.Errorf("a limiter without InFlight: %v, %s", err, rate.Lease())
	}
	if again, _ := rate.Peek(ctx, "alice", "stream"); again.Allowed {
		t.Error("a release gave back a rate limit's charge")
	}
}

func TestReleaseAsksWithTheCallersContext(t *testing.T) {
	l, d := slots(t, memorystore.New(nil), core.InFlight(1))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Release(done, d); !errors.Is(err, context.Canceled) {
		t.Errorf("Release with a context that is done: %v", err)
	}
	var none context.Context
	if err := l.Release(none, d); !errors.Is(err, core.ErrConfig) {
		t.Errorf("Release without a context: %v", err)
	}
	if err := l.Release(t.Context(), d); err != nil {
		t.Errorf("Release after that: %v", err)
	}
	if d, _ := l.Peek(t.Context(), "alice", "stream"); !d.Allowed {
		t.Error("the slot is not free")
	}
	var zero core.Limiter
	if err := zero.Release(t.Context(), d); !errors.Is(err, core.ErrConfig) {
		t.Errorf("a zero Limiter: %v", err)
	}
}

func TestDividedSlotsAreReleased(t *testing.T) {
	ctx := t.Context()
	l := core.Must(core.New(core.Divide(memorystore.New(nil), 2), core.InFlight(3)))
	d, _ := l.AllowN(ctx, "alice", "stream", 2)
	if refused, _ := l.Allow(ctx, "alice", "stream"); !d.Allowed || refused.Allowed || refused.Limit != 2 {
		t.Errorf("%+v, then %+v", d, refused)
	}
	if err := errors.Join(l.Renew(ctx, d), l.Release(ctx, d)); err != nil {
		t.Error(err)
	}
	if d, _ := l.Peek(ctx, "alice", "stream"); d.Remaining != 2 {
		t.Errorf("%+v", d)
	}
}

// An action within another knows the slots of that also if they are a replica's share.
func TestAnActionWithinAnotherTakesNoDividedSlot(t *testing.T) {
	ctx := t.Context()
	l := core.Must(core.New(core.Divide(memorystore.New(nil), 2), core.InFlight(2)))
	d, _ := l.Allow(ctx, "alice", "stream")
	within, err := core.All(ctx, l.For("alice", "stream").Within(l, d))
	if err != nil || !d.Allowed || !within.Allowed {
		t.Errorf("%+v, then %+v, %v", d, within, err)
	}
}

// Whoever asks, and however, a caller who leaves while the store decides gets the slot that was taken, and
// can release it.
func TestASlotIsNotLostIfTheCallerLeaves(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *core.Limiter) (core.Decision, error){
		"Allow": func(ctx context.Context, l *core.Limiter) (core.Decision, error) {
			return l.Allow(ctx, "alice", "stream")
		},
		"Wait": func(ctx context.Context, l *core.Limiter) (core.Decision, error) {
			return l.Wait(ctx, "alice", "stream")
		},
		"All": func(ctx context.Context, l *core.Limiter) (core.Decision, error) {
			return core.All(ctx, l.For("bob", "stream"), l.For("alice", "stream"))
		},
		"WaitAll": func(ctx context.Context, l *core.Limiter) (core.Decision, error) {
			return core.WaitAll(ctx, time.Second, l.For("alice", "stream"), l.For("bob", "stream"))
		},
	} {
		for _, store := range []core.Store{memorystore.New(nil), &apart{store: memorystore.New(nil)}} {
			leaving := &leaves{Store: store}
			l := core.Must(core.New(leaving, core.InFlight(1)))
			ctx, leave := context.WithCancel(t.Context())
			leaving.leave = leave
			d, err := ask(ctx, l)
			if err == nil {
				err = l.Release(t.Context(), d)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s on %T: %v", name, store, err)
			}
			for _, user := range []string{"alice", "bob"} {
				if d, err := l.Peek(t.Context(), user, "stream"); err != nil || !d.Allowed {
					t.Errorf("%s on %T: then %s: %+v, %v", name, store, user, d, err)
				}
			}
		}
	}
}

// leaves is a store whose caller leaves after the decision and before the answer.
type leaves struct {
	core.Store
	leave context.CancelFunc
}

func (s *leaves) Unwrap() core.Store { return s.Store }

func (s *leaves) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	s.leave()
	if ctx.Err() != nil {
		return core.Decision{}, nil, ctx.Err()
	}
	return d, r, err
}

// A slow store answers a Take after a while, or when its context is done.
type slowStore struct{ *memorystore.Store }

func (s slowStore) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	select {
	case <-ctx.Done():
		return core.Decision{}, nil, ctx.Err()
	case <-time.After(time.Minute):
		return s.Store.Take(ctx, c)
	}
}

// What takes no slot ends with its caller. What may take one does not: nobody would know of the slot.
func TestOnlyAChargeThatMayTakeASlotOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(slowStore{memorystore.New(nil)}, core.InFlight(2)))
		other := core.Must(l.With())
		for name, tt := range map[string]struct {
			ask  func(ctx context.Context) error
			ends bool
		}{
			"Peek": {func(ctx context.Context) error { _, err := l.Peek(ctx, "alice", "post"); return err }, true},
			"PeekAll": {func(ctx context.Context) error {
				_, err := core.PeekAll(ctx, l.For("alice", "post"), other.For("bob", "post"))
				return err
			}, true},
			"Status":                     {func(ctx context.Context) error { _, err := l.Status(ctx, "alice", "post"); return err }, true},
			"a cost that can never pass": {func(ctx context.Context) error { _, err := l.AllowN(ctx, "alice", "post", 3); return err }, true},
			"Allow":                      {func(ctx context.Context) error { _, err := l.Allow(ctx, "alice", "post"); return err }, false},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := tt.ask(ctx); errors.Is(err, context.DeadlineExceeded) != tt.ends || !tt.ends && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	})
}

// A decision that took no slot, since its only InFlight limit is a shadow without room, has nothing to
// release or renew: whatever the context is, and however often.
func TestADecisionWithoutASlotHasNothingToRelease(t *testing.T) {
	l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(9, time.Minute), core.InFlight(1).Shadow()))
	var d core.Decision
	for range 2 {
		var err error
		if d, err = l.Allow(t.Context(), "alice", "post"); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Release(ended, d); err != nil {
		t.Error("Release:", err)
	}
	if err := l.Release(t.Context(), d); err != nil {
		t.Error("the second Release:", err)
	}
	if err := l.Renew(t.Context(), d); err != nil {
		t.Error("Renew:", err)
	}
}
