// Package later tries again, in the background, to free slots of InFlight. What it does not free is free when
// its lease ends.
package later

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Most is how many tries to free slots may be pending in the process. Each keeps a request in memory. A further try
// is dropped, and its slot is free when its lease ends.
const Most = 10_000

const (
	firstPause   = 125 * time.Millisecond // after a failure, or an eighth of the lease if that is shorter
	failurePause = time.Second            // failures let the pause grow up to this
	longestPause = time.Minute            // there is no try after a longer one
)

var waiting atomic.Int32

// A Try tries to free slots once. found reports whether the slots were there.
type Try func() (found bool, err error)

// Now makes the first try at once, in another goroutine.
func (try Try) Now(lease time.Duration) { try.from(lease).after(0) }

// Again makes the first try after a pause.
func (try Try) Again(lease time.Duration) {
	t := try.from(lease)
	t.after(t.grow(true))
}

func (try Try) from(lease time.Duration) *tries {
	return &tries{try, min(firstPause, lease/8), time.Now().Add(lease)}
}

// tries are those for slots that were not found yet. They may not be taken yet, so each pause is twice the one
// before. But while the server fails, it is asked every second.
type tries struct {
	try   Try
	pause time.Duration // after the next try
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
		found, err := t.once()
		if found {
			return
		}
		t.after(t.grow(err != nil))
	})
}

// grow returns the pause after a try.
func (t *tries) grow(failed bool) time.Duration {
	pause := t.pause
	if !failed || pause < failurePause {
		t.pause *= 2
	}
	return pause
}

// once tries once. A panic of a store is a failure.
func (t *tries) once() (found bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return t.try()
}

// Waiting returns how many tries the process waits for. It is for tests.
func Waiting() int { return int(waiting.Load()) }
