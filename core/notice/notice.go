// Package notice decides which of many equal events are logged. It is for the packages of this
// module. A program that uses Tailcut does not need it.
package notice

import (
	"sync/atomic"
	"time"
)

// Once is for an event that is logged only the first time.
type Once struct{ atomic.Bool }

// Due reports true the first time that it is called, and false from then on.
func (o *Once) Due() bool { return !o.Load() && !o.Swap(true) }

// Rarely is for an event that is logged at most once a minute. Its value is when Due last reported
// true, in nanoseconds since start, and 0 before the first time.
type Rarely struct{ atomic.Int64 }

var start = time.Now()

// Due reports true the first time, and after that once a minute has passed since it last reported
// true.
func (r *Rarely) Due() bool {
	was, now := r.Load(), int64(time.Since(start))
	return (was == 0 || now-was >= int64(time.Minute)) && r.CompareAndSwap(was, now)
}

// Never is for an event that should happen now and then. It detects that the event has never
// happened.
type Never struct{ misses atomic.Int64 }

// Seen records that the event has happened.
func (n *Never) Seen() {
	if n.misses.Load() < 1<<62 {
		n.misses.Store(1 << 62) // more than any number of misses that Open compares it with
	}
}

// Due counts a miss. It reports whether the miss is number many, and Seen was not called before.
func (n *Never) Due(many int64) bool { return n.Miss(many) == many }

// Miss counts a miss, and returns its number. After miss number many, or after a call of Seen, Miss
// only returns 0.
func (n *Never) Miss(many int64) int64 {
	if n.Open(many) {
		return n.misses.Add(1)
	}
	return 0
}

// Open reports whether the number of counted misses is below the argument many, and Seen was not
// called.
func (n *Never) Open(many int64) bool { return n.misses.Load() < many }
