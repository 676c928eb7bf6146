package metrics

import (
	"sync/atomic"
	"time"
)

const ms = time.Millisecond

var (
	answerBounds = []time.Duration{100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, ms, 2500 * time.Microsecond, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms}
	waitBounds   = []time.Duration{ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, time.Second, 2500 * ms, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
)

// A histogram counts times by bounds.
type histogram struct {
	bounds []time.Duration
	counts []atomic.Uint64 // of the times between two bounds; the last one is of times above all bounds
	sum    atomic.Int64
}

func newHistogram(bounds []time.Duration) histogram {
	return histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) add(d time.Duration) {
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// snapshot reads the counts. Its Count is always their sum, even if add runs meanwhile.
func (h *histogram) snapshot() Histogram {
	s := Histogram{Sum: time.Duration(h.sum.Load()), Buckets: make([]Bucket, len(h.bounds))}
	for i := range h.counts {
		s.Count += h.counts[i].Load()
		if i < len(h.bounds) {
			s.Buckets[i] = Bucket{UpTo: h.bounds[i], Count: s.Count}
		}
	}
	return s
}
