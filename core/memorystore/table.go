package memorystore

// A shard of the store, its table of keys, and how a slot of the table holds a state.

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/machine"
)

// A shard has all states of some of the users, so that one lock is enough for several limits of a
// user. It fills a cache line, so that two processors do not wait for each other if they decide
// about users of different shards.
type shard struct {
	mu   sync.Mutex
	keys table
}

// A hash identifies a user, an action, or a user's state. The seed is random, so that a client
// cannot search for two users that share a state.
type hash uint64

// A table is a hash table of slots with linear probing. The hash of a key gives its first slot. If
// that slot is taken by another key, the key is in the next slot that was free. A search ends at an
// empty slot.
//
//   - When a key is removed, the keys after it move up. So no slot has to be marked as deleted.
//   - Expired keys are not removed by a timer. A full table removes all of them at once.
//   - If removing them does not make enough room, the table grows. It never shrinks.
type table struct {
	slots  []slot
	used   atomic.Int64 // the number of keys, with expired ones; other shards read it without the lock
	pool   *pool        // the data of states that do not fit into slots
	shared *table       // the states that all users without a key share, or nil: see room.go
	level  uint16       // rises as keys are dropped: see room.go
}

// A slot holds the state of one key.
type slot struct {
	key       hash   // 0 if the slot is empty
	expires   int64  // State.Expires
	protected int64  // the key is not dropped for another key before this instant
	n         uint32 // State.N, or the index of State.Data in the pool
	hasData   bool
	level     uint16 // the level of the table when the state was written, plus the part of the quota that was used: see room.go
}

// A pool has the Data of the states of a table.
type pool struct {
	all  []machine.Data
	free []uint32 // indices
}

// search returns the position of a key. If the key is not found, at is the empty slot that ended
// the search.
func (t *table) search(h hash) (at int, found bool) {
	for at = t.home(h); ; at = t.next(at) {
		switch t.slots[at].key {
		case h:
			return at, true
		case 0:
			return at, false
		}
	}
}

func (t *table) home(h hash) int {
	at, _ := bits.Mul64(uint64(h), uint64(len(t.slots)))
	return int(at)
}

func (t *table) next(at int) int {
	if at++; at < len(t.slots) {
		return at
	}
	return 0
}

// load returns the state of a slot. If the state has expired, the machine may use the memory of its
// Data again.
func (t *table) load(s *slot) machine.State {
	if s.hasData {
		return machine.State{Expires: s.expires, Data: t.pool.all[s.n]}
	}
	return machine.State{Expires: s.expires, N: s.n}
}

// store writes a state to its slot.
func (t *table) store(s *slot, state *machine.State) {
	s.expires = state.Expires
	switch {
	case state.Data == nil:
		t.pool.release(s)
		s.n = state.N
		return
	case !s.hasData:
		s.n, s.hasData = t.pool.place(), true
	}
	t.pool.all[s.n] = state.Data
}

// The load of a table, in percent of its slots. With these loads searches are short, and a key of a
// large table takes 40 to 50 bytes.
const (
	minSlots = 8
	maxLoad  = 80 // a table that is fuller removes its expired keys
	fullLoad = 70 // a table that is still fuller then grows
	growLoad = 66 // the load of a table that has grown
)

// empty has the slots of a table without keys. It counts as full, so no key is written to it.
var empty [1]slot

// insert makes a slot for a new key. removed is the number of expired keys that it has removed.
func (t *table) insert(h hash, now int64) (at int, removed int64) {
	if used, n := t.used.Load(), int64(len(t.slots)); (used+1)*100 > n*maxLoad {
		t.clean(now)
		removed = used - t.used.Load()
		if (used-removed)*100 > n*fullLoad || n < minSlots {
			t.grow()
		}
	}
	at, _ = t.search(h)
	t.slots[at].key = h
	t.used.Add(1)
	return at, removed
}

// remove removes the key of a slot. The keys after it move up into the free slot, except keys whose
// search begins after that slot.
func (t *table) remove(at int) {
	t.pool.release(&t.slots[at])
	t.used.Add(-1)
	n := len(t.slots)
	for i := t.next(at); t.slots[i].key != 0; i = t.next(i) {
		if fromHome := i - t.home(t.slots[i].key); (fromHome+n)%n >= (i-at+n)%n {
			t.slots[at] = t.slots[i]
			at = i
		}
	}
	t.slots[at] = slot{}
}

// clean removes the expired keys.
func (t *table) clean(now int64) {
	for at := 0; at < len(t.slots); {
		if s := &t.slots[at]; s.key != 0 && s.expires <= now {
			t.remove(at) // another key may have moved here
		} else {
			at++
		}
	}
}

// grow moves the keys to a larger slice of slots.
func (t *table) grow() {
	from := t.slots
	t.slots = make([]slot, max(minSlots, (t.used.Load()+1)*100/growLoad))
	for i := range from {
		if h := from[i].key; h != 0 {
			at, _ := t.search(h)
			t.slots[at] = from[i]
		}
	}
	if t.pool == nil {
		t.pool = new(pool)
	}
}

// place returns a free index.
func (p *pool) place() (i uint32) {
	if n := len(p.free); n > 0 {
		i = p.free[n-1]
		p.free = p.free[:n-1]
		return i
	}
	p.all = append(p.all, nil)
	return uint32(len(p.all) - 1)
}

// release frees the index of a slot's Data.
func (p *pool) release(s *slot) {
	if s.hasData {
		p.all[s.n], s.hasData = nil, false
		p.free = append(p.free, s.n)
	}
}
