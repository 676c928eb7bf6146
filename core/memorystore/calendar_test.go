package memorystore

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

// The time of day and the monotonic clock differ by some microseconds more or less each time, and the
// store keeps instants of the latter. No hour has more than its quota, nor less.
func TestJitterBetweenTheClocks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const hour = int64(time.Hour / time.Microsecond)
	for range 200 {
		wall := 480_000*hour - 100
		epoch := int64(0)
		s := newStore(nil, func() int64 {
			epoch = 470_000*hour + r.Int64N(81) - 40
			return wall - epoch
		}, func() int64 { return epoch })
		l := core.Must(core.New(s, core.CalendarWindow(5, core.Hour, nil)))
		passed := map[int64]int{}
		for wall < 480_000*hour+100 {
			if d := allow(t, l, "alice"); d.Allowed {
				passed[wall/hour]++
			}
			wall += r.Int64N(8)
		}
		if wall/hour == 480_000 && (passed[479_999] != 5 || passed[480_000] != 5) {
			t.Fatalf("%v passed", passed)
		}
	}
}

// The time of day is set while the process runs. The present hour keeps its count, whose end moves by as
// much as the time of day.
func TestTheTimeOfDayIsSet(t *testing.T) {
	const hour = int64(time.Hour / time.Microsecond)
	for _, tt := range []struct {
		name  string
		set   time.Duration // from twenty past
		more  int
		reset time.Duration
	}{
		{"a minute ahead", time.Minute, 2, 39 * time.Minute},
		{"a minute back", -time.Minute, 2, 41 * time.Minute},
		{"a day ahead", 24 * time.Hour, 2, 40 * time.Minute},
		{"years ahead", 30 * 366 * 24 * time.Hour, 2, 40 * time.Minute},
		{"years back", -30 * 366 * 24 * time.Hour, 2, 40 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, epoch := 5*hour, 480_000*hour-5*hour
			now += hour / 3
			s := newStore(nil, func() int64 { return now }, func() int64 { return epoch })
			l := core.Must(core.New(s, core.CalendarWindow(5, core.Hour, nil)))
			for range 3 {
				allow(t, l, "alice")
			}
			epoch += tt.set.Microseconds()
			n := 0
			d := allow(t, l, "alice")
			for ; d.Allowed; d = allow(t, l, "alice") {
				n++
			}
			if n != tt.more || d.ResetAfter.Round(time.Second) > time.Hour {
				t.Errorf("%d more pass, then %+v", n, d)
			}
			if diff := d.RetryAfter - tt.reset; diff < -time.Minute || diff > time.Minute {
				t.Errorf("it is whole in %s, want %s", d.RetryAfter, tt.reset)
			}
			now += d.RetryAfter.Microseconds()
			if d := allow(t, l, "alice"); !d.Allowed {
				t.Errorf("then %+v", d)
			}
		})
	}
}

// The store's own clock, without options.
func TestACalendarWindowOnTheProcessesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(90*time.Minute + 123_456*time.Nanosecond)
		l := core.Must(core.New(New(nil), core.CalendarWindow(5, core.Day, nil)))
		for day := range 3 {
			for i := range 6 {
				if d := allow(t, l, "alice"); d.Allowed != (i < 5) {
					t.Errorf("day %d: %+v", day, d)
				}
			}
			tomorrow := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			d := allow(t, l, "alice")
			if late := d.RetryAfter - time.Until(tomorrow); late < 0 || late > time.Microsecond {
				t.Errorf("day %d: refused for %s, and the day lasts %s", day, d.RetryAfter, time.Until(tomorrow))
			}
			time.Sleep(d.RetryAfter - 2*time.Microsecond)
			if d := allow(t, l, "alice"); d.Allowed {
				t.Errorf("day %d: admitted before its end", day)
			}
			time.Sleep(2 * time.Microsecond)
		}
	})
}
