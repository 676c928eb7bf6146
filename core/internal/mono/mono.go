// Package mono reads the process's monotonic clock. A store decides by a reading, and a reply that
// names an instant uses the same one: each takes 25 of the 230 ns of a request's middleware.
package mono

import (
	"sync/atomic"
	"time"
)

// A Time is a reading, in nanoseconds from the start of the process. 0 is none.
type Time int64

var start = time.Now()

// Now reads the clock.
func Now() Time { return Time(time.Since(start)) }

// UnixNano returns the time of day at a recent reading, in nanoseconds since 1970. It reads the
// time of day every 10 ms, since time.Now takes 20 ns more than a reading does. In that time the
// two clocks drift apart by 5 us at most, unless the time of day is set.
func (t Time) UnixNano() int64 {
	last := lastSet.Load()
	if last == nil || t < last.at || t-last.at >= readAgain {
		last = set()
	}
	return int64(t) + last.offset
}

// A setting is when the time of day was read, and what it said.
type setting struct {
	at     Time
	offset int64 // nanoseconds from 1970 to start
}

const readAgain = Time(10 * time.Millisecond)

var lastSet atomic.Pointer[setting]

// set reads both clocks. time.Now reads one after the other, and a pause between them would be
// an error of the offset, so if there was one around, set tries again.
func set() (s *setting) {
	const tries, pause = 5, Time(20 * time.Microsecond)
	for range tries {
		before, both := Now(), time.Now()
		at := Time(both.Sub(start))
		s = &setting{at: at, offset: both.UnixNano() - int64(at)}
		if at-before < pause {
			break
		}
	}
	lastSet.Store(s)
	return s
}
