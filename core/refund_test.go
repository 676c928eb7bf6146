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

// "The Refund of a refusal does nothing either."
func TestRefundWithoutAReceipt(t *testing.T) {
	ctx := t.Context()
	l := core.Must(core.New(memorystore.New(nil), core.FixedWindow(1, time.Hour)))
	d, _ := l.Allow(ctx, "u", "a")
	if err := l.Refund(ctx, d); !errors.Is(err, core.ErrNoReceipt) {
		t.Errorf("a limiter without Refundable: %v", err)
	}
	refused, _ := l.Allow(ctx, "u", "a")
	untouched, _ := core.Must(core.New(core.FailOpen(&flaky{err: errDown}), core.FixedWindow(1, time.Hour))).Allow(ctx, "u", "a")
	for name, d := range map[string]core.Decision{"a refusal": refused, "a decision that nobody made": untouched, "the zero one": {}} {
		if err := l.Refund(ctx, d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d, _ := l.Peek(ctx, "u", "a"); d.Allowed {
		t.Errorf("something was given back: %+v", d)
	}
}

// A window knows by the instants which charges are its own. A bucket, a funnel and an
// ElasticWindow do not.
func TestARefundAfterAReset(t *testing.T) {
	for limit, tooMuch := range map[core.Limit]bool{
		core.SlidingWindow(10, time.Hour):                false,
		core.SlidingWindow(10, time.Hour).CountRefused(): false,
		core.MovingWindow(10, time.Hour):                 false,
		core.FixedWindow(10, time.Hour):                  false,
		core.ElasticWindow(10, time.Hour):                true,
		core.TokenBucket(10, core.Every(time.Hour)):      true,
		core.Funnel(10, core.Every(time.Hour)):           true,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := core.Must(core.Must(core.New(memorystore.New(nil), limit)).With(core.Refundable{}))
			lost, _ := l.AllowN(t.Context(), "u", "a", 5)
			_ = l.Reset(t.Context(), "u", "a")
			time.Sleep(time.Millisecond)
			_, _ = l.AllowN(t.Context(), "u", "a", 5)
			err := l.Refund(t.Context(), lost)
			if d, _ := l.Peek(t.Context(), "u", "a"); err != nil || d.Remaining > 5 != tooMuch {
				t.Errorf("%s: %d remain, %v", limit, d.Remaining, err)
			}
		})
	}
}

// What the fallback has decided is given back to it, and what the store has, to that.
func TestARefundGoesToTheStoreThatDecided(t *testing.T) {
	ctx := t.Context()
	first, second := memorystore.New(nil), memorystore.New(nil)
	store := &flaky{Store: first}
	limit := core.FixedWindow(5, time.Hour)
	l := core.Must(core.Must(core.New(core.Observe(core.Fallback(store, second), func(context.Context, core.Observation) {}), limit)).With(core.Refundable{}))
	left := func() [2]int {
		a, _ := core.Must(core.New(first, limit)).Peek(ctx, "u", "a")
		b, _ := core.Must(core.New(second, limit)).Peek(ctx, "u", "a")
		return [2]int{a.Remaining, b.Remaining}
	}
	one, _ := l.AllowN(ctx, "u", "a", 2)
	store.err = errDown
	two, _ := l.AllowN(ctx, "u", "a", 3)
	if got := left(); one.Source != core.SourceStore || two.Source != core.SourceFallback || got != [2]int{3, 2} {
		t.Fatalf("%+v, %+v, %v", one, two, got)
	}
	if err := l.Refund(ctx, two); err != nil || left() != [2]int{3, 5} {
		t.Errorf("the fallback's: %v, %v", left(), err)
	}
	if err := l.Refund(ctx, one); err != nil || left() != [2]int{5, 5} {
		t.Errorf("the store's: %v, %v", left(), err)
	}
}

// A subject that costs nothing may bind. Then the decision still gives back what the others were charged.
func TestARefundIfASubjectThatCostsNothingBinds(t *testing.T) {
	ctx, store := t.Context(), memorystore.New(nil)
	l := core.Must(core.Must(core.New(store, core.FixedWindow(5, time.Hour))).With(core.Refundable{}))
	tight := core.Must(core.New(store, core.FixedWindow(1, time.Hour)))
	d, err := core.All(ctx, l.For("alice", "post"), tight.For("org", "post").Cost(0))
	if err != nil || !d.Allowed || d.Subject != 1 {
		t.Fatal(d, err)
	}
	err = l.Refund(ctx, d)
	if left, _ := l.Peek(ctx, "alice", "post"); err != nil || left.Remaining != 5 {
		t.Errorf("%v, and %d of 5 remain", err, left.Remaining)
	}
}
