package machine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var month = NewCalendarWindow(10, NewCalendar("month", 1, time.UTC))

// at is an instant of 2026, in microseconds since 1970.
func at(month time.Month, day, hour int) int64 {
	return time.Date(2026, month, day, hour, 0, 0, 0, time.UTC).UnixMicro()
}

// charged asks at an instant of a store's clock for one unit, and returns the reading.
func charged(t *testing.T, r *Rule, s *State, now, epoch int64) (fits bool, v Reading) {
	t.Helper()
	v = decideAt(r, s, now, epoch, 1, Ask{})
	return v.Fits, v
}

func fill(t *testing.T, r *Rule, s *State, now, epoch int64) (n int) {
	t.Helper()
	for {
		if fits, _ := charged(t, r, s, now, epoch); !fits {
			return n
		}
		n++
	}
}

// The epoch differs by microseconds each time, since a process cannot read both of its clocks at once.
// The time of day only grows. No month has more than its quota.
func TestJitterOfTheEpochAdmitsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, s := month, State{}
		unix := at(2, 1, 0) - 200
		passed := map[time.Month]int{}
		for range 60 {
			unix += rapid.Int64Range(0, 12).Draw(t, "step")
			epoch := at(1, 1, 0) + rapid.Int64Range(-50, 50).Draw(t, "jitter")
			if decideAt(&r, &s, unix-epoch, epoch, 1, Ask{}).Fits {
				if passed[time.UnixMicro(unix).UTC().Month()]++; passed[1] > 10 || passed[2] > 10 {
					t.Fatalf("%v passed", passed)
				}
			}
		}
	})
}

// If the time of day steps back over a boundary by at most a second, neither month has more than its
// quota. If it steps back by more, nobody is refused for longer than until the boundary.
func TestTheTimeOfDayStepsBackOverABoundary(t *testing.T) {
	for _, tt := range []struct {
		name string
		back int64
		more int // pass in February after the step
	}{
		{"by a microsecond", 1, 6},
		{"by a second", 1e6, 6},
		{"by an hour", 3600e6, 10},
		{"by half a month", 15 * 86400e6, 10},
		{"by a month", 31 * 86400e6, 10},
		{"by three months", 92 * 86400e6, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, s := month, State{}
			february := at(2, 1, 0)
			fill(t, &r, &s, february-1, 0)
			for range 4 {
				charged(t, &r, &s, february, 0)
			}
			now := february - tt.back
			passed := fill(t, &r, &s, now, 0)
			_, v := charged(t, &r, &s, now, 0)
			if _, end := r.Calendar.Period(now); tt.back > 1e6 && v.Wait != end-now {
				t.Errorf("refused for %s", time.Duration(v.Wait)*time.Microsecond)
			}
			if tt.back > 1e6 {
				passed = 0 // they are of an earlier month
			}
			if passed += fill(t, &r, &s, february, 0); passed != tt.more {
				t.Errorf("%d pass in February, want %d", passed, tt.more)
			}
		})
	}
}

// A clock that steps back by a second or less finds the count that it has left.
func TestAnEndedCountLingers(t *testing.T) {
	r, s := month, State{}
	fill(t, &r, &s, at(2, 1, 0)-1, 0)
	for _, after := range []int64{0, linger - 1} {
		peek(&r, s, at(2, 1, 0)+after, 1)
		if n := fill(t, &r, &s, at(2, 1, 0)-1, 0); n != 0 {
			t.Errorf("%d us after its end %d more pass in January", after, n)
		}
	}
	if s.Expires != at(2, 1, 0)+linger {
		t.Error("the state is kept for longer, or shorter")
	}
}

// Two processes have different time zone data. Their days begin up to a few hours apart. The day that
// begins later never has more than the quota while both say that it is that day, whoever asks. If the process
// whose day it is asks in that time, the whole day has no more.
func TestTwoVersionsOfTimeZoneData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.SampledFrom([]int{60, 1800, 3600, 2 * 3600, 5 * 3600}).Draw(t, "seconds apart")
		kind := rapid.SampledFrom([]string{"day", "week", "month"}).Draw(t, "unit")
		early, late := NewCalendar(kind, 1, time.FixedZone("", offset)), NewCalendar(kind, 1, time.UTC)
		of := [2]Rule{NewCalendarWindow(10, early), NewCalendarWindow(10, late)}
		var s State
		now := at(3, 1, 0) - 50*3600e6
		step := rapid.SampledFrom([]int64{3600e6, 6 * 3600e6}).Draw(t, "longest step")
		passed, both := map[int64]int64{}, map[int64]int64{} // by the start of the later period
		told := map[int64]bool{}                             // its process has asked while both say so
		for range 400 {
			now += rapid.Int64Range(0, step).Draw(t, "step")
			process := rapid.IntRange(0, 1).Draw(t, "process")
			r, cost := &of[process], rapid.Int64Range(1, 10).Draw(t, "cost")
			fits := decide(r, &s, now, cost, Ask{}).Fits
			from, _ := late.Period(now)
			a, _ := early.Period(now)
			agree := a == from-int64(offset)*1e6
			told[from] = told[from] || agree && process == 1
			if fits {
				passed[from] += cost
			}
			if fits && agree {
				both[from] += cost
			}
			if both[from] > 10 || told[from] && passed[from] > 10 {
				t.Fatalf("%d pass in the period from %s, %d of them while both say so", passed[from], time.UnixMicro(from).UTC(), both[from])
			}
		}
	})
}

// A count that lasts for longer by another process's data is not cut, and one that lasts for shorter
// is made longer.
func TestACountLastsUntilItsLaterEnd(t *testing.T) {
	early, late := NewCalendarWindow(10, NewCalendar("day", 1, time.FixedZone("", 3600))), NewCalendarWindow(10, NewCalendar("day", 1, time.UTC))
	midnight := at(2, 2, 0)
	var s State
	fill(t, &late, &s, midnight-2*3600e6, 0)
	if n := fill(t, &early, &s, midnight-1, 0); n != 0 {
		t.Errorf("the process whose day has begun admits %d", n)
	}
	s = State{}
	fill(t, &early, &s, midnight-2*3600e6, 0)
	if charged(t, &late, &s, midnight-3600e6-1, 0); s.Expires != midnight+linger {
		t.Error("a refusal did not move the end")
	}
	if n := fill(t, &early, &s, midnight-1, 0); n != 0 {
		t.Errorf("%d pass before the later midnight", n)
	}
	if n := fill(t, &early, &s, midnight, 0); n != 10 {
		t.Errorf("%d pass after it", n)
	}
}

// The boundaries of a zone, one after the other, by hand.
func TestBoundaries(t *testing.T) {
	for _, tt := range []struct {
		name, unit, zone, from string
		hours                  []float64 // lengths of the period that has from, and of those after it
	}{
		{"a day of 23 hours", "day", "America/New_York", "2026-03-07T12:00:00-05:00", []float64{24, 23, 24}},
		{"a day of 25 hours", "day", "America/New_York", "2026-10-31T12:00:00-04:00", []float64{24, 25, 24}},
		{"no midnight", "day", "America/Sao_Paulo", "2018-11-03T12:00:00-03:00", []float64{24, 23, 24}},
		{"midnight twice", "day", "America/Sao_Paulo", "2018-02-17T12:00:00-02:00", []float64{25, 24}},
		{"set back to before a midnight that was", "day", "America/St_Johns", "2010-11-06T12:00:00-02:30", []float64{24, 25, 24}},
		{"the date that Samoa has left out", "day", "Pacific/Apia", "2011-12-29T12:00:00-10:00", []float64{24, 24}},
		{"hours when the clock is set back", "hour", "America/New_York", "2026-11-01T00:30:00-04:00", []float64{1, 1, 1, 1}},
		{"hours when the clock is set by half an hour", "hour", "Australia/Lord_Howe", "2026-04-05T00:30:00+11:00", []float64{1, 1, 0.5, 1}},
		{"weeks from Monday", "week", "Asia/Shanghai", "2026-02-01T12:00:00+08:00", []float64{168, 168}},
		{"a leap year's months", "month", "UTC", "2028-01-31T23:59:59Z", []float64{31 * 24, 29 * 24, 31 * 24}},
		{"a month with a change of the clock", "month", "Europe/Berlin", "2026-03-31T00:00:00+02:00", []float64{31*24 - 1, 30 * 24}},
		{"a month that has no first midnight", "month", "America/Asuncion", "2023-09-30T12:00:00-04:00", []float64{30 * 24, 31*24 - 1}},
		{"years", "year", "Asia/Kathmandu", "2027-12-31T23:59:59+05:45", []float64{365 * 24, 366 * 24, 365 * 24}},
		{"the last day of a leap year, long after the last rule", "day", "America/New_York", "2040-12-30T12:00:00-05:00", []float64{24, 24, 24}},
		{"the hours of that day", "hour", "America/New_York", "2040-12-30T18:30:00-05:00", []float64{1, 1, 1}},
		{"minutes in a zone with seconds", "minute", "Africa/Monrovia", "1971-01-01T00:00:00Z", []float64{1.0 / 60}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			loc, err := time.LoadLocation(tt.zone)
			if err != nil {
				t.Fatal(err)
			}
			from, err := time.Parse(time.RFC3339, tt.from)
			if err != nil {
				t.Fatal(err)
			}
			c, now := NewCalendar(tt.unit, 1, loc), from.UnixMicro()
			for i, want := range tt.hours {
				start, end := c.Period(now)
				if got := float64(end-start) / 3600e6; got != want {
					t.Errorf("period %d, from %s to %s, has %v hours, want %v", i, time.UnixMicro(start).In(loc), time.UnixMicro(end).In(loc), got, want)
				}
				if start > now || end <= now {
					t.Fatalf("%d is not in %d to %d", now, start, end)
				}
				now = end
			}
		})
	}
}

// Midnight on the 1st may come twice or not at all, and a month begins once nevertheless.
func TestAMonthBeginsOnce(t *testing.T) {
	for _, tt := range []struct{ zone, before, begins string }{
		{"America/Asuncion", "2023-09-30T23:59:59-04:00", "2023-10-01T01:00:00-03:00"}, // no midnight
		{"America/Havana", "2026-10-31T12:00:00-04:00", "2026-11-01T00:00:00-04:00"},   // at 01:00 it is midnight once more
		{"Pacific/Kwajalein", "1993-08-20T12:00:00-12:00", "1993-09-01T00:00:00+12:00"},
	} {
		loc, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		before, _ := time.Parse(time.RFC3339, tt.before)
		begins, _ := time.Parse(time.RFC3339, tt.begins)
		c := NewCalendar("month", 1, loc)
		if _, end := c.Period(before.UnixMicro()); end != begins.UnixMicro() {
			t.Errorf("%s: the month begins at %s, want %s", tt.zone, time.UnixMicro(end).In(loc), tt.begins)
		}
		for _, after := range []time.Duration{0, time.Hour - 1, time.Hour, 2 * time.Hour} {
			if start, _ := c.Period(begins.Add(after).UnixMicro()); start != begins.UnixMicro() {
				t.Errorf("%s: %s after its beginning the month begins at %s", tt.zone, after, time.UnixMicro(start).In(loc))
			}
		}
	}
}
