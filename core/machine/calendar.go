package machine

import (
	"sync/atomic"
	"time"
)

// A Calendar divides time into the minutes, hours, days, weeks, months or years of a time zone.
//
// A day, week, month or year begins at the first instant at which the local date is its first date
// or later. This holds even if the local clock skips midnight. If the clock is set back after
// midnight, the day does not begin a second time.
//
// Minutes and hours follow the local clock. If the clock repeats an hour, the repeated hour is a
// new one. If the clock is set forward or back in the middle of an hour, that hour ends at the
// change.
type Calendar struct {
	unit calendarUnit
	loc  *time.Location
	last atomic.Pointer[bounds] // the last result of Period, because most instants are in the same period
}

// bounds are the start and the end of a period, in microseconds since 1970.
type bounds struct{ start, end int64 }

// NewCalendar returns a calendar of a unit: "minute", "hour", "day", "week", "month" or "year". For
// the unit "month", the argument from is the day of the month on which a period begins, from 1 to
// 31. If a month is too short for that day, the period begins on the month's last day. The other
// units ignore the argument from.
func NewCalendar(unit string, from int, loc *time.Location) *Calendar {
	c := &Calendar{unit: calendarUnits[unit], loc: loc}
	if unit == "month" {
		c.unit.date = monthFrom(from)
	}
	return c
}

// Location returns the time zone.
func (c *Calendar) Location() *time.Location { return c.loc }

// Longest returns the length of the longest period, in microseconds. It does not count changes of
// the clock: a day, week, month or year in which the clock is set back is longer. If the calendar
// was made with an unknown unit, Longest returns 0.
func (c *Calendar) Longest() int64 { return int64(c.unit.longest / time.Microsecond) }

// Period returns the start and the end of the period in which an instant lies. The end is the start
// of the next period. The instants are in microseconds since 1970.
func (c *Calendar) Period(unix int64) (start, end int64) {
	if p := c.last.Load(); p != nil && p.start <= unix && unix < p.end {
		return p.start, p.end
	}
	start, end = c.compute(unix)
	c.last.Store(&bounds{start, end})
	return start, end
}

func (c *Calendar) compute(unix int64) (start, end int64) {
	t := time.UnixMicro(unix).Unix() // rounded down
	if c.unit.date != nil {
		start, end = c.dates(t)
	} else {
		start, end = c.clock(t, int64(c.unit.longest/time.Second))
	}
	return start * 1e6, end * 1e6
}

// A calendarUnit is a unit of a calendar. longest is the length of its longest period. The function
// date returns the first date of a period. If n is 0, this is the period in which day lies, and
// otherwise the n-th period after it. For minutes and hours date is nil.
type calendarUnit struct {
	longest time.Duration
	date    func(day time.Time, n int) time.Time
}

var calendarUnits = map[string]calendarUnit{
	"minute": {longest: time.Minute},
	"hour":   {longest: time.Hour},
	"day":    {24 * time.Hour, func(d time.Time, n int) time.Time { return utc(d.Year(), d.Month(), d.Day()+n) }},
	"week": {7 * 24 * time.Hour, func(d time.Time, n int) time.Time {
		sinceMonday := (int(d.Weekday()) + 6) % 7
		return utc(d.Year(), d.Month(), d.Day()-sinceMonday+7*n)
	}},
	"month": {longest: 31 * 24 * time.Hour}, // NewCalendar sets its date
	"year":  {366 * 24 * time.Hour, func(d time.Time, n int) time.Time { return utc(d.Year()+n, time.January, 1) }},
}

// monthFrom returns the function date of months that begin on the day from.
func monthFrom(from int) func(day time.Time, n int) time.Time {
	begin := func(year int, month time.Month) time.Time {
		return utc(year, month, min(from, utc(year, month+1, 0).Day()))
	}
	return func(d time.Time, n int) time.Time {
		month := d.Month()
		if d.Day() < begin(d.Year(), month).Day() {
			month--
		}
		return begin(d.Year(), month+time.Month(n))
	}
}

func utc(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// dates does the work of Period for days and longer units, in seconds. It computes with local times
// as if they were in UTC.
func (c *Calendar) dates(t int64) (start, end int64) {
	offset, _, _ := c.segment(t)
	local := time.Unix(t+offset, 0).UTC()
	first, next := c.unit.date(local, 0), c.unit.date(local, 1)
	for end = c.reaches(next.Unix()); end <= t; end = c.reaches(next.Unix()) {
		first, next = next, c.unit.date(next, 1) // the clock was set back after the next period had begun
	}
	return c.reaches(first.Unix()), end
}

// reaches returns the first instant at which the local time is local or later.
func (c *Calendar) reaches(local int64) int64 {
	const most = 26 * 3600 // no offset is larger
	t := local - most
	for {
		offset, _, end := c.segment(t)
		if at := max(t, local-offset); at < end {
			return at
		}
		t = end
	}
}

// clock is Period for minutes and hours, in seconds. length is the length of the unit.
func (c *Calendar) clock(t, length int64) (start, end int64) {
	offset, from, to := c.segment(t)
	start = t - ((t+offset)%length+length)%length
	end = start + length
	for from > start && c.offset(from-1) == offset { // at this change the offset stays, and only the zone's name changes
		_, from, _ = c.segment(from - 1)
	}
	for to < end && c.offset(to) == offset {
		_, _, to = c.segment(to)
	}
	return max(start, from), min(end, to)
}

// segment returns the zone's offset at the instant t, in seconds east of UTC. The zone has that
// offset from start up to end.
func (c *Calendar) segment(t int64) (offset, start, end int64) {
	const ever = 1 << 60
	at := time.Unix(t, 0).In(c.loc)
	_, seconds := at.Zone()
	from, to := at.ZoneBounds()
	start, end = -ever, ever
	if !from.IsZero() {
		start = from.Unix()
	}
	if !to.IsZero() {
		end = to.Unix()
	}
	if end <= t { // after the last change in a zone's table, Go ends a leap year a day early
		end = utc(time.Unix(t, 0).UTC().Year()+1, time.January, 1).Unix()
	}
	return int64(seconds), start, end
}

func (c *Calendar) offset(t int64) int64 {
	offset, _, _ := c.segment(t)
	return offset
}

// Starts returns the starts of four periods, in microseconds since 1970: of the previous period, of
// the period in which the instant lies, and of the next two.
func (c *Calendar) Starts(unix int64) [4]int64 {
	start, end := c.Period(unix)
	before, _ := c.compute(start - 1)
	_, after := c.compute(end)
	return [4]int64{before, start, end, after}
}
