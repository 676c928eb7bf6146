package memorystore

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// A table is a hash table of slots with linear probing: the hash names the home of a key, and
// the key is there or in the first cell after it that was free. An empty cell ends a search.
//
//   - A removed key leaves no mark: the keys after it move up.
//   - No timer removes an expired key. Its user uses it again, or new keys overwrite or
//     remove it.
//   - A full table drops expired keys. It grows if that is not enough. It never shrinks.
//
// A cell is one slot: see slot.go. In a wide table it is two, and the second one holds the
// words of a trail, so that the key and its trail are one cache line.
//
// All methods need the shard's lock, but for unlocked: see word.go.
type table struct {
	wide   int // 1 in a wide table, else 0: a cell is 1<<wide slots
	slots  []slot
	size   atomic.Int64         // size and first are the length and the start of slots, for
	first  atomic.Pointer[slot] // swap
	used   int                  // keys, expired ones too
	cursor int                  // the next slot that sweep looks at
	arenas *arenas              // what does not fit into slots; nil until needed
}

// The load, in percent of the cells, keeps a key at 40 to 52 bytes, twice that in a wide
// table, and searches short.
const (
	minCells = 8
	maxLoad  = 80 // a fuller table drops expired keys
	fullLoad = 70 // if it is fuller than this after that, it grows
	growLoad = 63 // to this load
)

// empty is a table without keys. It counts as full, so no key is written to it.
var empty [2]slot

// setSlots gives the table its slots. Tables only grow, so a reader without the lock that
// loads the size first never reads past the end.
func (t *table) setSlots(slots []slot) {
	t.slots = slots
	t.first.Store(&slots[0])
	t.size.Store(int64(len(slots)))
}

// unlocked is the slots for a reader that does not hold the lock.
func (t *table) unlocked() []slot {
	size := t.size.Load()
	return unsafe.Slice(t.first.Load(), size)
}

// cells is how many keys the slots would hold if they were full.
func (t *table) cells() int { return len(t.slots) >> t.wide }

func home(h hash, slots []slot, wide int) int {
	cell, _ := bits.Mul64(uint64(h), uint64(len(slots)>>wide))
	return int(cell << wide)
}

func (t *table) next(i int) int {
	if i += 1 << t.wide; i < len(t.slots) {
		return i
	}
	return 0
}

// search returns where a key is. If it is not found, at is the empty cell that ended the
// search.
func search(h hash, slots []slot, wide int) (at int, found bool) {
	i := home(h, slots, wide)
	for range len(slots) >> wide {
		switch slots[i].key() {
		case h:
			return i, true
		case 0:
			return i, false
		}
		if i += 1 << wide; i == len(slots) {
			i = 0
		}
	}
	return i, false // only without the lock: a table has empty cells
}

// slotFor returns the slot for a new key: the first one, from its home, that is empty or has
// expired.
func (t *table) slotFor(h hash, places []place, now int64) int {
	i := home(h, t.slots, t.wide)
	for t.slots[i].key() != 0 && !t.expired(i, places, now) {
		i = t.next(i)
	}
	return i
}

// expired reports whether the slot at i may be used for another key. The slots of places may
// not: the charge may be about to write them.
func (t *table) expired(i int, places []place, now int64) bool {
	s := &t.slots[i]
	if s.key() == 0 || s.until() > now || contains(places, s.key()) {
		return false
	}
	return true
}

func contains(places []place, h hash) bool {
	for i := range places {
		if places[i].key == h {
			return true
		}
	}
	return false
}

// insert makes a slot for a new key.
func (t *table) insert(h hash, places []place, now int64) (at int) {
	t.sweep(places, now)
	at = t.slotFor(h, places, now)
	if size := t.cells(); t.slots[at].key() == 0 && (t.used+1)*100 > size*maxLoad {
		t.clean(places, now)
		if t.used*100 > size*fullLoad || size < minCells {
			t.grow()
		}
		at = t.slotFor(h, places, now)
	}
	s := &t.slots[at]
	if s.key() != 0 {
		t.release(s)
	} else {
		t.used++
	}
	s.clear(h)
	return at
}

// remove removes the key at i. A key after it moves up if its home is not after i.
func (t *table) remove(i int) {
	t.release(&t.slots[i])
	t.used--
	n := len(t.slots)
	for j := t.next(i); t.slots[j].key() != 0; j = t.next(j) {
		if fromHome := j - home(t.slots[j].key(), t.slots, t.wide); (fromHome+n)%n >= (j-i+n)%n {
			move(t.slots[j:], t.slots[i:], t.wide)
			i = j
		}
	}
	t.slots[i].clear(0)
}

// clean removes the expired keys.
func (t *table) clean(places []place, now int64) {
	for i := 0; i < len(t.slots); {
		if t.expired(i, places, now) {
			t.remove(i) // another key may have moved here
		} else {
			i += 1 << t.wide
		}
	}
}

// grow moves the keys to more slots.
func (t *table) grow() {
	from, to := t.slots, make([]slot, max(minCells, (t.used+1)*100/growLoad)<<t.wide)
	for i := 0; i < len(from); i += 1 << t.wide {
		if h := from[i].key(); h != 0 {
			at, _ := search(h, to, t.wide)
			move(from[i:], to[at:], t.wide)
		}
	}
	t.setSlots(to)
	t.cursor = 0
}

// sweep looks at one cell for each new key, and removes the key if it has expired and holds
// memory in an arena.
func (t *table) sweep(places []place, now int64) {
	if t.arenas == nil {
		return
	}
	if word := t.slots[t.cursor].word.Load(); word&tags != 0 && t.expired(t.cursor, places, now) {
		t.remove(t.cursor)
	} else {
		t.cursor = t.next(t.cursor)
	}
}
