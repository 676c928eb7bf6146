package core

import (
	"math"
	"slices"
)

// A Trail of up to long entries is one block, from which what is dead is moved out
// when it is full; a longer one is blocks of chunk entries, so that no charge ever
// copies a long queue.
const (
	chunk = 128
	long  = 3900 // such a block just fits the allocator's largest class, 32 KiB
)

// Trail is the state of a SlidingWindow or MovingWindow: the instants of the last
// actions, oldest first, 8 bytes each and little more.
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

// free is the instant from which the limit has room for cost: when the entry
// leaves that is the one too many.
func (t *Trail) free(l *Limit, cost int64) int64 {
	over := int64(t.n) - (int64(l.max) - cost) - 1
	if over < 0 {
		return math.MinInt64 / 2 // long ago
	}
	return t.At(int(over)) + l.span
}

// fitsTrail looks at one entry: the one that would be one too many.
func (l *Limit) fitsTrail(s *State, now int64, c *Charge) bool {
	s.shift = 0
	if !s.Kept || s.Trail.Len() == 0 {
		return c.Force || c.Cost <= int64(l.max)
	}
	if ahead := s.Trail.newest() - now; ahead > 0 { // the clock stepped back
		s.shift = ahead
	}
	return c.Force || c.Cost <= int64(l.max) && s.Trail.free(l, c.Cost)-s.shift <= now
}

// chargeTrail writes cost entries, admitted ones or, with CountRefused, refused
// ones, and drops those that no longer count. Of refused ones the newest max
// stay, or as many as counted before, if a larger limit put them there.
func (l *Limit) chargeTrail(s *State, now, cost int64) {
	if s.Trail == nil {
		s.Trail = new(Trail)
	}
	t := s.Trail
	t.base -= s.shift
	s.shift = 0
	t.drop(t.dead(now - l.span))
	keep := max(l.max, t.n)
	for range cost {
		t.push(now, l.max)
	}
	if t.n > keep {
		t.drop(t.n - keep)
	}
}

// readTrail counts what is within the period.
func (l *Limit) readTrail(r *Reading, s *State, now, cost int64) {
	if !s.Kept || s.Trail.Len() == 0 {
		return
	}
	t := s.Trail
	r.Count = int64(t.n - t.dead(now-l.span+s.shift))
	if r.Count == 0 {
		return
	}
	r.Rest = t.newest() - s.shift + l.span - now
	if cost <= int64(l.max) {
		r.Wait = t.free(l, cost) - s.shift - now
	}
}
