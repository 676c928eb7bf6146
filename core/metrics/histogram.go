package metrics

// A histogram counts durations in cells, which serve classic and exponential buckets.

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

const ms = time.Millisecond

var (
	answerCells = newCells(100*time.Microsecond, 250*time.Microsecond, 500*time.Microsecond, ms, 2500*time.Microsecond, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms)
	waitCells   = newCells(ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, time.Second, 2500*ms, 5*time.Second, 10*time.Second, 30*time.Second, time.Minute)
)

// A cell is an interval of durations. Each bucket consists of whole cells. So one count per cell
// serves both Histogram.Buckets and Histogram.Exponential.
type cell struct {
	upTo        time.Duration
	bucket      bool // upTo is the bound of a classic Bucket
	exponential int  // the index in Histogram.Exponential
}

// newCells returns the cells of a histogram whose classic buckets have these bounds, the shortest
// durations first.
func newCells(bounds ...time.Duration) []cell {
	const shortest, perDoubling = -80, 4 // 2^(-80/4) s is about 1 µs; 4 buckets per doubling are scale 2 of an exponential histogram
	cells := []cell{}
	for i := shortest; ; i++ {
		upTo := time.Duration(math.MaxInt64)
		if end := math.Exp2(float64(i)/perDoubling) * float64(time.Second); end < math.MaxInt64 {
			upTo = time.Duration(end)
		}
		for ; len(bounds) > 0 && bounds[0] <= upTo; bounds = bounds[1:] {
			cells = append(cells, cell{bounds[0], true, i})
		}
		if len(cells) == 0 || cells[len(cells)-1].upTo != upTo {
			cells = append(cells, cell{upTo, false, i})
		}
		if upTo == math.MaxInt64 {
			return cells
		}
	}
}

// A histogram counts durations.
type histogram struct {
	cells  []cell
	from   [64]int         // for each number of bits of a duration, the first cell to look at
	counts []atomic.Uint64 // one for each cell
	sum    atomic.Int64
}

func newHistogram(cells []cell) *histogram {
	h := &histogram{cells: cells, counts: make([]atomic.Uint64, len(cells))}
	for n := range h.from {
		h.from[n] = slices.IndexFunc(cells, func(c cell) bool { return bits.Len64(uint64(c.upTo)) >= n })
	}
	return h
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	i := h.from[bits.Len64(uint64(d))]
	for d > h.cells[i].upTo {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// snapshot returns the counts. The Count of the result is the sum of its Exponential buckets, even
// if add runs at the same time.
func (h *histogram) snapshot() Histogram {
	s := Histogram{Sum: time.Duration(h.sum.Load()), Exponential: map[int]int64{}}
	for i, c := range h.cells {
		if n := h.counts[i].Load(); n > 0 {
			s.Count += n
			s.Exponential[c.exponential] += int64(n)
		}
		if c.bucket {
			s.Buckets = append(s.Buckets, Bucket{UpTo: c.upTo, Count: s.Count})
		}
	}
	return s
}
