package metrics

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every time is counted in the bucket, and in the exponential one, that its value says.
func TestATimeIsInItsBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, 1e9), rapid.Int64Range(0, 1e12), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "time"))
		for _, bound := range []time.Duration{answerCells[0].upTo, 250 * time.Microsecond, ms, time.Second, time.Minute} {
			if rapid.Bool().Draw(t, "at a bound") {
				d = bound + time.Duration(rapid.Int64Range(-1, 1).Draw(t, "beside it"))
			}
		}
		for _, cells := range [][]cell{answerCells, waitCells} {
			h := newHistogram(cells)
			h.add(d)
			s := h.snapshot()
			if s.Count != 1 || s.Sum != d || len(s.Exponential) != 1 {
				t.Fatalf("%+v", s)
			}
			for _, b := range s.Buckets {
				if (b.Count == 1) != (d <= b.UpTo) {
					t.Errorf("%s is counted %d times up to %s", d, b.Count, b.UpTo)
				}
			}
			for i := range s.Exponential {
				const nearly = 1 + 1e-9
				most, least := math.Exp2(float64(i)/4)*nearly, math.Exp2(float64(i-1)/4)/nearly
				if d.Seconds() > most || d.Seconds() < least && i != -80 {
					t.Errorf("%s is in bucket %d, of %g to %g seconds", d, i, least, most)
				}
			}
		}
	})
}

func TestTheBoundsOfTheBucketsAreTheirs(t *testing.T) {
	for _, cells := range [][]cell{answerCells, waitCells} {
		h := newHistogram(cells)
		buckets := h.snapshot().Buckets
		if want := map[*cell]int{&answerCells[0]: 10, &waitCells[0]: 13}[&cells[0]]; len(buckets) != want {
			t.Errorf("there are %d buckets, want %d: %v", len(buckets), want, buckets)
		}
		for i := 1; i < len(cells); i++ {
			if cells[i].upTo <= cells[i-1].upTo || cells[i].exponential < cells[i-1].exponential {
				t.Errorf("%v is before %v", cells[i-1], cells[i])
			}
		}
	}
}

func BenchmarkHistogram(b *testing.B) {
	h := newHistogram(answerCells)
	for i := range b.N {
		h.add(time.Duration(i%1000) * time.Microsecond)
	}
}
