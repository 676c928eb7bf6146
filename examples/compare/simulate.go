package main

import (
	"context"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A bench is one limit on a clock that moves only when it is told to.
type bench struct {
	at      time.Duration
	limiter *core.Limiter
}

func newBench(limit core.Limit) *bench {
	b := &bench{}
	start := time.Unix(0, 0)
	store := memorystore.New(&memorystore.Options{Clock: func() time.Time { return start.Add(b.at) }})
	b.limiter = core.Must(core.New(store, limit))
	return b
}

// must takes the result of a call that cannot fail: the store is in memory and the
// arguments are right.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// try makes one attempt at an instant, which must not be before the last.
func (b *bench) try(at time.Duration) (passed bool) {
	b.at = at
	return must(b.limiter.Allow(context.Background(), "user", "action")).Allowed
}

// attempt is what became of one arrival.
type attempt struct {
	at     time.Duration
	passed bool
}

// A point is how much of the quota is used at an instant, in the time that a bucket
// takes for it: from 0 to a whole period.
type point struct{ at, used time.Duration }

// A story is what one limit made of one traffic.
type story struct {
	attempts []attempt
	level    []point // joined by straight lines
	passed   int
	most     int           // passed in the busiest period
	busiest  time.Duration // where that begins
}

// step is how often the level is looked at between arrivals. All of the traffic arrives,
// and all of the levels turn, at multiples of it.
const step = 500 * time.Millisecond

// tell runs a limit against traffic and says what happened.
func tell(c *contender, quota int, tr *traffic) story {
	b := newBench(c.limit(quota))
	var s story
	look := func(at time.Duration) {
		b.at = at
		d := must(b.limiter.Peek(context.Background(), "user", "action"))
		used := time.Duration(d.Limit-d.Remaining) * (period / time.Duration(quota))
		if c.meter {
			used = d.ResetAfter
		} else if n := len(s.level); n > 0 && s.level[n-1].used != used {
			s.draw(point{at, s.level[n-1].used}) // a count jumps
		}
		s.draw(point{at, used})
	}
	var passed []time.Duration
	arrivals := tr.arrivals
	for at := time.Duration(0); at <= tr.length; at += step {
		look(at)
		for len(arrivals) > 0 && arrivals[0] == at {
			a := attempt{at, b.try(at)}
			if s.attempts = append(s.attempts, a); a.passed {
				passed = append(passed, at)
			}
			arrivals = arrivals[1:]
			look(at)
		}
	}
	s.passed = len(passed)
	s.most, s.busiest = mostWithin(passed, period)
	return s
}

// draw adds a point to the level, in place of the last one if that is on the way to it.
func (s *story) draw(p point) {
	n := len(s.level)
	if n > 0 && s.level[n-1] == p {
		return
	}
	if n > 1 {
		a, b := s.level[n-2], s.level[n-1]
		if (b.used-a.used)/step*(p.at-b.at) == (p.used-b.used)/step*(b.at-a.at) {
			n--
		}
	}
	s.level = append(s.level[:n], p)
}

// mostWithin is the most of the instants that any half-open interval of that length has
// in it, and where the first such interval begins. The instants are in order.
func mostWithin(at []time.Duration, length time.Duration) (most int, from time.Duration) {
	first := 0
	for i := range at {
		for at[i]-at[first] >= length {
			first++
		}
		if n := i - first + 1; n > most {
			most, from = n, at[first]
		}
	}
	return most, from
}
