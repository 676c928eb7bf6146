package machine

// The queue of instants that trail.go uses. In Redis, log.lua or ring.lua keeps the queue. Their
// function fromNewest counts from the newest entry, and the method at from the oldest. Their
// function live counts the entries after an instant, and the method dead counts the others. Their
// function save does the work of push and drop.

import "slices"

// Sizes of a queue. A queue of up to maxInline entries needs no block. A longer queue has one block
// at first. When the block is full, it is compacted or replaced by a larger one. At about oneBlock
// entries the block is split into blocks of chunk entries each. After that no charge copies all
// entries.
const (
	maxInline = 5
	chunk     = 128
	oneBlock  = 3900 // a block of so many entries just fits the allocator's largest size class, 32 KiB
)

// queue is the state of a SlidingWindow or MovingWindow: the instants of the last actions, oldest
// first. A copy of a queue shares the blocks of the original.
//
// A long queue takes 8 to 9 bytes per entry if it is full. While it grows, it takes at most 17
// bytes per entry, from 640 entries on at most 13, and from 4,000 entries on at most 9.
type queue struct {
	back   int64 // subtracted from every entry; grows when the clock steps back
	n      int32
	head   int32            // the index of the oldest entry in the first block
	blocks *[][]int64       // the entries, if not nil
	inline [maxInline]int64 // the entries, if blocks is nil
}

func (*queue) form() Form { return FormTrail }

// len returns the number of entries, including those that have left the window.
func (q *queue) len() int { return int(q.n) }

// at returns the i-th entry, in microseconds on the store's clock. The oldest entry has the index
// 0.
func (q *queue) at(i int) int64 { return *q.place(i) - q.back }

func (q *queue) newest() int64 {
	if q.n == 0 {
		return 0
	}
	return q.at(int(q.n) - 1)
}

// push adds an entry. most is the number of entries that the queue usually has at most.
func (q *queue) push(at int64, most int) {
	at += q.back
	switch {
	case q.blocks != nil:
		last := &(*q.blocks)[len(*q.blocks)-1]
		if len(*last) == cap(*last) {
			last = q.extend(most)
		}
		*last = append(*last, at)
	case q.n < maxInline:
		q.inline[q.n] = at
	default:
		q.blocks = &[][]int64{append(q.larger(q.inline[:], most), at)}
	}
	q.n++
}

// larger returns a copy of a block that has fewer than oneBlock entries. The copy has room for
// more.
func (q *queue) larger(entries []int64, most int) []int64 {
	size := len(entries) * 2
	if len(entries) > 500 { // growing by half saves memory at no measurable cost
		size = min(len(entries)*3/2, oneBlock)
	}
	if most < size {
		size = max(most, len(entries)) // a limiter with a higher max may have written more entries
		size += size/64 + 1
	}
	return append(slices.Grow([]int64(nil), size), entries...)
}

// extend makes room in the last block, or adds a block. It returns the last block.
func (q *queue) extend(most int) *[]int64 {
	blocks := *q.blocks
	if len(blocks) == 1 && q.n < oneBlock {
		block, head := &blocks[0], int(q.head)
		if head > 0 && head*66 >= len(*block) { // enough entries were dropped to compact the block
			*block = (*block)[:copy(*block, (*block)[head:])]
		} else {
			*block = q.larger((*block)[head:], most)
		}
		q.head = 0
		return block
	}
	if len(blocks) == 1 {
		blocks = q.split()
	}
	if len(blocks[len(blocks)-1]) == chunk {
		blocks = append(blocks, make([]int64, 0, chunk))
	}
	*q.blocks = blocks
	return &blocks[len(blocks)-1]
}

// split divides a single block into blocks of chunk entries.
func (q *queue) split() (blocks [][]int64) {
	for part := range slices.Chunk((*q.blocks)[0][q.head:], chunk) {
		blocks = append(blocks, append(make([]int64, 0, chunk), part...))
	}
	q.head = 0
	return blocks
}

// drop removes the k oldest entries.
func (q *queue) drop(k int) {
	if k == 0 {
		return
	}
	q.n -= int32(k)
	switch {
	case q.blocks == nil:
		copy(q.inline[:], q.inline[k:])
	case q.n == 0 && len(*q.blocks) > 1:
		q.blocks, q.head = nil, 0
	case q.n == 0:
		(*q.blocks)[0], q.head = (*q.blocks)[0][:0], 0
	default:
		for q.head += int32(k); len(*q.blocks) > 1 && q.head >= chunk; q.head -= chunk {
			(*q.blocks)[0] = nil
			*q.blocks = (*q.blocks)[1:]
		}
	}
}

// dead returns the number of entries that are not later than an instant. Usually these are few or
// all entries, so the search starts at the oldest entry and doubles its step.
func (q *queue) dead(at int64) int {
	n := int(q.n)
	if n == 0 || q.at(0) > at {
		return 0
	}
	low, high := 0, 1 // at(low) <= at
	for high < n && q.at(high) <= at {
		low, high = high, high*2
	}
	high = min(high, n)
	for high-low > 1 {
		if mid := int(uint(low+high) / 2); q.at(mid) <= at {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// remove removes the entries from index from up to, but not including, index to.
func (q *queue) remove(from, to int) {
	for i := to; i < int(q.n); i++ {
		*q.place(i - (to - from)) = *q.place(i)
	}
	for range to - from {
		q.pop()
	}
}

// place returns a pointer to the memory of the i-th entry.
func (q *queue) place(i int) *int64 {
	if q.blocks == nil {
		return &q.inline[i]
	}
	i += int(q.head)
	if len(*q.blocks) == 1 {
		return &(*q.blocks)[0][i]
	}
	return &(*q.blocks)[i/chunk][i%chunk]
}

// pop removes the newest entry.
func (q *queue) pop() {
	if q.n == 1 {
		q.drop(1)
		return
	}
	if q.n--; q.blocks == nil {
		return
	}
	blocks := *q.blocks
	last := &blocks[len(blocks)-1]
	if *last = (*last)[:len(*last)-1]; len(*last) == 0 {
		*q.blocks = blocks[:len(blocks)-1]
	}
}
