package core_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A store that can do neither returns an error and charges nothing.
func TestAllNeedsAStoreThatCan(t *testing.T) {
	for name, store := range map[string]core.Store{
		"a store":                      only{memorystore.New(nil)},
		"a fallback that can do less":  core.Fallback(&apart{store: memorystore.New(nil)}, only{memorystore.New(nil)}),
		"a decorator of one's own":     core.FailOpen(only{memorystore.New(nil)}),
		"a fallback that joins no one": core.Fallback(memorystore.New(nil), only{memorystore.New(nil)}),
	} {
		t.Run(name, func(t *testing.T) {
			l := core.Must(core.New(store, core.FixedWindow(5, time.Minute)))
			d, err := core.All(t.Context(), l.For("alice", "post"), l.For("org", "post"))
			if !errors.Is(err, core.ErrConfig) || d.Allowed || left(t, l, "alice") != 5 {
				t.Errorf("%+v, %v", d, err)
			}
			if d, err = core.All(t.Context(), l.For("alice", "post")); err != nil || !d.Allowed {
				t.Errorf("one subject: %+v, %v", d, err)
			}
			if d, err = core.PeekAll(t.Context(), l.For("alice", "post"), l.For("org", "post")); err != nil || d.Remaining != 4 {
				t.Errorf("PeekAll: %+v, %v", d, err)
			}
		})
	}
}

// Limiters share a store if it is the same one, and not if it only wraps the same one.
func TestSharesStore(t *testing.T) {
	store := memorystore.New(nil)
	limiter := func(s core.Store) *core.Limiter { return core.Must(core.New(s, core.FixedWindow(1, time.Hour))) }
	one, slice := limiter(store), limiter(several{store})
	for name, tt := range map[string]struct {
		a, b *core.Limiter
		want bool
	}{
		"one store":                      {one, limiter(store), true},
		"one limiter":                    {one, one, true},
		"derived":                        {one, core.Must(one.With(core.Refundable{})), true},
		"two stores":                     {one, limiter(memorystore.New(nil)), false},
		"decorated":                      {one, limiter(core.FailOpen(store)), false},
		"stores that cannot be compared": {slice, limiter(several{store}), false},
		"one that cannot be compared":    {slice, slice, true},
		"nil":                            {one, nil, false},
		"of nil":                         {nil, one, false},
	} {
		if got := tt.a.SharesStore(tt.b); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// several is a store whose values cannot be compared.
type several []core.Store

func (s several) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return s[0].Take(ctx, c)
}

func (s several) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s[0].Reset(ctx, user, action, limits)
}

// Stores are seen through decorators, the first one of a Fallback before the second.
func TestStores(t *testing.T) {
	first, second := memorystore.New(nil), memorystore.New(nil)
	divided := core.Divide(second, 2)
	inner := core.Fallback(first, divided)
	outer := core.Shadow(inner)
	want := []core.Store{outer, inner, first, divided, second}
	if got := slices.Collect(core.Stores(outer)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for most := range want {
		seen := 0
		for range core.Stores(outer) {
			if seen++; seen > most {
				break
			}
		}
		if seen != most+1 {
			t.Errorf("%d stores after a break at %d", seen, most+1)
		}
	}
	if got := slices.Collect(core.Stores(nil)); got != nil {
		t.Errorf("nil has %v", got)
	}
}

// A foreign store's decision may be about any subject.
func TestAllOfAForeignStore(t *testing.T) {
	l := core.Must(core.New(foreign{}, core.FixedWindow(5, time.Minute)))
	for _, cost := range []int{0, 1} {
		if d, err := core.All(t.Context(), l.For("alice", "post"), l.For("org", "post").Cost(cost)); err != nil || d.Subject < 0 || d.Subject > 1 {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

type foreign struct{}

func (foreign) Joins(string, string) bool { return true }

func (foreign) Take(_ context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{Allowed: c.Mode == machine.ModeCharge, Limit: 5, Subject: 7}, nil, nil
}

func (foreign) Reset(context.Context, string, string, []core.Limit) error { return nil }

// A store that has Amend and yet makes no record passes nothing.
func TestAllOfAStoreWithoutReceipts(t *testing.T) {
	l := core.Must(core.New(receiptless{&apart{store: memorystore.New(nil)}}, core.FixedWindow(5, time.Minute)))
	if d, err := core.All(t.Context(), l.For("alice", "post"), l.For("org", "post")); !errors.Is(err, core.ErrConfig) || d != (core.Decision{}) {
		t.Errorf("%+v, %v", d, err)
	}
}

type receiptless struct{ *apart }

func (s receiptless) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	t := *c.Terms
	t.Receipt = false
	c.Terms = &t
	return s.apart.Take(ctx, c)
}
