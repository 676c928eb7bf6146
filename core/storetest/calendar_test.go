//go:build !race

package storetest

import (
	"archive/zip"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// zoneNames are the names in Go's copy of the time zone database, one of each zone that has several.
func zoneNames(t *testing.T) (names []string) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	known := map[uint32]bool{}
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" && !known[f.CRC32] {
			known[f.CRC32] = true
			names = append(names, f.Name)
		}
	}
	return names
}

// In all zones, over ten years, the periods are those of a model that goes through them in steps:
// mostly near a change of the clock, where they are hard.
func TestThePeriodsOfAllZones(t *testing.T) {
	names := zoneNames(t)
	if len(names) < 300 {
		t.Fatalf("%d zones", len(names))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	from, to := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	near := []int64{0, 1, 59, 60, 1799, 1800, 3599, 3600, 3601, 7200, 86399, 86400, 3 * 86400}
	failed := 0
	for _, name := range names {
		if testing.Short() && r.IntN(10) > 0 {
			continue
		}
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		var changes []int64
		for at := from; at < to; {
			_, end := time.Unix(at, 0).In(zone).ZoneBounds()
			if at = end.Unix(); end.IsZero() {
				break
			}
			changes = append(changes, at)
		}
		for unit, times := range map[core.CalendarUnit]int{core.Minute: 4, core.Hour: 6, core.Day: 6, core.Week: 3, core.Month: 1, core.Year: 1, core.Month.From(2 + r.IntN(30)): 2} {
			plain, day := unit, 1
			if strings.HasPrefix(string(unit), "month") {
				plain, day = core.Month, firstDay(unit)
			}
			c := machine.NewCalendar(string(plain), day, zone)
			instants := []int64{time.Date(2040, 12, 31, r.IntN(24), r.IntN(60), 0, 0, time.UTC).Unix()} // long after the table's last change
			for _, change := range changes {                                                            // where the date is set back
				if later(dateNumber(core.Day, time.Unix(change-1, 0).In(zone)), dateNumber(core.Day, time.Unix(change, 0).In(zone))) {
					instants = append(instants, change, change+1800)
				}
			}
			for range times {
				at := from + r.Int64N(to-from)
				if len(changes) > 0 && r.IntN(4) > 0 {
					at = changes[r.IntN(len(changes))] + near[r.IntN(len(near))]*int64(1-2*r.IntN(2))
				}
				instants = append(instants, at)
			}
			for _, at := range instants {
				now := at*1e6 + r.Int64N(2)*999_999
				start, end := c.Period(now)
				wantStart, wantEnd := naivePeriod(unit, zone, now)
				if failed < 10 && (start != wantStart || end != wantEnd) {
					failed++
					show := func(us int64) string { return time.UnixMicro(us).In(zone).Format(time.RFC3339) }
					t.Errorf("%s, %s at %s: %s to %s, the model says %s to %s", name, unit, show(now), show(start), show(end), show(wantStart), show(wantEnd))
				}
			}
		}
	}
}
