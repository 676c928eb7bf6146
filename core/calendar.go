package core

// CalendarWindow, its units and its time zones.

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// A CalendarUnit is the period of a [CalendarWindow].
type CalendarUnit string

// The units. A week begins on Monday.
const (
	Minute CalendarUnit = "minute"
	Hour   CalendarUnit = "hour"
	Day    CalendarUnit = "day"
	Week   CalendarUnit = "week"
	Month  CalendarUnit = "month"
	Year   CalendarUnit = "year"
)

const calendarUnits = "minute, hour, day, week, month, year"

// From returns a month that begins on a day from 1 to 31, such as the day on which a customer has
// paid. If a month has no such day, the period begins on the last day of that month. For example,
// with [Month].From(31) a period begins on April 30. Month.From(1) is Month. If u is not Month, or
// day is not from 1 to 31, [New] refuses the limit.
func (u CalendarUnit) From(day int) CalendarUnit {
	if u == Month && day == 1 {
		return u
	}
	return CalendarUnit(fmt.Sprintf("%s%s%d)", u, fromCall, day))
}

const fromCall = ".from("

// split undoes the method From: for Month.From(17) it returns Month and 17. The day is 1 if u has no
// From, and 0 if u is not a unit.
func (u CalendarUnit) split() (plain CalendarUnit, day int) {
	if slices.Contains(strings.Split(calendarUnits, ", "), string(u)) {
		return u, 1
	}
	for day = 31; day > 1 && Month.From(day) != u; day-- {
	}
	if day > 1 {
		return Month, day
	}
	return u, 0
}

// CalendarWindow admits at most max actions in each calendar minute, hour, day, week, month or year
// of a time zone. 10,000 a month are:
//
//	core.CalendarWindow(10_000, core.Month, nil)
//
// The count starts anew at each boundary between two periods. So around a boundary up to twice max
// may pass in a short time. max is from 1 to 1,000,000,000.
//
//   - Zone: loc is from [time.LoadLocation], or nil for UTC. LoadLocation needs the time zone
//     database. If a machine may have none, import _ "time/tzdata". [New] refuses [time.Local], and
//     a [time.FixedZone] that is not the same as a zone of the database, because other processes
//     cannot load them by name. It also refuses other spellings, such as Asia//Shanghai. For a
//     constant offset use a zone such as Etc/GMT+5, which is five hours behind UTC.
//   - Billing day: Month.From(17) begins on the 17th. See [CalendarUnit.From].
//   - A zone or day for each customer: [PerKey] makes the limiters, and the middleware's
//     Config.Limiter picks the limiter of a request. Package plans does both. If a customer's zone
//     or day changes, the customer's count starts anew. So do not let customers change it at will.
//   - Boundaries: a day, week, month or year begins at the first instant at which the local date is
//     its first date or later. A day may have 23 or 25 hours, for example. Minutes and hours follow
//     the local clock. If the clock repeats an hour, the count starts anew for the repeated hour.
//   - Clock: the store's clock counts. If its time of day steps back over a boundary by more than a
//     second, the count of the period after the boundary starts anew.
//   - Time zone databases: give all processes the same one. If two processes have different
//     boundaries for a period, more than max actions may pass in it.
func CalendarWindow(max int, unit CalendarUnit, loc *time.Location) Limit {
	zone := loc.String()
	if loc == local && loc != time.UTC {
		zone = "Local" // if the environment variable TZ is set, String returns another name
	}
	c := calendarIn(unit, zone)
	if c.problem == "" && loc != nil && !sameZone(loc, c.periods.Location()) {
		c.problem = fmt.Sprintf("the location is not %s of the time zone database; make it with time.LoadLocation, and not with time.FixedZone", c.zone)
	}
	return c.limit(max)
}

// local is the value that time.Local has at start-up. A program may set time.Local to another zone
// later.
var local = time.Local

// calendar is the shape of CalendarWindow. It is comparable, because a Limit is.
type calendar struct {
	unit    CalendarUnit
	zone    string
	periods *machine.Calendar // nil if there is a problem
	problem string
}

// calendars has one *machine.Calendar for each unit and folded zone, so that equal limits compare
// as equal.
var calendars sync.Map

const legalZone = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/"

// calendarIn returns the calendar of a unit and a zone of the database. If one of them is wrong,
// the result has a problem.
func calendarIn(unit CalendarUnit, zone string) calendar {
	c := calendar{unit: unit, zone: zone}
	loc, problem := locate(unit, zone)
	if problem != "" {
		c.problem = problem
		return c
	}
	key := calendar{unit: unit, zone: fold(zone)}
	found, ok := calendars.Load(key)
	if !ok {
		plain, day := unit.split()
		found, _ = calendars.LoadOrStore(key, machine.NewCalendar(string(plain), day, loc))
	}
	c.periods = found.(*machine.Calendar)
	return c
}

// fold returns the same text for spellings of a zone that a case-insensitive file system does not
// distinguish.
func fold(zone string) string { return strings.ToLower(zone) }

func locate(unit CalendarUnit, zone string) (loc *time.Location, problem string) {
	_, day := unit.split()
	switch {
	case day == 0:
		return nil, fmt.Sprintf("unit %.40q is not one of %s, nor month.from(2) to month.from(31)", string(unit), calendarUnits)
	case zone == "Local":
		return nil, "time.Local is another zone on each machine; name the zone, as in time.LoadLocation(\"Asia/Shanghai\"), or use UTC"
	case zone == "" || len(zone) > 64 || strings.Trim(zone, legalZone) != "":
		return nil, "the location has no name in the time zone database, so other processes cannot load it; make it with time.LoadLocation, and not with time.FixedZone"
	case path.Clean(zone) != zone || zone[0] < 'A' || zone[0] > 'Z': // posix/ and right/ repeat all zones, and localtime is the machine's zone
		return nil, fmt.Sprintf("zone %s is not spelled as in the time zone database; write a name such as Asia/Shanghai or UTC, and do not use a time.FixedZone", zone)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Sprintf("zone %s cannot be loaded: check its name, or import _ \"time/tzdata\" if the machine has no time zone database; a time.FixedZone cannot be used", zone)
	}
	return loc, ""
}

func (c calendar) limit(max int) Limit {
	l := Limit{kind: machine.KindCalendarWindow, max: max, shape: c}
	if c.periods != nil {
		l.period = micros(c.periods.Longest())
	}
	return l.derived()
}

func (c calendar) text(l *Limit) string {
	return fmt.Sprintf("%s(%d, %.40s, %.65s)", l.kind.Constructor(), l.max, c.unit, c.zone)
}

func (c calendar) validate(l *Limit, bad badValue) error {
	if c.problem != "" {
		return bad("%s", c.problem)
	}
	return validateMax(l, bad)
}

func (c calendar) compile(l *Limit) {
	if c.periods != nil {
		l.rule = machine.NewCalendarWindow(int64(l.max), c.periods)
	}
}

func (c calendar) identity(*Limit) string {
	unit := strings.TrimSuffix(strings.Replace(string(c.unit), fromCall, "/", 1), ")")
	return ":" + unit + ":" + fold(c.zone)
}

// sameZone reports whether two locations have the same offset and abbreviation on each January 1
// and July 1 from 1970 to 2037.
func sameZone(a, b *time.Location) bool {
	for year := 1970; year < 2038; year++ {
		for _, month := range []time.Month{time.January, time.July} {
			t := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
			nameA, offsetA := t.In(a).Zone()
			nameB, offsetB := t.In(b).Zone()
			if nameA != nameB || offsetA != offsetB {
				return false
			}
		}
	}
	return true
}
