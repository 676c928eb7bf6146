package metrics

// Histograms of times: each counts in cells that serve both kinds of buckets.

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

// A cell is an interval of durations that no bound divides, neither one of a Bucket nor one of
// Histogram.Exponential. So one count of a cell serves both.
type cell struct {
	upTo        time.Duration
	bucket      bool // upTo is the bound of a Bucket
	exponential int  // the index in Histogram.Exponential
}

// newCells returns the cells of histograms with these bounds of buckets, the shortest times first.
func newCells(bounds ...time.Duration) []cell {
	const shortest, perDoubling = -80, 4 // 2^(-80/4) s is about 1 µs; 4 a doubling is scale 2 of an exponential histogram
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

// A histogram counts times.
type histogram struct {
	cells  []cell
	from   [64]int         // the first cell of the times with so many bits
	counts []atomic.Uint64 // of the cells
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

// snapshot reads the counts. Its Count is always their sum, even if add runs meanwhile.
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
