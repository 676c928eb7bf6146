package lease

import (
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
)

// What was used before a pause of a lease does not make the limit near.
func TestWhatWasUsedBeforeAPauseDoesNotCount(t *testing.T) {
	now := time.Now()
	h := &holding{charge: core.Charge{Terms: &core.Terms{Limits: []core.Limit{core.FixedWindow(4000, time.Hour)}}}, demand: demand{lease: 100 * time.Millisecond, since: now.Add(-time.Second), used: 1000}, budget: budget{pace: pace}}
	h.paid = now.Add(5*pace - pace/2) // four returns of leases that have ended
	h.last, h.at = core.Decision{Allowed: true, Limit: 4000, Remaining: 1800}, now.Add(-time.Second)
	do, _ := h.choose(1, now, 0, 50*time.Millisecond, distance{trip: time.Millisecond})
	if do != stepPause {
		t.Errorf("step %d, want stepPause: 1800 remain, and nothing was used for a second; delay %s", do, h.delay(now, 0))
	}
}
