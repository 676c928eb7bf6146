package core

// CalendarWindow, and the time zones that it can have.

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
// paid. If a month has no such day, it begins on its last day: [Month].From(31) begins on April 30.
// Month.From(1) is Month. If u is not Month, [New] refuses the limit.
func (u CalendarUnit) From(day int) CalendarUnit {
	if u == Month && day == 1 {
		return u
	}
	return CalendarUnit(fmt.Sprintf("%s%s%d)", u, fromCall, day))
}

const fromCall = ".from("

// split returns the unit without its From, and the day of that: 1 if there is none, 0 if the unit is not known.
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
// of a time zone, such as 10,000 a month. At the boundary the count starts anew, so up to twice max
// may pass across it. max is from 1 to 1,000,000,000.
//
//   - Zone: loc is from [time.LoadLocation], or nil for UTC. LoadLocation needs the time zone
//     database: import _ "time/tzdata" for machines that may have none. [New] refuses [time.Local]
//     and a [time.FixedZone], because other processes cannot load them by name, and a name that is
//     not spelled as in the database, such as Asia//Shanghai. For a constant offset use a zone such
//     as Etc/GMT+5, which is five hours behind UTC.
//   - Billing day: Month.From(17) begins on the 17th. See [CalendarUnit.From].
//   - A zone or day for each customer: [PerKey] makes the limiters, and the middleware's
//     Config.Limiter chooses one for a request. Package plans does both. The count of a customer
//     who changes the zone or day starts anew, so do not let customers change it at will.
//   - Boundaries: a day, week, month or year begins at the first instant whose local date is its
//     first date or later. A day may have 23 or 25 hours. Minutes and hours follow the local clock.
//     If the clock repeats an hour, its count starts anew.
//   - Clock: the store says what time it is. If its time of day steps back over a boundary by more
//     than a second, the count of the period after the boundary starts anew.
//   - Time zone databases that differ: if two processes have different boundaries, at most max pass
//     in the period that begins last. There is one exception: this period also ends last, and from
//     its beginning to the earlier end no process with its boundaries decides about the user, not
//     even by a refusal. Then up to twice max pass, because the state knows only the ends that it
//     was given.
func CalendarWindow(max int, unit CalendarUnit, loc *time.Location) Limit {
	zone := loc.String()
	if loc == local && loc != time.UTC {
		zone = "Local" // with the environment variable TZ it has another name
	}
	c := calendarIn(unit, zone)
	if c.problem == "" && loc != nil && !sameZone(loc, c.periods.Location()) {
		c.problem = fmt.Sprintf("the location is not %s of the time zone database; make it with time.LoadLocation, and not with time.FixedZone", c.zone)
	}
	return c.limit(max)
}

// local is time.Local before a program sets that to another zone, such as time.UTC.
var local = time.Local

// calendar is the shape of CalendarWindow. It can be compared, as a Limit can.
type calendar struct {
	unit    CalendarUnit
	zone    string
	periods *machine.Calendar // nil if there is a problem
	problem string
}

// calendars has a *machine.Calendar for each unit and folded zone, so that limits can be compared.
var calendars sync.Map

const legalZone = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+/"

// calendarIn is the calendar of a zone of the database.
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

// fold makes one zone of those that a file system that ignores case does not tell apart.
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
	case path.Clean(zone) != zone || zone[0] < 'A' || zone[0] > 'Z': // posix/ and right/ have each zone again; localtime is the machine's
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

// sameZone reports whether two locations have the same times in each January and July.
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
