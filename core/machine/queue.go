package machine

// The queue of instants that a Trail is. log.lua and ring.lua keep theirs in Redis, and have functions of
// other names: trail.lua lists them. At is entry there, counted from the newest, dead is live, and push and
// drop are part of save.

import "slices"

// A trail holds up to few entries itself. A longer one has a block, which is compacted when
// it is full. One of more than oneBlock entries has blocks of chunk entries, so that no charge
// copies a long queue.
const (
	few      = 5
	chunk    = 128
	oneBlock = 3900 // such a block just fits the allocator's largest class, 32 KiB
)

// Trail is the state of a SlidingWindow or MovingWindow: the instants of the last
// actions, oldest first. It holds up to 5 instants itself. More are in blocks that a copy of
// the Trail shares. A full trail takes 8 to 9 bytes per instant. A growing one takes at most 17,
// at most 13 from 640 instants, and at most 9 from 4,000.
type Trail struct {
	base   int64 // added to every entry, so that all can be moved at once
	n      int32
	head   int32      // the index of the oldest entry in the first block
	blocks *[][]int64 // the entries, if not nil
	few    [few]int64 // the entries, if blocks is nil
}

func (*Trail) form() Form { return FormTrail }

// Len is how many entries are kept, including those older than the period.
func (t *Trail) Len() int { return int(t.n) }

// At is the i-th entry, the oldest being the 0th, in microseconds on the store's
// clock.
func (t *Trail) At(i int) int64 { return t.base + *t.entry(i) }

func (t *Trail) newest() int64 {
	if t.n == 0 {
		return 0
	}
	return t.At(int(t.n) - 1)
}

// push adds an entry. most is how many entries the trail will usually have at most.
func (t *Trail) push(at int64, most int) {
	at -= t.base
	switch {
	case t.blocks != nil:
		last := &(*t.blocks)[len(*t.blocks)-1]
		if len(*last) == cap(*last) {
			last = t.extend(most)
		}
		*last = append(*last, at)
	case t.n < few:
		t.few[t.n] = at
	default:
		t.blocks = &[][]int64{append(t.larger(t.few[:], most), at)}
	}
	t.n++
}

// larger returns a copy of a block of fewer than oneBlock entries with room for more.
func (t *Trail) larger(entries []int64, most int) []int64 {
	size := len(entries) * 2
	if len(entries) > 500 { // half as much more, to save memory at no measurable cost
		size = min(len(entries)*3/2, oneBlock)
	}
	if most < size {
		size = max(most, len(entries)) // a limiter with a higher max may have written them
		size += size/64 + 1
	}
	return append(slices.Grow([]int64(nil), size), entries...)
}

// extend makes room in the last block, or adds one.
func (t *Trail) extend(most int) *[]int64 {
	blocks := *t.blocks
	first, head := &blocks[0], int(t.head)
	switch {
	case len(blocks) > 1 || t.n >= oneBlock:
		if len(blocks) == 1 {
			blocks = t.split()
			*t.blocks = blocks
			if last := &blocks[len(blocks)-1]; len(*last) < chunk {
				return last
			}
		}
		*t.blocks = append(blocks, make([]int64, 0, chunk))
	case head > 0 && head*66 >= len(*first):
		*first = (*first)[:copy(*first, (*first)[head:])]
		t.head = 0
	default:
		*first, t.head = t.larger((*first)[head:], most), 0
	}
	return &(*t.blocks)[len(*t.blocks)-1]
}

// split turns one block into chunks.
func (t *Trail) split() (blocks [][]int64) {
	for part := range slices.Chunk((*t.blocks)[0][t.head:], chunk) {
		blocks = append(blocks, append(make([]int64, 0, chunk), part...))
	}
	t.head = 0
	return blocks
}

// drop removes the k oldest entries.
func (t *Trail) drop(k int) {
	if k == 0 {
		return
	}
	t.n -= int32(k)
	switch {
	case t.blocks == nil:
		copy(t.few[:], t.few[k:])
	case t.n == 0 && len(*t.blocks) > 1:
		t.blocks, t.head = nil, 0
	case t.n == 0:
		(*t.blocks)[0], t.head = (*t.blocks)[0][:0], 0
	default:
		for t.head += int32(k); len(*t.blocks) > 1 && t.head >= chunk; t.head -= chunk {
			(*t.blocks)[0] = nil
			*t.blocks = (*t.blocks)[1:]
		}
	}
}

// dead is how many entries are at or before the instant at. Usually that is few or
// all, so the search starts at the oldest and doubles its step.
func (t *Trail) dead(at int64) int {
	n := int(t.n)
	if n == 0 || t.At(0) > at {
		return 0
	}
	low, high := 0, 1 // At(low) <= at
	for high < n && t.At(high) <= at {
		low, high = high, high*2
	}
	high = min(high, n)
	for high-low > 1 {
		if mid := int(uint(low+high) / 2); t.At(mid) <= at {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// remove removes the entries from from to just before to.
func (t *Trail) remove(from, to int) {
	for i := to; i < int(t.n); i++ {
		*t.entry(i - (to - from)) = *t.entry(i)
	}
	for range to - from {
		t.pop()
	}
}

func (t *Trail) entry(i int) *int64 {
	if t.blocks == nil {
		return &t.few[i]
	}
	i += int(t.head)
	if len(*t.blocks) == 1 {
		return &(*t.blocks)[0][i]
	}
	return &(*t.blocks)[i/chunk][i%chunk]
}

// pop removes the newest entry.
func (t *Trail) pop() {
	if t.n == 1 {
		t.drop(1)
		return
	}
	t.n--
	if t.blocks == nil {
		return
	}
	blocks := *t.blocks
	last := &blocks[len(blocks)-1]
	if *last = (*last)[:len(*last)-1]; len(*last) == 0 {
		*t.blocks = blocks[:len(blocks)-1]
	}
}
