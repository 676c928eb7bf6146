// Package later tries again, in the background, to free slots of InFlight. What it does not free is free when
// its lease ends.
package later

import (
	"sync/atomic"
	"time"
)

// Most is how many tries the process waits for at most. Each keeps a request in memory.
const Most = 10_000

const (
	firstPause   = 125 * time.Millisecond // after a failure, or an eighth of the lease if that is shorter
	failurePause = time.Second            // at most, after a failure
	longestPause = time.Minute            // after a try that has found no slot
)

var waiting atomic.Int32

// A Try tries to free slots, and reports whether it has found them.
type Try func() (found bool, err error)

// Now has the first try at once, in another goroutine.
func (try Try) Now(lease time.Duration) { try.from(lease).after(0) }

// Again has the first try after a pause.
func (try Try) Again(lease time.Duration) {
	t := try.from(lease)
	t.after(t.pause)
}

func (try Try) from(lease time.Duration) *tries {
	return &tries{try, min(firstPause, lease/8), time.Now().Add(lease)}
}

// tries are those for slots that were not found yet. Each pause is twice the one before. A server that fails
// is asked every second. One that has not found the slots may be told to take them later, so the pauses grow.
type tries struct {
	try   Try
	pause time.Duration
	end   time.Time
}

func (t *tries) after(pause time.Duration) {
	if pause > longestPause || time.Now().Add(pause).After(t.end) {
		return
	}
	if waiting.Add(1) > Most {
		waiting.Add(-1)
		return
	}
	time.AfterFunc(pause, func() {
		waiting.Add(-1)
		found, err := t.try()
		if found {
			return
		}
		pause := t.pause
		if err == nil || pause < failurePause {
			t.pause *= 2
		}
		t.after(pause)
	})
}

// Waiting returns how many tries the process waits for. It is for tests.
func Waiting() int { return int(waiting.Load()) }
