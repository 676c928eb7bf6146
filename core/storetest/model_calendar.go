package storetest

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

// This file is the reference for calendars. It goes through a period in steps and looks at the local
// time at each.

// calendarPeriod is the period of a calendar that has an instant of the model.
func (m *model) calendarPeriod(r rule, now int64) (start, end int64) {
	of := r.identity()
	if p, ok := m.periods[of]; ok && p[0] <= now && now < p[1] {
		return p[0], p[1]
	}
	start, end = naivePeriod(r.unit, r.zone, now+m.epoch)
	start, end = start-m.epoch, end-m.epoch
	m.periods[of] = [2]int64{start, end}
	return start, end
}

// naivePeriod is the period that has an instant. All are microseconds since 1970. No clock
// is set back by more than a day, or within a minute of its own time.
func naivePeriod(unit core.CalendarUnit, zone *time.Location, now int64) (start, end int64) {
	step := map[core.CalendarUnit]int64{core.Minute: 1, core.Hour: 60, core.Day: 3600, core.Week: 3600, core.Year: 24 * 3600}[unit]
	if step == 0 { // a month
		step = 12 * 3600
	}
	at := time.UnixMicro(now).Unix()
	number := latest(unit, zone, at)
	last := at
	for latest(unit, zone, last) == number {
		last += step
	}
	first := at
	for latest(unit, zone, first) == number {
		first -= step
	}
	return 1e6 * change(unit, zone, first, first+step), 1e6 * change(unit, zone, last-step, last)
}

// change is the first second after one from which on the number is that of another. Between them it
// changes once.
func change(unit core.CalendarUnit, zone *time.Location, after, last int64) int64 {
	number := latest(unit, zone, last)
	for last-after > 1 {
		if middle := (after + last) / 2; latest(unit, zone, middle) == number {
			last = middle
		} else {
			after = middle
		}
	}
	return last
}

// latest tells the period of an instant: for minutes and hours the local clock and its offset, and else
// the latest date that there was until then.
func latest(unit core.CalendarUnit, zone *time.Location, at int64) [3]int64 {
	t := time.Unix(at, 0).In(zone)
	if unit == core.Minute || unit == core.Hour {
		_, offset := t.Zone()
		length := int64(60)
		if unit == core.Hour {
			length = 3600
		}
		local := at + int64(offset)
		return [3]int64{local - (local%length+length)%length, int64(offset)}
	}
	number := dateNumber(unit, t)
	_, offset := t.Zone()
	for hour := range int64(26) {
		if _, was := time.Unix(at-3600*hour, 0).In(zone).Zone(); was <= offset {
			continue
		}
		for minute := range int64(26 * 60) { // the clock was set back
			if earlier := dateNumber(unit, time.Unix(at-60*minute, 0).In(zone)); later(earlier, number) {
				number = earlier
			}
		}
		break
	}
	return number
}

func later(a, b [3]int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return false
}

func dateNumber(unit core.CalendarUnit, t time.Time) [3]int64 {
	switch unit {
	case core.Year:
		return [3]int64{int64(t.Year())}
	case core.Week: // by its Monday
		for t = time.Date(t.Year(), t.Month(), t.Day(), 12, 0, 0, 0, time.UTC); t.Weekday() != time.Monday; {
			t = t.AddDate(0, 0, -1)
		}
	}
	day := t.Day()
	if unit != core.Day && unit != core.Week { // a month, by the date on which it began
		for from := firstDay(unit); !begins(from, t.Year(), t.Month(), day); {
			if day--; day == 0 {
				t = t.AddDate(0, 0, -t.Day())
				day = t.Day()
			}
		}
	}
	return [3]int64{int64(t.Year()), int64(t.Month()), int64(day)}
}

// firstDay is the day on which a month begins.
func firstDay(unit core.CalendarUnit) (day int) {
	for day = 1; core.Month.From(day) != unit; day++ {
	}
	return day
}

// begins reports whether a month from that day begins on a date: on the day, or on the last day of a month that
// has no such day.
func begins(from, year int, month time.Month, day int) bool {
	return day == from || day < from && time.Date(year, month, day+1, 12, 0, 0, 0, time.UTC).Day() == 1
}
