package gate

import (
	"sync/atomic"
	"time"
)

// A clock tells the time of day by the monotonic clock, which saves 20 ns of the 45 that
// time.Now takes. It looks at the time of day every 10 ms. In that time the two clocks
// drift apart by 5 us at most, unless the time of day is set.
type clock struct {
	offset atomic.Int64 // nanoseconds from 1970 to start
	looked atomic.Int64 // nanoseconds from start to the last look; 0 is none
}

const lookAgain = int64(10 * time.Millisecond)

var start = time.Now()

// now returns the seconds since 1970 and the nanoseconds of the present one.
func (c *clock) now() (int64, time.Duration) {
	now := int64(time.Since(start))
	if looked := c.looked.Load(); looked == 0 || now < looked || now-looked >= lookAgain {
		both := time.Now() // read together, or a pause in between would count as time
		now = int64(both.Sub(start))
		c.offset.Store(both.UnixNano() - now)
		c.looked.Store(now)
	}
	now += c.offset.Load()
	return now / int64(time.Second), time.Duration(now % int64(time.Second))
}
