// Package later tries again, in the background, what frees a slot of InFlight. A slot that it does not free is free
// when its lease ends.
package later

import (
	"sync/atomic"
	"time"
)

// Most bounds what is tried again in the process. Each keeps a request in memory.
const Most = 10_000

var pending atomic.Int32

// Do calls do after a pause. do returns the pause before the next call, or 0 if it is done. If too
// much is pending, Do does nothing.
func Do(pause time.Duration, do func() (again time.Duration)) {
	if pending.Add(1) > Most {
		pending.Add(-1)
		return
	}
	time.AfterFunc(pause, func() {
		pending.Add(-1)
		if again := do(); again > 0 {
			Do(again, do)
		}
	})
}

// Pending returns how much is pending. It is for tests.
func Pending() int { return int(pending.Load()) }
