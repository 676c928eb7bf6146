package memorystore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

func TestOptionsOutOfBoundsPanic(t *testing.T) {
	for _, n := range []int64{-1, maxMaxKeys + 1} {
		if int64(int(n)) != n {
			continue // with 32 bits it cannot be said
		}
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.Contains(s, fmt.Sprint(n)) || !strings.Contains(s, "memorystore: ") {
					t.Errorf("MaxKeys %d: panic %q", n, s)
				}
			}()
			New(&Options{MaxKeys: int(n)})
		}()
	}
	if s := New(&Options{}); s.max != defaultMaxKeys {
		t.Errorf("the zero Options allow %d keys", s.max)
	}
}

func TestALimiterNeedsAsManyKeysAsLimits(t *testing.T) {
	_, err := core.New(core.Fallback(New(nil), New(&Options{MaxKeys: 1})), hour, core.SlidingWindow(1, time.Hour))
	if err == nil || !strings.Contains(err.Error(), "MaxKeys is 1") {
		t.Errorf("New: %v", err)
	}
}

func TestTimeIsMonotonic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := core.Must(core.New(New(nil), core.SlidingWindow(2, time.Minute)))
		allow(t, l, "u")
		time.Sleep(20 * time.Second)
		allow(t, l, "u")
		d := allow(t, l, "u")
		if d.Allowed || d.RetryAfter != 40*time.Second {
			t.Fatalf("%+v", d)
		}
		time.Sleep(d.RetryAfter - time.Microsecond)
		if d := allow(t, l, "u"); d.Allowed {
			t.Errorf("a microsecond early: %+v", d)
		}
		time.Sleep(time.Microsecond)
		if d := allow(t, l, "u"); !d.Allowed {
			t.Errorf("at RetryAfter: %+v", d)
		}
	})
}

// A limiter asks the Take of a store that embeds this one, and does not go past it.
func TestAStoreThatEmbedsThisOneIsAsked(t *testing.T) {
	s := &takes{Store: New(nil)}
	l := core.Must(core.New(s, core.Funnel(2, core.Every(time.Hour))))
	for i, want := range []bool{true, true, false} {
		if d := allow(t, l, "u"); d.Allowed != want || s.n != i+1 {
			t.Errorf("action %d: allowed %v, and the store was asked %d times", i+1, d.Allowed, s.n)
		}
	}
}

type takes struct {
	*Store
	n int
}

func (s *takes) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	s.n++
	return s.Store.Take(ctx, c)
}
