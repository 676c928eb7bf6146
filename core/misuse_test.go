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

// A nil pointer in an interface is a nil store, and is said to be one.
func TestANilPointerIsANilStore(t *testing.T) {
	var memory *memorystore.Store
	for name, store := range map[string]core.Store{"nil": nil, "memorystore": memory} {
		if _, err := core.New(store, core.FixedWindow(1, time.Hour)); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "the store is nil") {
			t.Errorf("%s: New: %v", name, err)
		}
		func() {
			defer func() {
				if v := recover(); v == nil || !strings.Contains(v.(string), "the store is nil") {
					t.Errorf("%s: Fallback: %v", name, v)
				}
			}()
			core.Fallback(store, memorystore.New(nil))
		}()
	}
}

// Every call of a zero Limiter, or with a nil context, is an error that says what to do.
func TestZeroLimitersAndNilContexts(t *testing.T) {
	sound := core.Must(core.Must(core.New(memorystore.New(nil), core.FixedWindow(9, time.Hour), core.InFlight(9))).With(
		core.Refundable{}, core.BanPolicy{Refusals: 1, Within: time.Hour, Bans: []time.Duration{time.Hour}}))
	d, err := sound.Allow(t.Context(), "u", "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		l    *core.Limiter
		ctx  context.Context
		want string
	}{
		"a zero Limiter": {new(core.Limiter), t.Context(), "core: a zero Limiter; make limiters with core.New"},
		"a nil Limiter":  {nil, t.Context(), "core: a zero Limiter; make limiters with core.New"},
		"a nil context":  {sound, nil, "core: the context is nil"},
	} {
		calls := map[string]func() error{
			"Allow":     func() error { _, err := tt.l.Allow(tt.ctx, "u", "a"); return err },
			"AllowN 0":  func() error { _, err := tt.l.AllowN(tt.ctx, "u", "a", 0); return err },
			"Peek":      func() error { _, err := tt.l.Peek(tt.ctx, "u", "a"); return err },
			"Status":    func() error { _, err := tt.l.Status(tt.ctx, "u", "a"); return err },
			"Wait":      func() error { _, err := tt.l.Wait(tt.ctx, "u", "a"); return err },
			"Surcharge": func() error { _, err := tt.l.Surcharge(tt.ctx, "u", "a", 1); return err },
			"Reset":     func() error { return tt.l.Reset(tt.ctx, "u", "a") },
			"Ban":       func() error { return tt.l.Ban(tt.ctx, "u", "a", time.Hour) },
			"Unban":     func() error { return tt.l.Unban(tt.ctx, "u", "a") },
			"Refund":    func() error { return tt.l.Refund(tt.ctx, d) },
			"Settle":    func() error { return tt.l.Settle(tt.ctx, d, 2) },
			"Release":   func() error { return tt.l.Release(tt.ctx, d) },
			"Renew":     func() error { return tt.l.Renew(tt.ctx, d) },
		}
		for call, do := range calls {
			if err := do(); !errors.Is(err, core.ErrConfig) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
		if _, err := tt.l.With(core.Refundable{}); tt.ctx != nil && !errors.Is(err, core.ErrConfig) {
			t.Errorf("%s: With: %v", name, err)
		}
	}
}

// own is a decorator of one's own.
type own struct{ core.Store }

func (o own) Unwrap() core.Store { return o.Store }

// picky serves nobody.
type picky struct{ core.Store }

func (picky) Accept([]core.Limit) error { return errors.New("not this one") }

func TestCustomDecoratorsAreUnwrapped(t *testing.T) {
	if _, err := core.New(own{own{picky{memorystore.New(nil)}}}, core.FixedWindow(1, time.Hour)); err == nil {
		t.Error("New did not ask the store")
	}
	store := &flaky{Store: memorystore.New(nil)}
	store.err = errDown
	var seen core.Observation
	l := core.Must(core.New(core.Observe(own{core.FailOpen(store)}, func(_ context.Context, o core.Observation) { seen = o }), core.FixedWindow(1, time.Hour)))
	for range 4 {
		_, _ = l.Allow(t.Context(), "u", "a")
	}
	if !seen.Down {
		t.Errorf("a breaker behind it is not seen: %+v", seen)
	}
}

func TestObserveSaysHowLongTheStoreTook(t *testing.T) {
	var seen core.Observation
	slow := slowly{memorystore.New(nil), 20 * time.Millisecond}
	l := core.Must(core.New(core.Observe(slow, func(_ context.Context, o core.Observation) { seen = o }), core.FixedWindow(1, time.Hour)))
	if _, err := l.Allow(t.Context(), "u", "a"); err != nil || seen.Took < slow.by {
		t.Errorf("%s, %v", seen.Took, err)
	}
}

type slowly struct {
	core.Store
	by time.Duration
}

func (s slowly) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	time.Sleep(s.by)
	return s.Store.Take(ctx, c)
}

// What a store returns beside an error is no decision, and nobody sees it.
func TestAnErrorComesWithoutADecision(t *testing.T) {
	const user, action = "u", "a"
	seen := 0
	store := core.Observe(hasty{memorystore.New(nil)}, func(_ context.Context, o core.Observation) {
		if seen++; o.Err == nil || o.Decision != (core.Decision{}) {
			t.Errorf("Observe: %+v", o)
		}
	})
	for name, store := range map[string]core.Store{"alone": hasty{memorystore.New(nil)}, "observed": store} {
		l := core.Must(core.New(store, core.SlidingWindow(2, time.Hour), core.FixedWindow(9, time.Hour)))
		for call, ask := range map[string]func() (core.Decision, error){
			"Allow":       func() (core.Decision, error) { return l.Allow(t.Context(), user, action) },
			"a cost of 3": func() (core.Decision, error) { return l.AllowN(t.Context(), user, action, 3) },
			"a cost of 0": func() (core.Decision, error) { return l.AllowN(t.Context(), user, action, 0) },
			"Peek":        func() (core.Decision, error) { return l.Peek(t.Context(), user, action) },
			"Surcharge":   func() (core.Decision, error) { return l.Surcharge(t.Context(), user, action, 1) },
			"Wait":        func() (core.Decision, error) { return l.Wait(t.Context(), user, action) },
		} {
			if d, err := ask(); err != errHasty || d != (core.Decision{}) {
				t.Errorf("%s, %s: %+v, %v", name, call, d, err)
			}
		}
	}
	if seen == 0 {
		t.Error("Observe has seen nothing")
	}
}

// A hasty store decides, and then cannot save what it has decided.
type hasty struct{ *memorystore.Store }

var errHasty = errors.New("the state cannot be saved")

func (s hasty) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, _ := s.Store.Take(ctx, c)
	return d, r, errHasty
}
