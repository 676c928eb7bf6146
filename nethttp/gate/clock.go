package gate

import (
	"sync/atomic"
	"time"
)

// A clock computes the time of day from the monotonic clock, which saves 20 ns of the 45
// that time.Now takes. It reads the time of day every 10 ms. In that time the two clocks
// drift apart by 5 us at most, unless the time of day is set.
type clock struct{ last atomic.Pointer[reading] }

// A reading of the time of day.
type reading struct {
	at     int64 // nanoseconds from start
	offset int64 // nanoseconds from 1970 to start
}

const readAgain = int64(10 * time.Millisecond)

var start = time.Now()

// now returns the nanoseconds since 1970.
func (c *clock) now() int64 {
	now := int64(time.Since(start))
	last := c.last.Load()
	if last == nil || now < last.at || now-last.at >= readAgain {
		both := time.Now() // reads both clocks at once: a pause between them would be an error
		now = int64(both.Sub(start))
		last = &reading{at: now, offset: both.UnixNano() - now}
		c.last.Store(last)
	}
	return now + last.offset
}
