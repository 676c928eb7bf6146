package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
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
