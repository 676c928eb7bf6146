package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
)

// "If n is above 1,000,000 but not above an enforced quota, and the quota of a [MovingWindow]"
// A MovingWindow writes each unit, so one call writes a bounded number.
func TestACostOfAMovingWindowIsBounded(t *testing.T) {
	const most = 1_000_000
	store := &counting{Store: memorystore.New(nil)}
	moving := core.Must(core.Must(core.New(store, core.MovingWindow(5*most, time.Hour))).With(core.Refundable{}))
	for _, tt := range []struct {
		name    string
		limiter *core.Limiter
		cost    int
		err     error
		allowed bool
	}{
		{"as many as one call writes", moving, most, nil, true},
		{"one more", moving, most + 1, core.ErrCost, false},
		{"the whole quota", moving, 5 * most, core.ErrCost, false},
		{"above the quota it is refused, as with any limit", moving, 5*most + 1, nil, false},
		{"beside another limit", core.Must(core.New(store, core.FixedWindow(9*most, time.Hour), core.MovingWindow(5*most, time.Hour).Shadow())), most + 1, core.ErrCost, false},
		{"another limit writes a count", core.Must(core.New(store, core.FixedWindow(9*most, time.Hour))), 9 * most, nil, true},
	} {
		store.most = 0
		d, err := tt.limiter.AllowN(t.Context(), tt.name, "upload", tt.cost)
		if !errors.Is(err, tt.err) || d.Allowed != tt.allowed {
			t.Errorf("%s: %+v, %v", tt.name, d, err)
		}
		if _, err = core.All(t.Context(), tt.limiter.For(tt.name+", all", "upload").Cost(tt.cost)); !errors.Is(err, tt.err) {
			t.Errorf("%s, by All: %v", tt.name, err)
		}
	}
	store.most = 0
	d, err := moving.Surcharge(t.Context(), "bob", "upload", 2*most+most/2)
	if err != nil || d.Remaining != 2*most+most/2 || store.most != most {
		t.Errorf("a surcharge: %+v, %v, at most %d at once", d, err, store.most)
	}
	d, err = moving.Allow(t.Context(), "carol", "upload")
	if err != nil {
		t.Fatal(err)
	}
	if err = moving.Settle(t.Context(), d, 3*most); err != nil {
		t.Error(err)
	}
	if d, err = moving.Peek(t.Context(), "carol", "upload"); err != nil || d.Remaining != 2*most || store.most != most {
		t.Errorf("after Settle: %+v, %v, at most %d at once", d, err, store.most)
	}
}

// counting remembers the highest cost that is not above a quota.
type counting struct {
	core.Store
	most int64
}

func (s *counting) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if c.Mode != machine.ModePeek {
		s.most = max(s.most, c.Cost)
	}
	return s.Store.Take(ctx, c)
}

func (s *counting) Unwrap() core.Store { return s.Store }
