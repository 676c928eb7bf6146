// Package later releases slots of InFlight in the background. It tries again until it succeeds, or
// the lease ends. If it does not find the slots, it stops after about a minute. A slot that it
// cannot release becomes free when its lease ends.
package later

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Most is the highest number of tries that are pending in the process. Each pending try keeps a
// request in memory. If Most tries are pending, a new try is dropped, and its slots become free
// when their lease ends.
const Most = 10_000

const (
	firstPause   = 125 * time.Millisecond // the first pause; an eighth of the lease if that is shorter
	failurePause = time.Second            // after failures the pause grows up to this
	longestPause = time.Minute            // tries end when the next pause would be longer
)

var waiting atomic.Int32

// A Try tries once to release slots. found reports whether the slots were there.
type Try func() (found bool, err error)

// Now makes the first try at once, in another goroutine.
func (try Try) Now(lease time.Duration) { try.from(lease).after(0) }

// Again makes the first try after a pause. If a try would come later than lease from now, it is not
// made, and the tries end.
func (try Try) Again(lease time.Duration) {
	t := try.from(lease)
	t.after(t.grow(true))
}

func (try Try) from(lease time.Duration) *tries {
	return &tries{try, min(firstPause, lease/8), time.Now().Add(lease)}
}

// tries is a sequence of tries to release the same slots. If the slots are not found, the store may
// not have taken them yet, so each pause is twice as long as the one before. If the store fails,
// the pauses grow only up to a second.
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

// grow returns the pause before the next try, and lengthens the pause after it.
func (t *tries) grow(failed bool) time.Duration {
	pause := t.pause
	if !failed || pause < failurePause {
		t.pause *= 2
	}
	return pause
}

// once tries once. It turns a panic of the store into an error.
func (t *tries) once() (found bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return t.try()
}
