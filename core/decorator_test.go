package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// What decorators may do with a charge and its decision.

// A decorator is a store whose Take is take.
type decorator struct {
	*memorystore.Store
	take func(*memorystore.Store, core.Charge) (core.Decision, *core.Record, error)
}

func decorated(take func(*memorystore.Store, core.Charge) (core.Decision, *core.Record, error)) *decorator {
	return &decorator{memorystore.New(nil), take}
}

func (s *decorator) Unwrap() core.Store { return s.Store }

func (s *decorator) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return s.take(s.Store, c)
}

// holdsOneSlot takes a slot of one and releases it, twice.
func holdsOneSlot(t *testing.T, streams *core.Limiter, further ...core.Subject) {
	t.Helper()
	for range 2 {
		d, err := core.All(t.Context(), append([]core.Subject{streams.For("alice", "stream")}, further...)...)
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if err := streams.Release(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADecoratorMayMakeANewCharge(t *testing.T) {
	store := decorated(func(s *memorystore.Store, c core.Charge) (core.Decision, *core.Record, error) {
		return s.Take(context.Background(), core.Charge{User: "tenant:" + c.User, Action: c.Action, Cost: c.Cost, Terms: c.Terms})
	})
	holdsOneSlot(t, core.Must(core.New(store, core.InFlight(1))))
	calls := core.Must(core.Must(core.New(store, core.FixedWindow(9, time.Hour))).With(core.BanPolicy{}))
	if err := calls.Ban(t.Context(), "alice", "call", time.Hour); err != nil {
		t.Fatal(err)
	}
	if d, err := calls.AllowN(t.Context(), "alice", "call", 0); err != nil || d.Allowed || d.Reason != core.ReasonBanned {
		t.Errorf("a banned user: %+v, %v", d, err)
	}
}

func TestADecoratorMayLeaveOutASubject(t *testing.T) {
	store := decorated(func(s *memorystore.Store, c core.Charge) (core.Decision, *core.Record, error) {
		t := *c.Terms
		t.More = nil
		c.Terms = &t
		return s.Take(context.Background(), c)
	})
	plain := core.Must(core.New(store, core.FixedWindow(9, time.Hour)))
	holdsOneSlot(t, core.Must(core.New(store, core.InFlight(1))), plain.For("exempt", "post"))
}

func TestADecoratorMayMakeANewDecision(t *testing.T) {
	store := decorated(func(s *memorystore.Store, c core.Charge) (core.Decision, *core.Record, error) {
		d, r, err := s.Take(context.Background(), c)
		return core.Decision{Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfter: d.RetryAfter, Reason: d.Reason, Source: d.Source}, r, err
	})
	l := core.Must(core.New(store, core.FixedWindow(9, time.Hour), core.FixedWindow(9, time.Minute)))
	l = core.Must(l.With(core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}}))
	if err := l.Ban(t.Context(), "alice", "post", time.Hour); err != nil {
		t.Fatal(err)
	}
	if d, err := l.AllowN(t.Context(), "alice", "post", 0); err != nil || d.Allowed {
		t.Errorf("a banned user: %+v, %v", d, err)
	}
	if s, err := l.Status(t.Context(), "alice", "post"); err != nil || len(s.Limits) != 2 || !s.Ban.Banned {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestARefusalThatADecoratorAllowsHasNothingToGiveBack(t *testing.T) {
	store := decorated(func(s *memorystore.Store, c core.Charge) (core.Decision, *core.Record, error) {
		d, r, err := s.Take(context.Background(), c)
		d.Allowed = true
		return d, r, err
	})
	l := core.Must(core.Must(core.New(store, core.SlidingWindow(1, time.Hour))).With(core.Refundable{}))
	for range 2 {
		d, err := l.Allow(t.Context(), "alice", "post")
		if err != nil || !d.Allowed || d.Remaining != 0 {
			t.Fatal(d, err)
		}
		if d.Reason == core.ReasonLimited {
			if err := l.Refund(t.Context(), d); err != core.ErrNoReceipt {
				t.Error(err)
			}
		}
	}
	if d, err := l.Peek(t.Context(), "alice", "post"); err != nil || d.Remaining != 0 {
		t.Errorf("it was given back: %+v, %v", d, err)
	}
}

// A share refuses what it can never pass by a Peek.
func TestARefusalByAShareHasNothingToGiveBack(t *testing.T) {
	l := core.Must(core.New(core.Divide(memorystore.New(nil), 4), core.FixedWindow(8, time.Hour), core.InFlight(8)))
	l = core.Must(l.With(core.Refundable{}))
	d, err := l.AllowN(t.Context(), "alice", "post", 3)
	if err != nil || d.RetryAfter != core.Never {
		t.Fatal(d, err)
	}
	if err := errors.Join(l.Refund(t.Context(), d), l.RefundN(t.Context(), d, 1), l.Settle(t.Context(), d, 1), l.Release(t.Context(), d), l.Renew(t.Context(), d)); err != nil {
		t.Error(err)
	}
}

func TestAShareOfAFailedStoreRefusesWhatCanNeverPass(t *testing.T) {
	broken := decorated(func(*memorystore.Store, core.Charge) (core.Decision, *core.Record, error) {
		return core.Decision{}, nil, errors.New("down")
	})
	store := core.Divide(core.FailOpen(broken), 4)
	hourly := core.Must(core.Must(core.New(store, core.FixedWindow(8, time.Hour))).With(core.Refundable{}))
	daily := core.Must(core.New(store, core.FixedWindow(8, 24*time.Hour)))
	d, err := core.All(t.Context(), hourly.For("alice", "post"), daily.For("org", "org-post").Cost(3))
	if err != nil || d.RetryAfter != core.Never || d.Subject != 1 {
		t.Error(d, err)
	}
}
