//go:build !race

package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Redis's clock steps an hour back or forth, and nobody is locked out for longer than
// one full period from his first attempt after that, whether he comes back when he is
// told or hammers. ElasticWindow and CountRefused are to keep out who hammers.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartAt(t, epoch)
	store, advance := follow(reliable(t, server.Addr), clock.Now, clock.Advance)
	every := core.Every(2 * time.Minute)
	const back, forth, often = -time.Hour, time.Hour, 17 * time.Second
	for _, l := range allKinds(t, []core.Limit{
		core.SlidingWindow(5, 10*time.Minute),
		core.SlidingWindow(5, 10*time.Minute).CountRefused(),
		core.MovingWindow(5, 10*time.Minute),
		core.FixedWindow(5, 10*time.Minute),
		core.ElasticWindow(5, 10*time.Minute),
		core.TokenBucket(5, every).Named("full"),
		core.TokenBucket(5, every).Initial(3),
		core.Funnel(5, every),
		core.CalendarWindow(5, core.Minute, nil),
		core.InFlight(5).Lease(10 * time.Minute),
	}) {
		lim := core.Must(core.New(store, l))
		for i, steps := range [][]time.Duration{{back}, {forth}, {forth, back}, {back, forth}, {back, back}, {forth, back, back, forth, back}} {
			for _, meanwhile := range []bool{false, true} {
				for _, hammers := range []bool{false, true} {
					if k := l.Rule().Kind; hammers && (k == machine.KindElasticWindow || k == machine.KindSlidingRefused) {
						continue
					}
					what := fmt.Sprintf("%s, clock steps %v, asked in between: %t, hammers: %t", l, steps, meanwhile, hammers)
					ask := func() core.Decision {
						t.Helper()
						d, err := lim.Allow(t.Context(), fmt.Sprint(i, meanwhile, hammers), action)
						if err != nil {
							t.Fatal(err)
						}
						return d
					}
					for ask().Allowed {
					}
					for _, d := range steps {
						advance(d)
						if meanwhile {
							ask()
						}
					}
					out := time.Duration(0)
					for d := ask(); !d.Allowed && out <= l.Period(); d = ask() {
						wait := d.RetryAfter
						if hammers {
							wait = min(wait, often)
						}
						out += wait
						advance(wait)
					}
					if out > l.Period() {
						t.Errorf("%s: locked out for %s or more, the period is %s", what, out, l.Period())
					}
				}
			}
		}
	}
}

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
