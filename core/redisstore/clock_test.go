//go:build !race

package redisstore_test

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
)

// An app whose clock is decades behind, the bubble's being in the year 2000, and a day
// ahead of itself at every call: windows, bans, turns and what is given back go by
// Redis's. Only a calendar window needs a clock that is not off by more than a period.
func TestAppClockDoesNotMatter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMini(t)
		m.ClockTTL(true)
		m.SetTime(epoch)
		defer m.Close()
		rdb := inBubble(m)
		defer rdb.Close()
		store := redisstore.New(rdb, nil)
		for _, l := range kinds {
			if l.Rule().Calendar != nil {
				continue
			}
			lim := core.Must(core.Must(core.New(store, l)).With(core.Refundable{}, core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Minute}}))
			var taken core.Decision
			for i := range 7 {
				d, err := lim.Allow(t.Context(), user, l.String())
				if err != nil || d.Allowed != (i < 5) {
					t.Fatalf("%s: %+v, %v", l, d, err)
				}
				if i == 1 { // the first has opened a window, and stays
					taken = d
				}
				time.Sleep(24 * time.Hour) // only here
			}
			reason := core.ReasonBanned
			if l.Rule().TakesSlots() { // whose refusals count towards no ban
				reason = core.ReasonInFlight
			}
			if d, err := lim.Allow(t.Context(), user, l.String()); err != nil || d.Reason != reason || d.RetryAfter < time.Minute {
				t.Errorf("%s: %+v, %v", l, d, err)
			}
			if err := lim.Unban(t.Context(), user, l.String()); err != nil {
				t.Error(err)
			}
			time.Sleep(24 * time.Hour)
			if err := lim.Refund(t.Context(), taken); err != nil {
				t.Error(err)
			}
			if err := lim.Release(t.Context(), taken); err != nil {
				t.Error(err)
			}
			// Of Redis's instant, one is given back; CountRefused is full.
			if d, err := lim.Peek(t.Context(), user, l.String()); err != nil || d.Allowed != (l.Rule().Kind != machine.KindSlidingRefused) {
				t.Errorf("%s: %+v, %v", l, d, err)
			}
		}
		// A turn comes when Redis has said that it does, by whatever clock one sleeps.
		funnel := core.Must(core.New(store, core.Funnel(1, core.Every(time.Minute))))
		for i := range 3 {
			start := time.Now()
			if d, err := funnel.Wait(t.Context(), user, action); err != nil || !d.Allowed || time.Since(start).Truncate(time.Second) != time.Duration(i)*time.Minute {
				t.Errorf("turn %d after %s: %+v, %v", i, time.Since(start), d, err)
			}
		}
	})
}
