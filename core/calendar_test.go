package core_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

func load(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestZonesThatACalendarWindowRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit core.Limit
		want  string
	}{
		{"time.Local", core.CalendarWindow(5, core.Day, time.Local), "core: CalendarWindow(5, day, Local): time.Local is another zone on each machine"},
		{"a FixedZone", core.CalendarWindow(5, core.Day, time.FixedZone("office", 3600)), "zone office is not spelled as in the time zone database"},
		{"a FixedZone without a name", core.CalendarWindow(5, core.Day, time.FixedZone("", 3600)), "no name in the time zone database"},
		{"a FixedZone with a zone's name", core.CalendarWindow(5, core.Day, time.FixedZone("America/New_York", -5*3600)), "is not America/New_York of the time zone database; make it with time.LoadLocation, and not with time.FixedZone"},
		{"one with the same offset", core.CalendarWindow(5, core.Day, time.FixedZone("Asia/Shanghai", 8*3600)), "is not Asia/Shanghai"},
		{"one called UTC", core.CalendarWindow(5, core.Day, time.FixedZone("UTC", 3600)), "is not UTC"},
		{"an unknown name", core.CalendarWindow(5, core.Day, time.FixedZone("Moon/Tranquility", 0)), `import _ "time/tzdata"`},
		{"a name with a space", core.CalendarWindow(5, core.Day, time.FixedZone("my zone", 0)), "no name in the time zone database"},
		{"a long name", core.CalendarWindow(5, core.Day, time.FixedZone(strings.Repeat("A", 1<<20), 0)), "no name in the time zone database"},
		{"a long unit", core.CalendarWindow(5, core.CalendarUnit(strings.Repeat("d", 1<<20)), nil), "is not one of minute"},
		{"a unit that does not exist", core.CalendarWindow(5, "decade", nil), `unit "decade" is not one of minute, hour, day, week, month, year`},
		{"a month from day 0", core.CalendarWindow(5, core.Month.From(0), nil), `unit "month.from(0)" is not one of minute, hour, day, week, month, year, nor month.from(2) to month.from(31)`},
		{"a month from day 32", core.CalendarWindow(5, core.Month.From(32), nil), `unit "month.from(32)" is not one of`},
		{"a month from a day before the first", core.CalendarWindow(5, core.Month.From(-1), nil), `unit "month.from(-1)" is not one of`},
		{"a day spelled otherwise", core.CalendarWindow(5, "month.from(07)", nil), `unit "month.from(07)" is not one of`},
		{"the first day, as text", core.CalendarWindow(5, "month.from(1)", nil), `unit "month.from(1)" is not one of`},
		{"a week from a day", core.CalendarWindow(5, core.Week.From(3), nil), `unit "week.from(3)" is not one of`},
		{"a month from a day from a day", core.CalendarWindow(5, core.Month.From(3).From(3), nil), `unit "month.from(3).from(3)" is not one of`},
		{"no unit", core.CalendarWindow(5, "", nil), `unit "" is not one of`},
		{"a max of 0", core.CalendarWindow(0, core.Day, nil), "core: CalendarWindow(0, day, UTC): max 0 is not within 1 to 1000000000"},
		{"a max that is too high", core.CalendarWindow(1e9+1, core.Day, nil), "max 1000000001 is not within 1 to 1000000000"},
		{"CountRefused", core.CalendarWindow(5, core.Day, nil).CountRefused(), "CountRefused applies to SlidingWindow only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := core.New(memorystore.New(nil), tt.limit)
			if !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%.400v, want %q", err, tt.want)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if _, err := core.ParseLimit(tt.limit.String()); err == nil && tt.limit != core.CalendarWindow(5, core.Day, load(t, "UTC")) && !strings.Contains(tt.want, "is not ") {
				t.Errorf("ParseLimit takes %s", tt.limit)
			}
		})
	}
}

func TestCalendarWindowsAsText(t *testing.T) {
	for _, tt := range []struct {
		limit          core.Limit
		text, identity string
	}{
		{core.CalendarWindow(10_000, core.Month, load(t, "Asia/Shanghai")), "CalendarWindow(10000, month, Asia/Shanghai)", "calendar:month:asia/shanghai"},
		{core.CalendarWindow(5, core.Month.From(17), nil), "CalendarWindow(5, month.from(17), UTC)", "calendar:month/17:utc"},
		{core.CalendarWindow(5, core.Month.From(31), nil).PerUser(), "CalendarWindow(5, month.from(31), UTC).PerUser()", "calendar:month/31:utc"},
		{core.CalendarWindow(5, core.Month.From(1), nil), "CalendarWindow(5, month, UTC)", "calendar:month:utc"},
		{core.CalendarWindow(5, core.Day, nil), "CalendarWindow(5, day, UTC)", "calendar:day:utc"},
		{core.CalendarWindow(5, core.Day, time.UTC).Named("a"), `CalendarWindow(5, day, UTC).Named("a")`, "calendar:day:utc:a"},
		{core.CalendarWindow(5, core.Minute, load(t, "Etc/GMT+5")).PerUser(), "CalendarWindow(5, minute, Etc/GMT+5).PerUser()", "calendar:minute:etc/gmt+5"},
		{core.CalendarWindow(5, core.Year, load(t, "America/Argentina/Buenos_Aires")).Shadow(), "CalendarWindow(5, year, America/Argentina/Buenos_Aires).Shadow()", "shadow:calendar:year:america/argentina/buenos_aires"},
		{core.CalendarWindow(5, core.Week, load(t, "America/Port-au-Prince")), "CalendarWindow(5, week, America/Port-au-Prince)", "calendar:week:america/port-au-prince"},
	} {
		if tt.limit.String() != tt.text || tt.limit.Identity() != tt.identity {
			t.Errorf("%s, %s; want %s, %s", tt.limit, tt.limit.Identity(), tt.text, tt.identity)
		}
		if l, err := core.ParseLimit(tt.text); err != nil || l != tt.limit {
			t.Errorf("%s: %v, %v", tt.text, l, err)
		}
		if l, err := core.ParseLimit(strings.ReplaceAll(tt.text, ", ", " ,\n")); err != nil || l != tt.limit {
			t.Errorf("with spaces: %v, %v", l, err)
		}
	}
	for text, want := range map[string]string{
		"CalendarWindow(5, months, UTC)":    `position 19: "months" is not one of minute, hour, day, week, month, year`,
		"CalendarWindow(5, month)":          `position 24: "," is missing before ")"; write it as in CalendarWindow(5, month, UTC)`,
		"CalendarWindow(5, month, )":        `position 26: ")" is not a time zone; write one such as UTC or Asia/Shanghai`,
		"CalendarWindow(5, month, \"UTC\")": `is not a time zone`,
		"CalendarWindow(5, month, Moon)":    `zone Moon cannot be loaded`,
		"CalendarWindow(5, month, Local)":   `time.Local is another zone`,
		"CalendarWindow(5, month, ../etc)":  `zone ../etc is not spelled as in the time zone database`,
	} {
		if _, err := core.ParseLimit(text); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Locations that were loaded one by one make equal limits.
func TestEqualCalendarWindowsAreEqual(t *testing.T) {
	make := func() core.Limit { return core.CalendarWindow(5, core.Month, load(t, "Europe/Berlin")) }
	if make() != make() {
		t.Error("they differ")
	}
	if make() == core.CalendarWindow(5, core.Month, load(t, "Europe/Vienna")) {
		t.Error("another zone's is equal")
	}
}

// With 8,192 spellings of Asia/Shanghai a customer who chooses the zone would have as many quotas, and the
// program would keep them all. A zone has one spelling, and is the same on every machine.
func TestAZoneHasOneSpelling(t *testing.T) {
	spellings := []string{
		"Asia//Shanghai", "Asia/Shanghai/", "./Asia/Shanghai", "Asia/Shanghai/.", "/Asia/Shanghai", "../zoneinfo/Asia/Shanghai",
		"asia/Shanghai", "posix/Asia/Shanghai", "right/Asia/Shanghai", "localtime", "posixrules", "-Asia", "",
	}
	for i := range 10 {
		spellings = append(spellings, "Asia/"+strings.Repeat("./", i+1)+"Shanghai")
	}
	store := memorystore.New(nil)
	for _, zone := range spellings {
		if l, err := core.ParseLimit("CalendarWindow(1, month, " + zone + ")"); !errors.Is(err, core.ErrConfig) {
			t.Errorf("ParseLimit takes the zone %q: %s", zone, l.Identity())
		}
		loc, err := time.LoadLocation(zone)
		if err != nil || loc == time.UTC {
			continue
		}
		if _, err := core.New(store, core.CalendarWindow(1, core.Month, loc)); !errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "such as Asia/Shanghai") {
			t.Errorf("New takes the zone %q: %v", zone, err)
		}
	}
	for _, zone := range []string{"UTC", "GB", "EST5EDT", "W-SU", "Etc/GMT+5", "America/Port-au-Prince", "America/North_Dakota/New_Salem"} {
		if _, err := core.ParseLimit("CalendarWindow(1, month, " + zone + ")"); err != nil {
			t.Error(err)
		}
	}
}

// A file system that ignores case has every zone in many spellings. They share one state.
func TestSpellingsByCaseShareAState(t *testing.T) {
	if os.Getenv("ZONEINFO") == "" {
		dir := t.TempDir()
		// RFC 9636: a header, six counts, and one type of local time.
		shanghai := "TZif" + strings.Repeat("\x00", 35) + "\x01\x00\x00\x00\x04" + "\x00\x00\x70\x80\x00\x00" + "CST\x00"
		for _, name := range []string{"Asia/Shanghai", "ASIA/shangHai"} {
			file := filepath.Join(dir, name)
			if err := cmp.Or(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(shanghai), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestSpellingsByCaseShareAState$")
		cmd.Env = append(os.Environ(), "ZONEINFO="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	store, admitted := memorystore.New(nil), 0
	for _, zone := range []string{"Asia/Shanghai", "ASIA/shangHai"} {
		l := core.Must(core.New(store, core.CalendarWindow(1, core.Month, load(t, zone))))
		d, err := l.Allow(t.Context(), "alice", "call")
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted++
		}
	}
	if admitted != 1 {
		t.Errorf("%d are admitted under a limit of 1 a month", admitted)
	}
}

// dateless is a store without a time of day: it shows only what every store must have.
type dateless struct{ core.Store }

// A store that does not know the time of day would decide wrong months. It is refused wherever it is.
func TestAStoreWithoutATimeOfDayIsRefused(t *testing.T) {
	dated, other := memorystore.New(nil), dateless{memorystore.New(nil)}
	observe := func(s core.Store) core.Store { return core.Observe(s, func(context.Context, core.Observation) {}) }
	day := core.CalendarWindow(5, core.Day, nil)
	for _, tt := range []struct {
		name    string
		store   core.Store
		refused bool
	}{
		{"bare", other, true},
		{"in FailOpen", core.FailOpen(other), true},
		{"in Observe and Shadow", observe(core.Shadow(other)), true},
		{"in Divide", core.Divide(other, 2), true},
		{"as the first of Fallback", core.Fallback(other, dated), true},
		{"as the second of Fallback", core.Fallback(dated, other), true},
		{"as the second of a Fallback in Observe", observe(core.Fallback(dated, core.FailOpen(other))), true},
		{"memorystore", dated, false},
		{"all decorators", observe(core.Shadow(core.FailOpen(core.Divide(core.Fallback(dated, dated), 2)))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := core.New(tt.store, core.FixedWindow(5, time.Hour)); err != nil {
				t.Fatal(err)
			}
			for _, limits := range [][]core.Limit{{day}, {core.FixedWindow(5, time.Hour), day.Shadow()}} {
				_, err := core.New(tt.store, limits...)
				if (err != nil) != tt.refused || tt.refused && (!errors.Is(err, core.ErrConfig) || !strings.Contains(err.Error(), "the store does not know the time of day")) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// Behind every decorator the numbers are those of the store itself.
func TestDecoratorsKeepTheTimeOfDay(t *testing.T) {
	now := time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)
	open := func() core.Store {
		return memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }})
	}
	month := core.CalendarWindow(4, core.Month, nil)
	for name, store := range map[string]core.Store{
		"bare": open(), "FailOpen": core.FailOpen(open()), "Fallback": core.Fallback(open(), open()), "Divide": core.Divide(open(), 1),
		"down": core.Fallback(failing{memorystore.New(nil)}, open()), "Observe": core.Observe(open(), func(context.Context, core.Observation) {}),
	} {
		l := core.Must(core.New(store, month))
		d, err := l.AllowN(t.Context(), "alice", "call", 4)
		if err != nil || !d.Allowed || d.ResetAfter != 12*24*time.Hour {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if s, err := l.Status(t.Context(), "alice", "call"); err != nil || s.Limits[0].RetryAfter != 12*24*time.Hour {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// With the environment variable TZ, time.Local has the name of the zone.
func TestTimeLocalIsAnErrorWhateverItsName(t *testing.T) {
	if os.Getenv("TAILCUT_LOCAL") != "" {
		store := memorystore.New(nil)
		if _, err := core.New(store, core.CalendarWindow(5, core.Day, time.Local)); err == nil || !strings.Contains(err.Error(), "time.Local is another zone") {
			t.Errorf("time.Local named %s: %v", time.Local, err)
		}
		for _, loc := range []*time.Location{nil, time.UTC, load(t, "Asia/Shanghai")} {
			if _, err := core.New(store, core.CalendarWindow(5, core.Day, loc)); err != nil {
				t.Error(err)
			}
		}
		return
	}
	for _, tz := range []string{"", "UTC", "Asia/Shanghai", "Etc/GMT+5"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTimeLocalIsAnErrorWhateverItsName$")
		cmd.Env = append(os.Environ(), "TZ="+tz, "TAILCUT_LOCAL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("TZ=%q: %v\n%s", tz, err, out)
		}
	}
}
