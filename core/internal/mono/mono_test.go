package mono

import (
	"testing"
	"testing/synctest"
	"time"
)

// A reading's time of day is never away from that of time.Now by more than the time that the two
// readings take.
func TestUnixNano(t *testing.T) {
	const drift = 50 * time.Microsecond // of a machine whose time of day is being adjusted
	var first Time
	var firstTime time.Time
	check := func(t *testing.T) {
		t.Helper()
		before := time.Now()
		at := Now()
		after := time.Now()
		got := time.Unix(0, at.UnixNano())
		if got.Before(before.Round(0).Add(-drift)) || got.After(after.Round(0).Add(drift)) {
			t.Errorf("the time is %v, and %v to %v", got, before, after)
		}
		if first == 0 {
			first, firstTime = at, got
		}
	}
	for range 1000 {
		check(t)
	}
	synctest.Test(t, func(t *testing.T) { // another time altogether, and back
		for _, d := range []time.Duration{0, 1, time.Millisecond, readAgainAfter - 1, readAgainAfter, time.Hour, 1} {
			time.Sleep(d)
			check(t)
		}
	})
	check(t)
	if later := time.Unix(0, first.UnixNano()); later.Sub(firstTime).Abs() > drift {
		t.Errorf("the time of a reading was %v, and is %v after another one", firstTime, later)
	}
}

const readAgainAfter = time.Duration(readAgain)
