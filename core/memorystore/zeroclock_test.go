package memorystore_test

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A Clock that begins with the zero time, as a variable of a replay does, goes on when it is set.
func TestAClockThatBeginsWithTheZeroTime(t *testing.T) {
	for _, limit := range []core.Limit{
		core.SlidingWindow(2, time.Minute), core.MovingWindow(2, time.Minute), core.FixedWindow(2, time.Minute), core.ElasticWindow(2, time.Minute),
		core.CalendarWindow(2, core.Minute, nil), core.TokenBucket(2, core.Per(2, time.Minute)), core.TokenBucket(2, core.Per(2, time.Minute)).Initial(1),
		core.Funnel(2, core.Per(2, time.Minute)), core.InFlight(2),
	} {
		for name, start := range map[string]time.Time{"of today": time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC), "of the zero time": {}} {
			t.Run(limit.String()+" "+name, func(t *testing.T) {
				var now time.Time
				store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
				l := core.Must(core.New(store, limit))
				if d, err := l.Allow(t.Context(), "early", "reply"); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				now = start
				for i := range 4 {
					passes := 0
					for range 5 {
						d, err := l.Allow(t.Context(), "alice", "reply")
						if err != nil {
							t.Fatal(err)
						}
						if d.Allowed {
							passes++
						}
					}
					if passes < 1 || passes > 2 || i > 0 && passes != 2 {
						t.Errorf("minute %d: %d of 5 pass", i, passes)
					}
					now = now.Add(time.Minute)
				}
			})
		}
	}
}

// The first action of a calendar's period opens it, before 1970 too.
func TestACalendarBefore1970(t *testing.T) {
	now := time.Date(1969, 12, 31, 22, 15, 0, 0, time.UTC)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	l := core.Must(core.New(store, core.CalendarWindow(2, core.Hour, nil)))
	for range 2 {
		s, err := l.Status(t.Context(), "alice", "reply")
		if err != nil || s.Limits[0].EndsAfter != 45*time.Minute || s.Limits[0].ResetAfter != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		d, err := l.Allow(t.Context(), "alice", "reply")
		if err != nil || d.ResetAfter != 45*time.Minute {
			t.Errorf("%+v, %v", d, err)
		}
		now = now.Add(time.Hour)
	}
}
