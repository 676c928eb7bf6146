package memorystore

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// If all keys are refused, new users share one state for each limit.
func TestUsersWithoutAKeyShareAState(t *testing.T) {
	t.Run("they have one quota together", func(t *testing.T) {
		c, s := storeOf(2)
		l := core.Must(core.New(s, hour))
		for _, user := range []string{"a", "b"} {
			allow(t, l, user)
			allow(t, l, user)
			c.advance(time.Minute)
		}
		for i, remaining := range []int{1, 0} {
			user := fmt.Sprint("new", i)
			peeked, err := l.Peek(ctx, user, "a")
			if d := allow(t, l, user); err != nil || !d.Allowed || !peeked.Allowed || d.Remaining != remaining {
				t.Fatalf("new user %d: %+v, and Peek says %+v, %v", i, d, peeked, err)
			}
		}
		want := core.Decision{Limit: 2, RetryAfter: time.Minute, ResetAfter: time.Minute, Reason: core.ReasonFull, Source: core.SourceStore}
		for i := range 100 { // by none of many users, actions or stores in between
			user, limiter := fmt.Sprint("newer", i), l
			if i%2 == 0 {
				limiter = core.Must(core.New(core.Observe(s, func(context.Context, core.Observation) {}), hour))
			}
			peeked, err := l.Peek(ctx, user, "b")
			if d := allow(t, limiter, user); err != nil || d != want || peeked != want {
				t.Fatalf("newer user %d: %+v, and Peek says %+v, %v; want %+v", i, d, peeked, err, want)
			}
		}
		c.advance(58*time.Minute - time.Microsecond)
		if d := allow(t, l, "last"); d.Allowed || d.RetryAfter != time.Microsecond {
			t.Errorf("a microsecond before the first refused key expires: %+v", d)
		}
		c.advance(time.Microsecond)
		if d := allow(t, l, "last"); !d.Allowed || d.Remaining != 1 {
			t.Errorf("at the instant: %+v", d)
		}
		s.check(t)
	})
	t.Run("they charge all limits or none", func(t *testing.T) {
		_, s := storeOf(2)
		allow(t, core.Must(core.New(s, core.FixedWindow(1, time.Hour))), "a")
		window := core.FixedWindow(9, time.Minute)
		two := core.Must(core.New(s, window, core.Funnel(9, core.Every(time.Minute))))
		// The first limit takes the key that is left, and the second the shared state.
		if d, err := two.AllowN(ctx, "b", "a", 9); err != nil || !d.Allowed {
			t.Fatalf("two limits in one place: %+v, %v", d, err)
		}
		if d := allow(t, two, "c"); d.Reason != core.ReasonFull {
			t.Fatalf("the shared funnel is full: %+v", d)
		}
		if d := allow(t, core.Must(core.New(s, window)), "d"); d.Remaining != 8 {
			t.Errorf("the refusal has charged the shared window: %+v", d)
		}
		if s.used.Load() != 2 {
			t.Errorf("%d keys are kept", s.used.Load())
		}
		s.check(t)
	})
	t.Run("they wait no longer than it refuses", func(t *testing.T) {
		c, s := storeOf(1)
		allow(t, core.Must(core.New(s, core.FixedWindow(1, time.Hour))), "a")
		l := core.Must(core.New(s, core.Funnel(1, core.Every(time.Second))))
		allow(t, l, "b")
		if d := allow(t, l, "c"); d.Allowed || d.RetryAfter != time.Second {
			t.Errorf("right after another: %+v", d)
		}
		c.advance(time.Second)
		if d := allow(t, l, "c"); !d.Allowed {
			t.Errorf("a second later: %+v", d)
		}
	})
	t.Run("they wait no longer than the first refused key is kept", func(t *testing.T) {
		c, s := storeOf(2)
		two := core.Must(core.New(s, core.FixedWindow(1, time.Second), core.FixedWindow(1, time.Hour)))
		allow(t, two, "a")
		allow(t, two, "a") // both windows are now kept from going for an hour
		l := core.Must(core.New(s, hour))
		allow(t, l, "shares")
		allow(t, l, "shares")
		d := allow(t, l, "new")
		if d.Reason != core.ReasonFull || d.RetryAfter != time.Second {
			t.Fatalf("the new key: %+v", d)
		}
		c.advance(d.RetryAfter)
		if d := allow(t, l, "new"); !d.Allowed {
			t.Errorf("at the instant: %+v", d)
		}
	})
	t.Run("Status has every limit", func(t *testing.T) {
		_, s := storeOf(2)
		two := core.Must(core.New(s, core.FixedWindow(1, time.Hour), core.FixedWindow(1, 2*time.Hour)))
		for _, user := range []string{"a", "a", "b"} {
			allow(t, two, user)
		}
		got, err := two.Status(ctx, "c", "a")
		if err != nil || len(got.Limits) != 2 {
			t.Fatalf("%+v, %v", got, err)
		}
		for i, wait := range []time.Duration{time.Hour, 2 * time.Hour} {
			want := core.LimitStatus{Limit: two.Limits()[i], RetryAfter: wait, ResetAfter: wait, Used: 1}
			if got.Limits[i] != want {
				t.Errorf("%+v, want %+v", got.Limits[i], want)
			}
		}
	})
}

// A shared state cannot hold what is one user's.
func TestWhatNeedsAKey(t *testing.T) {
	t.Run("a debt, and the debtor keeps the key", func(t *testing.T) {
		c, s := storeOf(1)
		c.advance(time.Second)
		l := core.Must(core.Must(core.New(s, core.Funnel(2, core.Every(time.Minute)))).With(core.Refundable{}))
		debtor, shared := allow(t, l, "debtor"), core.Decision{}
		if err := l.Settle(ctx, debtor, 4); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if d := allow(t, l, fmt.Sprint("new ", i)); d.Allowed {
				shared = d
			}
		}
		if d, _ := l.Peek(ctx, "debtor", "a"); d.Allowed || d.RetryAfter != 3*time.Minute {
			t.Errorf("the debtor: %+v", d)
		}
		if err := l.Settle(ctx, shared, 2); err == nil {
			t.Error("a debt was charged to what all new users share, or to nobody")
		}
	})
	t.Run("a ban by hand, and a turn", func(t *testing.T) {
		c, s := storeOf(2)
		c.us = 1e9
		two := core.Must(core.New(s, core.FixedWindow(1, time.Hour), core.FixedWindow(1, 2*time.Hour)))
		allow(t, two, "a")
		l := core.Must(core.New(s, core.Funnel(1, core.Every(time.Second))))
		banning := core.Must(l.With(core.BanPolicy{Refusals: 9, Within: time.Second, Bans: []time.Duration{time.Hour}}))
		if err := banning.Ban(ctx, "b", "a", time.Hour); err == nil {
			t.Error("banned without a key")
		}
		if d := allow(t, banning, "c"); !d.Allowed {
			t.Errorf("after a ban that failed: %+v", d)
		}
		charge := core.Charge{User: "d", Action: "a", Cost: 1, Terms: &core.Terms{Limits: l.Limits(), Receipt: true, Ask: machine.Ask{Ahead: 2e6}}}
		if d, _, err := s.Take(ctx, charge); err != nil || d.Allowed || d.Reason != core.ReasonFull {
			t.Errorf("a turn without a key: %+v, %v", d, err)
		}
	})
	t.Run("a bucket that is refused its first action", func(t *testing.T) {
		_, s := storeOf(1)
		once := core.Must(core.New(s, hour))
		allow(t, once, "a")
		allow(t, once, "a")
		bucket := core.Must(core.New(s, core.TokenBucket(10, core.Every(time.Second)).Initial(2)))
		if d, err := bucket.AllowN(ctx, "new", "a", 5); err != nil || d.Reason != core.ReasonFull || d.RetryAfter != time.Minute {
			t.Errorf("it does not fill while it is not kept: %+v, %v", d, err)
		}
	})
}

// A decision by a shared state takes no longer than another one, however long its trail.
func TestASharedTrailIsNotCopied(t *testing.T) {
	const max = 100_000
	_, s := storeOf(1)
	once := core.Must(core.New(s, core.FixedWindow(1, time.Hour)))
	allow(t, once, "a")
	allow(t, once, "a")
	l := core.Must(core.New(s, core.MovingWindow(max, time.Hour)))
	if d, err := l.AllowN(ctx, "new", "a", max-2); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, want := range []bool{true, true, false} {
		if d := allow(t, l, "new"); d.Allowed != want {
			t.Errorf("%+v", d)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > max {
		t.Errorf("three decisions have allocated %d bytes", n)
	}
}
