package machine

import (
	"math"
	"slices"
)

// A trail of up to long entries is one block, which is compacted when it is full. A longer
// one is blocks of chunk entries, so that no charge copies a long queue.
const (
	chunk = 128
	long  = 3900 // such a block just fits the allocator's largest class, 32 KiB
)

// Trail is the state of a SlidingWindow or MovingWindow: the instants of the last
// actions, oldest first, 8 to 8.5 bytes each in a long one.
type Trail struct {
	base   int64 // added to every entry, so that all can be moved at once
	blocks [][]int64
	head   int // of the oldest entry, in the first block
	n      int
}

// Len is how many entries are kept, those that no longer count included.
func (t *Trail) Len() int {
	if t == nil {
		return 0
	}
	return t.n
}

// At is the i-th entry, the oldest being the 0th, in microseconds on the store's
// clock.
func (t *Trail) At(i int) int64 {
	return t.base + *t.entry(i)
}

func (t *Trail) newest() int64 {
	if t.n == 0 {
		return 0
	}
	return t.At(t.n - 1)
}

// push adds an entry to a trail that will rarely have more than max.
func (t *Trail) push(at int64, max int) {
	if len(t.blocks) == 0 {
		t.blocks = append(t.blocks, make([]int64, 0, min(max, 4)))
	}
	last := &t.blocks[len(t.blocks)-1]
	if len(*last) == cap(*last) {
		last = t.extend(max)
	}
	*last = append(*last, at-t.base)
	t.n++
}

// extend makes room in the last block, or adds one.
func (t *Trail) extend(max int) *[]int64 {
	first := &t.blocks[0]
	switch {
	case len(t.blocks) > 1 || t.n >= long:
		if len(t.blocks) == 1 {
			t.split()
			if last := &t.blocks[len(t.blocks)-1]; len(*last) < chunk {
				return last
			}
		}
		t.blocks = append(t.blocks, make([]int64, 0, chunk))
	case t.head > 0 && t.head*66 >= len(*first):
		*first = (*first)[:copy(*first, (*first)[t.head:])]
		t.head = 0
	default:
		size := t.n * 2
		if max < size {
			size = max
			if t.n >= max { // refused entries of a larger limit
				size = t.n
			}
			size += size/64 + 1
		}
		*first, t.head = append(slices.Grow([]int64(nil), size), (*first)[t.head:]...), 0
	}
	return &t.blocks[len(t.blocks)-1]
}

// split makes chunks of a trail that was one block.
func (t *Trail) split() {
	all := t.blocks[0][t.head:]
	t.blocks, t.head = nil, 0
	for part := range slices.Chunk(all, chunk) {
		t.blocks = append(t.blocks, append(make([]int64, 0, chunk), part...))
	}
}

// drop removes the k oldest entries.
func (t *Trail) drop(k int) {
	if t.n -= k; t.n == 0 {
		if len(t.blocks) > 1 {
			t.blocks = nil
		} else if len(t.blocks) == 1 {
			t.blocks[0] = t.blocks[0][:0]
		}
		t.head = 0
		return
	}
	for t.head += k; len(t.blocks) > 1 && t.head >= chunk; t.head -= chunk {
		t.blocks[0] = nil
		t.blocks = t.blocks[1:]
	}
}

// dead is how many entries are at or before the instant at. Most often it is few
// or all, so the search starts at the oldest and doubles its step.
func (t *Trail) dead(at int64) int {
	if t.n == 0 || t.At(0) > at {
		return 0
	}
	low, high := 0, 1 // At(low) <= at
	for high < t.n && t.At(high) <= at {
		low, high = high, high*2
	}
	high = min(high, t.n)
	for high-low > 1 {
		if mid := int(uint(low+high) / 2); t.At(mid) <= at {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// remove takes out the entries from from to just before to.
func (t *Trail) remove(from, to int) {
	for i := to; i < t.n; i++ {
		*t.entry(i - (to - from)) = *t.entry(i)
	}
	for range to - from {
		t.pop()
	}
}

func (t *Trail) entry(i int) *int64 {
	i += t.head
	if len(t.blocks) == 1 {
		return &t.blocks[0][i]
	}
	return &t.blocks[i/chunk][i%chunk]
}

// pop removes the newest entry.
func (t *Trail) pop() {
	if t.n == 1 {
		t.drop(1)
		return
	}
	t.n--
	last := &t.blocks[len(t.blocks)-1]
	if *last = (*last)[:len(*last)-1]; len(*last) == 0 {
		t.blocks = t.blocks[:len(t.blocks)-1]
	}
}

// free is the instant from which the rule has room for cost: when the entry leaves that
// is one too many.
func (t *Trail) free(r *Rule, cost int64) int64 {
	over := int64(t.n) - (r.Max - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return t.At(int(over)) + r.Period
}

// checkTrail looks at one entry: the one that would be one too many.
func (r *Rule) checkTrail(s *State, now int64, a *Ask) bool {
	s.ahead = 0
	if !s.Exists || s.Trail.Len() == 0 {
		return a.Mode == Force || a.Cost <= r.Max
	}
	s.ahead = max(0, s.Trail.newest()-now) // the clock stepped back
	return a.Mode == Force || a.Cost <= r.Max && s.Trail.free(r, a.Cost)-s.ahead <= now
}

// chargeTrail writes cost entries, and drops those that no longer count. Of refused ones
// the newest Max stay, or as many as counted before, if a larger limit wrote them.
func (r *Rule) chargeTrail(s *State, now, cost int64) {
	if s.Trail == nil {
		s.Trail = new(Trail)
	}
	r.shift(s, now)
	t := s.Trail
	t.drop(t.dead(now - r.Period))
	keep := max(int(r.Max), t.n)
	for range cost {
		t.push(now, int(r.Max))
	}
	if t.n > keep {
		t.drop(t.n - keep)
	}
}

// readTrail counts the entries within the period.
func (r *Rule) readTrail(v *Reading, s *State, now, cost int64) {
	if !s.Exists || s.Trail.Len() == 0 {
		return
	}
	t := s.Trail
	v.Count = int64(t.n - t.dead(now-r.Period+s.ahead))
	if v.Count == 0 {
		return
	}
	v.Rest.Whole = t.newest() - s.ahead + r.Period - now
	if cost <= r.Max {
		v.Wait = t.free(r, cost) - s.ahead - now
	}
}
