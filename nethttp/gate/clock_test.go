package gate

import (
	"testing"
	"testing/synctest"
	"time"
)

// The clock is never away from the time of day by more than the time that two readings
// of it take.
func TestClock(t *testing.T) {
	check := func(t *testing.T, c *clock) {
		t.Helper()
		before := time.Now()
		got := time.Unix(0, c.now())
		after := time.Now()
		const drift = 50 * time.Microsecond // of a machine whose time of day is being adjusted
		if got.Before(before.Round(0).Add(-drift)) || got.After(after.Round(0).Add(drift)) {
			t.Errorf("the time is %v, and %v to %v", got, before, after)
		}
	}
	c := new(clock)
	for range 1000 {
		check(t, c)
	}
	synctest.Test(t, func(t *testing.T) { // another time altogether, and back
		for _, d := range []time.Duration{0, 1, time.Millisecond, readAgainAfter - 1, readAgainAfter, time.Hour, 1} {
			time.Sleep(d)
			check(t, c)
		}
	})
	check(t, c)
}

const readAgainAfter = time.Duration(readAgain)
