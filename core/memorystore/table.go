package memorystore

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tailcut/tailcut/core/machine"
)

// A shard is a hash table of slots with linear probing: a key stands at its home, which its
// hash names, or in the first slot behind it that was free. An empty slot ends a search.
//
//   - A removed key leaves no mark: the keys behind it move up.
//   - An expired key stays. Its user finds it and uses it again; or a new key that passes
//     by takes its slot over.
//   - A table that is full drops what has expired. It grows if that is not enough.
//
// Everything happens under the shard's lock, but for the commonest decision: see word.go. A
// decision touches two cache lines: the shard's and the slot's.
type shard struct {
	size   atomic.Int64         // len(slots), and the first of them, for readers that do not
	first  atomic.Pointer[slot] // hold the lock
	mu     sync.Mutex
	slots  []slot
	used   int                  // keys
	trails arena[machine.Trail] // its head is in the shard's first cache line
	rare   *rare                // what else does not fit into slots; nil until needed
	hand   int                  // the next slot that sweep looks at
}

// The bounds keep a key at 40 to 52 bytes. Searches grow with the square of what is free.
const (
	minSize = 8
	fullest = 80 // percent of the slots
	roomy   = 63 // percent of the slots, after growing; fuller than that after dropping, it grows
)

// none is the table of a shard without keys. It is full at no key, so it is never written.
var none [1]slot

// setSlots makes a table the shard's. Tables only grow, so a reader without the lock that
// takes the size first never reads behind the end.
func (sh *shard) setSlots(slots []slot) {
	sh.slots = slots
	sh.first.Store(&slots[0])
	sh.size.Store(int64(len(slots)))
}

// unlocked is the table for readers that do not hold the lock.
func (sh *shard) unlocked() []slot {
	size := sh.size.Load()
	return unsafe.Slice(sh.first.Load(), size)
}

func home(h hash, slots []slot) int {
	at, _ := bits.Mul64(uint64(h), uint64(len(slots)))
	return int(at)
}

func (sh *shard) home(h hash) int { return home(h, sh.slots) }

func (sh *shard) next(i int) int {
	if i++; i < len(sh.slots) {
		return i
	}
	return 0
}

// search returns where a key is. If it is not found, at is the empty slot behind its home.
func (sh *shard) search(h hash) (at int, found bool) {
	if at, found = search(h, sh.slots); found {
		sh.slots[at].settle()
	}
	return at, found
}

func search(h hash, slots []slot) (at int, found bool) {
	i := home(h, slots)
	for range slots {
		switch slots[i].key() {
		case h:
			return i, true
		case 0:
			return i, false
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
	return i, false // never under the lock: a table has empty slots
}

// spot returns the slot for a new key: the first from its home on that is empty or has
// expired.
func (sh *shard) spot(h hash, places []place, now int64) int {
	i := sh.home(h)
	for sh.slots[i].key() != 0 && !sh.expired(i, places, now) {
		i = sh.next(i)
	}
	return i
}

// expired reports whether the slot at i may be used for another key. The places may not:
// they may be about to be written.
func (sh *shard) expired(i int, places []place, now int64) bool {
	s := &sh.slots[i]
	if s.key() == 0 || s.until() > now || spared(places, s.key()) {
		return false
	}
	s.settle()
	return s.expires <= now
}

func spared(places []place, h hash) bool {
	for i := range places {
		if places[i].key == h {
			return true
		}
	}
	return false
}

// insert makes a slot for a new key.
func (sh *shard) insert(h hash, places []place, now int64) (at int) {
	sh.sweep(places, now)
	at = sh.spot(h, places, now)
	if sh.slots[at].key() == 0 && (sh.used+1)*100 > len(sh.slots)*fullest {
		sh.clean(places, now)
		if sh.used*100 > len(sh.slots)*roomy || len(sh.slots) < minSize {
			sh.grow()
		}
		at = sh.spot(h, places, now)
	}
	if s := &sh.slots[at]; s.key() != 0 {
		sh.release(s.word.Load())
	} else {
		sh.used++
	}
	sh.slots[at].clear(h)
	return at
}

// remove takes out the key at i. A key behind it moves up if its home is not behind i.
func (sh *shard) remove(i int) {
	sh.slots[i].settle()
	sh.release(sh.slots[i].word.Load())
	sh.used--
	n := len(sh.slots)
	for j := sh.next(i); sh.slots[j].key() != 0; j = sh.next(j) {
		if fromHome := j - sh.home(sh.slots[j].key()); (fromHome+n)%n >= (j-i+n)%n {
			sh.slots[j].move(&sh.slots[i])
			i = j
		}
	}
	sh.slots[i].clear(0)
}

// clean removes what has expired.
func (sh *shard) clean(places []place, now int64) {
	for i := 0; i < len(sh.slots); {
		if sh.expired(i, places, now) {
			sh.remove(i) // another key may have moved here
		} else {
			i++
		}
	}
}

// grow moves the keys to a larger table.
func (sh *shard) grow() {
	slots := make([]slot, max(minSize, (sh.used+1)*100/roomy))
	for i := range sh.slots {
		if h := sh.slots[i].key(); h != 0 {
			at, _ := search(h, slots)
			sh.slots[i].move(&slots[at])
		}
	}
	sh.setSlots(slots)
	sh.hand = 0
}

// sweep looks at one slot for each new key, so that a queue that nobody uses is given back.
func (sh *shard) sweep(places []place, now int64) {
	if sh.trails.used == 0 && sh.rare == nil {
		return
	}
	if word := sh.slots[sh.hand].word.Load(); word < tagWord && word&tags != 0 && sh.expired(sh.hand, places, now) {
		sh.remove(sh.hand)
	} else {
		sh.hand = sh.next(sh.hand)
	}
}
