// Package notice says which of many equal events the log tells of. It is for the packages of this module: a program
// that uses Tailcut does not need it.
package notice

import (
	"sync/atomic"
	"time"
)

// Once is for an event that is logged the first time.
type Once struct{ atomic.Bool }

// Due reports true once.
func (o *Once) Due() bool { return !o.Load() && !o.Swap(true) }

// Rarely is for an event that is logged at most once a minute.
type Rarely struct{ atomic.Int64 } // when it was due, since start; 0 is never

var start = time.Now()

// Due reports true the first time, and when a minute has passed since it last did.
func (r *Rarely) Due() bool {
	was, now := r.Load(), int64(time.Since(start))
	return (was == 0 || now-was >= int64(time.Minute)) && r.CompareAndSwap(was, now)
}

// Never is for something that should be seen now and then, and is not.
type Never struct{ misses atomic.Int64 }

// Seen says that it was seen.
func (n *Never) Seen() {
	if n.misses.Load() < 1<<62 {
		n.misses.Store(1 << 62) // so that no number of misses is due
	}
}

// Due counts a miss. It reports true once: if this is number many, and Seen was never called.
func (n *Never) Due(many int64) bool { return n.misses.Load() < many && n.misses.Add(1) == many }
