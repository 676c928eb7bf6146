package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func TestSettleGoesToTheStoreThatDecided(t *testing.T) {
	ctx := t.Context()
	first, second := memorystore.New(nil), memorystore.New(nil)
	store := &flaky{Store: first}
	seen := 0
	observed := core.Observe(core.Fallback(store, second), func(context.Context, core.Observation) { seen++ })
	l := core.Must(core.Must(core.New(observed, core.FixedWindow(5, time.Hour))).With(core.Refundable{}))
	left := func() [2]int {
		a, _ := core.Must(core.New(first, core.FixedWindow(20, time.Hour))).Peek(ctx, "u", "a")
		b, _ := core.Must(core.New(second, core.FixedWindow(20, time.Hour))).Peek(ctx, "u", "a")
		return [2]int{a.Remaining, b.Remaining}
	}
	one, _ := l.AllowN(ctx, "u", "a", 2)
	store.err = errDown
	two, _ := l.AllowN(ctx, "u", "a", 3)
	if err := l.Settle(ctx, two, 7); err != nil || left() != [2]int{18, 13} {
		t.Errorf("the fallback's: %v, %v", left(), err)
	}
	if err := l.Settle(ctx, one, 6); err != nil || left() != [2]int{14, 13} {
		t.Errorf("the store's: %v, %v", left(), err)
	}
	if seen != 2 {
		t.Errorf("%d decisions were observed, want the two charges", seen)
	}
}

func TestSettleWithoutAReceipt(t *testing.T) {
	ctx := t.Context()
	plain := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
	l := core.Must(plain.With(core.Refundable{}))
	charged, _ := plain.Allow(ctx, "u", "a")
	free, _ := l.AllowN(ctx, "u", "a", 0)
	refused, _ := l.Allow(ctx, "u", "a")
	open := core.Must(core.Must(core.New(core.FailOpen(&flaky{err: errDown}), core.FixedWindow(1, time.Hour))).With(core.Refundable{}))
	untouched, _ := open.Allow(ctx, "u", "a")
	for name, tt := range map[string]struct {
		d    core.Decision
		want error
	}{
		"a limiter without Refundable": {charged, core.ErrNoReceipt},
		"an estimate of 0":             {free, core.ErrNoReceipt},
		"a refusal":                    {refused, nil},
		"a decision that nobody made":  {untouched, nil},
		"the zero decision":            {core.Decision{}, nil},
	} {
		if err := l.Settle(ctx, tt.d, 9); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err := l.Settle(ctx, tt.d, -1); !errors.Is(err, core.ErrCost) {
			t.Errorf("%s, a negative cost: %v", name, err)
		}
	}
}

// A caller that has left may settle later, with a context of another length.
func TestSettleWithAContextThatIsDone(t *testing.T) {
	l := core.Must(core.Must(core.New(memorystore.New(nil), core.FixedWindow(10, time.Hour))).With(core.Refundable{}))
	for name, actual := range map[string]int{"less": 1, "as much": 2, "more": 3} {
		ctx, leave := context.WithCancel(t.Context())
		d, _ := l.AllowN(ctx, name, "a", 2)
		leave()
		if err := l.Settle(ctx, d, actual); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if err := l.Settle(context.WithoutCancel(ctx), d, actual); err != nil {
			t.Errorf("%s, later: %v", name, err)
		}
		if d, _ := l.Peek(t.Context(), name, "a"); d.Remaining != 10-actual {
			t.Errorf("%s: %d remain", name, d.Remaining)
		}
	}
}

// A store that has no room for the state has charged nothing, and says so.
func TestSettleThatChargesNothing(t *testing.T) {
	l := core.Must(core.Must(core.New(&stubborn{memorystore.New(nil)}, core.FixedWindow(10, time.Hour))).With(core.Refundable{}))
	d, _ := l.AllowN(t.Context(), "u", "a", 2)
	if err := l.Settle(t.Context(), d, 3); err == nil || !strings.HasPrefix(err.Error(), "core: Settle: ") {
		t.Errorf("the store refuses: %v", err)
	}
}

// stubborn refuses what has no receipt.
type stubborn struct{ *memorystore.Store }

func (s *stubborn) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if !c.Receipt {
		return core.Decision{Reason: core.ReasonFull}, nil, nil
	}
	d, r, err := s.Store.Take(ctx, c)
	if r != nil {
		r.By = s
	}
	return d, r, err
}
