package core_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A leased limit is checked by stricter numbers, and prints the declared ones.
func TestLeasedIsStricter(t *testing.T) {
	second := core.Per(10_000, time.Second)
	tests := []struct {
		limit    core.Limit
		identity string
		quota    int
		again    time.Duration // after the whole quota at once, the same passes again
	}{
		{core.MovingWindow(5, time.Minute).Leased(time.Second), "moving:1m/1s", 5, 61 * time.Second},
		{core.FixedWindow(5, time.Minute).Leased(time.Second).Named("x"), "fixed:1m/1s:x", 5, time.Minute},
		{core.Funnel(10_000, second).Leased(50 * time.Millisecond), "funnel:10000:1/100us/50ms", 9500, 950 * time.Millisecond},
		{core.TokenBucket(100, core.Per(7, time.Second)).Leased(time.Second), "bucket:100:7/1s/1s", 93, 13285715 * time.Microsecond},
		{core.TokenBucket(100, core.Per(7, time.Second)).Leased(1001 * time.Millisecond), "bucket:100:7/1s/1.001s", 92, 13142858 * time.Microsecond},
		{core.Throttle(99, core.Per(10, time.Second)).Leased(time.Millisecond), "funnel:100:1/100ms/1ms", 99, 9900 * time.Millisecond},
		{core.Funnel(100, core.Per(10, time.Second)).Leased(time.Second).Leased(time.Millisecond), "funnel:100:1/100ms/1ms", 99, 9900 * time.Millisecond},
		{core.Funnel(10, core.Per(1, time.Millisecond)).Leased(time.Millisecond), "funnel:10:1/1ms/1ms", 9, 9 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := test.limit
				if l.Identity() != test.identity || l.Quota() != test.quota {
					t.Errorf("identity %s, quota %d; want %s, %d", l.Identity(), l.Quota(), test.identity, test.quota)
				}
				lim := core.Must(core.New(memorystore.New(nil), l))
				all := func() core.Decision {
					d, err := lim.AllowN(t.Context(), "u", "a", test.quota)
					if err != nil {
						t.Fatal(err)
					}
					return d
				}
				if d := all(); !d.Allowed || d.Limit != test.quota || d.Remaining != 0 || d.ResetAfter != test.again {
					t.Errorf("%+v", d)
				}
				if d := all(); d.Allowed || d.RetryAfter != test.again {
					t.Errorf("RetryAfter %s, want %s", d.RetryAfter, test.again)
				}
				if d, err := lim.AllowN(t.Context(), "u", "b", test.quota+1); err != nil || d.RetryAfter != core.Never {
					t.Errorf("above the quota: %+v, %v", d, err)
				}
				time.Sleep(test.again)
				if d := all(); !d.Allowed {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}

// "A share is not leased."
// The shares of a leased limit are those of the limit as it is declared, and two limits that differ
// by their lease share no state.
func TestDivideDoesNotLease(t *testing.T) {
	rate := core.Per(100, time.Second)
	for _, l := range []core.Limit{core.MovingWindow(100, time.Second), core.FixedWindow(100, time.Second), core.Funnel(100, rate), core.TokenBucket(100, rate)} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			lim := core.Must(core.New(core.Divide(memorystore.New(nil), 4), l.Leased(100*time.Millisecond), l))
			for want := 24; want >= 0; want-- {
				if d, err := lim.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed || d.Limit != 25 || d.Remaining < want {
					t.Fatalf("%+v, %v; want %d to remain", d, err, want)
				}
			}
		})
	}
}
