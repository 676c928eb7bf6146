//go:build !race

package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// The process's clock is off by up to a period, and no decision changes. If it is off by more, the charge
// is an error, and others in the batch are decided.
func TestTheClockOfTheProcessIsOff(t *testing.T) {
	day := core.CalendarWindow(3, core.Day, nil)
	worlds(t, func(t *testing.T, w *world) {
		server := func() time.Time { return time.UnixMicro(w.now) }
		midnight := server().Truncate(24 * time.Hour).Add(24 * time.Hour)
		n := 0
		for _, now := range []time.Duration{-time.Microsecond, 0} { // of the server, from midnight
			w.advance(midnight.Add(now).Sub(server()))
			for _, off := range []time.Duration{-24 * time.Hour, -time.Hour, -time.Microsecond, 0, time.Microsecond, time.Hour, 24*time.Hour - time.Microsecond} {
				n++
				w.store.SetTime(func() time.Time { return server().Add(off) })
				l := core.Must(core.New(w.store, day))
				for i := range 4 {
					d, err := l.Allow(t.Context(), fmt.Sprint(user, n), action)
					left := midnight.Sub(server())
					if left <= 0 {
						left += 24 * time.Hour
					}
					if err != nil || d.Allowed != (i < 3) || d.ResetAfter != left {
						t.Errorf("off by %s, %s after midnight: %+v, %v", off, now, d, err)
					}
				}
			}
		}
		for _, off := range []time.Duration{-48 * time.Hour, 48 * time.Hour, -40 * 365 * 24 * time.Hour, time.Duration(-w.now) * 1000, -100 * 365 * 24 * time.Hour} {
			w.store.SetTime(func() time.Time { return server().Add(off) })
			l := core.Must(core.New(w.store, day))
			_, err := l.Allow(t.Context(), user, action)
			if discreet(t, err); !errors.Is(err, redisstore.ErrClock) || !errors.Is(err, core.ErrKey) {
				t.Errorf("off by %s: %v", off, err)
			}
			charge := func(limits ...core.Limit) core.Charge {
				return core.Charge{User: fmt.Sprint(user, off), Action: action, Cost: 1, Terms: &core.Terms{Limits: limits}}
			}
			fixed := core.FixedWindow(3, time.Hour)
			charges := []core.Charge{charge(fixed), charge(fixed, day), charge(fixed)}
			reply, err := w.store.Run(charges...)
			if err != nil {
				t.Fatal(err)
			}
			decisions, _, errs := redisstore.Decode(charges, reply)
			if errs[0] != nil || errs[1] == nil || errs[2] != nil || decisions[2].Remaining != 1 {
				t.Errorf("off by %s: in a batch: %+v, %v", off, decisions, errs)
			}
		}
		w.store.SetTime(server)
	})
}

// What is sent is made anew when a boundary passes, in both directions, and only then.
func TestARequestIsRenewedAtABoundary(t *testing.T) {
	now := epoch
	store := redisstore.New(connect(t, &redis.Options{Addr: closed}), nil)
	store.SetTime(func() time.Time { return now })
	hours, days := core.CalendarWindow(3, core.Hour, nil), core.CalendarWindow(3, core.Day, nil)
	c := core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: []core.Limit{days, hours}}}
	first := store.Sent(c)
	for _, tt := range []struct {
		name  string
		to    time.Time
		again bool
	}{
		{"a second later", now.Add(time.Second), true},
		{"at the end of the hour", now.Truncate(time.Hour).Add(time.Hour - time.Microsecond), true},
		{"in the next hour", now.Truncate(time.Hour).Add(time.Hour), false},
		{"in the first hour again", now, true},
		{"on the next day", now.Add(24 * time.Hour), false},
		{"an hour earlier", now.Add(-time.Hour), false},
	} {
		now = tt.to
		if got := store.Sent(c); (got == first) != tt.again || got != store.Word(c) {
			t.Errorf("%s: %s, at first %s", tt.name, got, first)
		}
	}
}

// The key is kept for a second after the window's end, and not for longer.
func TestTheKeyOfACalendarWindowExpires(t *testing.T) {
	month := core.CalendarWindow(3, core.Month, nil)
	worlds(t, func(t *testing.T, w *world) {
		l := core.Must(core.New(w.store, month))
		for range 4 {
			if _, err := l.Allow(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
			february := time.Date(2026, 2, 1, 0, 0, 1, 0, time.UTC)
			if at := w.expiry(w.store.Key(user, action, month)); at != february.UnixMilli() {
				t.Errorf("the key expires at %s", time.UnixMilli(at).UTC())
			}
		}
	})
}
