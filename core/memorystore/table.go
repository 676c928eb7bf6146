package memorystore

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tailcut/tailcut/core/machine"
)

// A shard is a hash table of slots with linear probing: the hash names the home slot of a
// key, and the key is there or in the first slot after it that was free. An empty slot ends a
// search.
//
//   - A removed key leaves no mark: the keys after it move up.
//   - An expired key stays, until its user uses it again or a new key takes its slot.
//   - A full table drops expired keys. It grows if that is not enough.
//
// All methods need the shard's lock, except for the commonest decision: see word.go. A
// decision touches two cache lines: the shard's and the slot's.
type shard struct {
	size   atomic.Int64         // size and first are slots, for readers that do not hold
	first  atomic.Pointer[slot] // the lock
	mu     sync.Mutex
	slots  []slot
	used   int                  // keys
	trails arena[machine.Trail] // in the shard's first cache line
	rare   *rare                // the other states that do not fit into slots; nil until needed
	cursor int                  // the next slot that sweep looks at
}

// The load, in percent of the slots, keeps a key at 40 to 52 bytes and searches short.
const (
	minSize  = 8
	maxLoad  = 80 // a fuller table drops expired keys
	growLoad = 63 // a table that is still fuller grows to this load
)

// empty is the table of a shard without keys. It counts as full, so no key is written to it.
var empty [1]slot

// setSlots gives the shard a table. Tables only grow, so a reader without the lock that
// loads the size first never reads past the end.
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

// search returns where a key is. If it is not found, at is the empty slot that ended the
// search.
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
	return i, false // only without the lock: a table has empty slots
}

// slotFor returns the slot for a new key: the first one, from its home, that is empty or has
// expired.
func (sh *shard) slotFor(h hash, places []place, now int64) int {
	i := sh.home(h)
	for sh.slots[i].key() != 0 && !sh.expired(i, places, now) {
		i = sh.next(i)
	}
	return i
}

// expired reports whether the slot at i may be used for another key. The slots of places may
// not: the charge may be about to write them.
func (sh *shard) expired(i int, places []place, now int64) bool {
	s := &sh.slots[i]
	if s.key() == 0 || s.until() > now || contains(places, s.key()) {
		return false
	}
	s.unpack()
	return s.expires <= now
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
func (sh *shard) insert(h hash, places []place, now int64) (at int) {
	sh.sweep(places, now)
	at = sh.slotFor(h, places, now)
	if sh.slots[at].key() == 0 && (sh.used+1)*100 > len(sh.slots)*maxLoad {
		sh.clean(places, now)
		if sh.used*100 > len(sh.slots)*growLoad || len(sh.slots) < minSize {
			sh.grow()
		}
		at = sh.slotFor(h, places, now)
	}
	if s := &sh.slots[at]; s.key() != 0 {
		sh.release(s.word.Load())
	} else {
		sh.used++
	}
	sh.slots[at].clear(h)
	return at
}

// remove removes the key at i. A key after it moves up if its home is not after i.
func (sh *shard) remove(i int) {
	sh.slots[i].unpack()
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

// clean removes the expired keys.
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
	slots := make([]slot, max(minSize, (sh.used+1)*100/growLoad))
	for i := range sh.slots {
		if h := sh.slots[i].key(); h != 0 {
			at, _ := search(h, slots)
			sh.slots[i].move(&slots[at])
		}
	}
	sh.setSlots(slots)
	sh.cursor = 0
}

// sweep looks at one slot for each new key, and removes it if it has expired and holds memory
// in an arena.
func (sh *shard) sweep(places []place, now int64) {
	if sh.trails.used == 0 && sh.rare == nil {
		return
	}
	if word := sh.slots[sh.cursor].word.Load(); word < tagWord && word&tags != 0 && sh.expired(sh.cursor, places, now) {
		sh.remove(sh.cursor)
	} else {
		sh.cursor = sh.next(sh.cursor)
	}
}
