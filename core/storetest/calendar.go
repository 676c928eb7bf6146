package storetest

import (
	"time"

	"github.com/tailcut/tailcut/core"
)

// dates begins a script that knows the time of day.
func dates(check func(*script)) func(*script) {
	return func(s *script) {
		if s.f.Now == nil {
			s.Skip(notHere + "its store has no time of day")
		}
		s.f.stands(s)
		check(s)
	}
}

// left is how long the present period lasts.
func (s *script) left(unit core.CalendarUnit, zone *time.Location) time.Duration {
	now := s.f.Now().UnixMicro()
	_, end := naivePeriod(unit, zone, now)
	return us(end - now)
}

func (s *script) zone(name string) *time.Location {
	s.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		s.Fatal(err)
	}
	return loc
}

var calendarRules = []promise{
	{"a calendar window ends with its period, whenever it began", dates(func(s *script) {
		zone := s.zone("America/New_York")
		for _, unit := range []core.CalendarUnit{core.Minute, core.Hour, core.Day, core.Week, core.Month, core.Year} {
			a := s.of(core.CalendarWindow(3, unit, zone))
			a.peek(pass(3, 3, 0))
			for range 2 {
				left := s.left(unit, zone)
				s.at(s.now + (left / 3).Truncate(usec))
				end := s.now + s.left(unit, zone)
				a.allow(2, pass(3, 1, end-s.now))
				a.allow(2, stop(3, 1, end-s.now, end-s.now))
				s.at(end - usec)
				a.allow(1, pass(3, 0, usec))
				a.allow(1, stop(3, 0, usec, usec))
				s.at(end)
				a.peek(pass(3, 3, 0))
				a.allow(3, pass(3, 0, s.left(unit, zone)))
				s.at(end + s.left(unit, zone))
			}
		}
	})},

	{"a day has the length that it has in its zone", dates(func(s *script) {
		zone := s.zone("America/New_York")
		a := s.of(core.CalendarWindow(1, core.Day, zone))
		s.at(s.now + s.left(core.Day, zone))
		lengths := map[time.Duration]bool{}
		for days := 0; len(lengths) < 3; days++ {
			if days > 400 {
				s.Fatalf("the days of a year have %v", lengths)
			}
			length := s.left(core.Day, zone)
			if !lengths[length] { // a day of another length
				a.allow(1, pass(1, 0, length))
				s.at(s.now + length - usec)
				a.allow(1, stop(1, 0, usec, usec))
				s.at(s.now + usec)
				a.peek(pass(1, 1, 0))
			} else {
				s.at(s.now + length)
			}
			lengths[length] = true
		}
	})},

	{"a month from a day begins on that day, or on the last day of a shorter month", dates(func(s *script) {
		zone := s.zone("America/New_York")
		for _, from := range []int{17, 29, 31} {
			unit := core.Month.From(from)
			a := s.of(core.CalendarWindow(3, unit, zone))
			for month := range 14 {
				left := s.left(unit, zone)
				a.allow(2, pass(3, 1, left))
				a.allow(2, stop(3, 1, left, left))
				if s.at(s.now + left); month > 12 {
					continue
				}
				begun := s.f.Now().In(zone)
				if day := begun.Day(); day != min(from, begun.AddDate(0, 1, -day).Day()) {
					s.Errorf("a month from the %d begins on %s", from, begun)
				}
			}
		}
	})},

	{"a clock that steps back over a boundary by at most a second begins neither period again", dates(func(s *script) {
		a := s.of(core.CalendarWindow(3, core.Hour, nil))
		end := s.now + s.left(core.Hour, time.UTC)
		s.at(end - sec)
		a.allow(3, pass(3, 0, sec))
		s.at(end)
		s.at(end - usec)
		a.allow(1, stop(3, 0, usec, usec))
		s.at(end)
		a.allow(1, pass(3, 2, time.Hour))
		s.at(end - sec)
		a.allow(1, pass(3, 1, time.Hour+sec)) // of the new hour
		s.at(end)
		a.allow(2, stop(3, 1, time.Hour, time.Hour))
	})},

	{"calendar windows of one unit and zone share state, whatever their max, and others do not", dates(func(s *script) {
		s.at(s.now + s.left(core.Hour, time.UTC)) // an hour of all these zones
		small, large := s.of(core.CalendarWindow(2, core.Hour, nil)), s.of(core.CalendarWindow(5, core.Hour, time.UTC))
		large.allow(4, pass(5, 1, time.Hour))
		small.allow(1, stop(2, 0, time.Hour, time.Hour))
		large.allow(1, pass(5, 0, time.Hour))
		for _, l := range []core.Limit{
			core.CalendarWindow(5, core.Hour, s.zone("Etc/GMT+5")), core.CalendarWindow(5, core.Hour, s.zone("Etc/GMT-5")),
			core.CalendarWindow(5, core.Hour, nil).Named("other"), core.CalendarWindow(5, core.Hour, nil).PerUser(), core.FixedWindow(5, time.Hour),
		} {
			s.of(l).allow(5, pass(5, 0, time.Hour))
		}
		minute := s.of(core.CalendarWindow(5, core.Minute, nil))
		minute.allow(5, pass(5, 0, time.Minute))
	})},
}
