package memorystore

// The table of a shard's keys, and the slots in which it holds their states.

import (
	"math/bits"
	"sync/atomic"

	"github.com/tailcut/tailcut/core/machine"
)

// A hash identifies a user, an action, or a user's state. The seed is random, so that a client
// cannot search for two users that share a state.
type hash uint64

// A table is a hash table of slots with linear probing: the hash names the home of a key, and
// the key is there or in the first slot after it that was free. An empty slot ends a search.
//
//   - A removed key leaves no mark: the keys after it move up.
//   - No timer removes an expired key. A table that is full removes all of them.
//   - It grows if that is not enough, and never shrinks.
type table struct {
	slots  []slot
	used   atomic.Int64 // keys, expired ones too; other shards read it without the lock
	arenas *arenas      // what does not fit into slots
	shared *table       // the states that users without a key share, or nil: see room.go
}

// The load, in percent of the slots, keeps a key at 40 to 50 bytes and searches short.
const (
	minSlots = 8
	maxLoad  = 80 // a fuller table removes expired keys
	fullLoad = 70 // if it is fuller than this after that, it grows
	growLoad = 66 // to this load
)

// empty is the slots of a table without keys. It counts as full, so no key is written to it.
var empty [1]slot

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

// search returns where a key is. If it is not found, at is the empty slot that ended the
// search.
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

// insert makes a slot for a new key. It returns how many expired keys it has removed.
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

// remove removes the key at a slot. A key after it moves up if its home is not after the slot.
func (t *table) remove(at int) {
	t.arenas.release(&t.slots[at])
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

// grow moves the keys to more slots.
func (t *table) grow() {
	from := t.slots
	t.slots = make([]slot, max(minSlots, (t.used.Load()+1)*100/growLoad))
	for i := range from {
		if h := from[i].key; h != 0 {
			at, _ := t.search(h)
			t.slots[at] = from[i]
		}
	}
	if t.arenas == nil {
		t.arenas = new(arenas)
	}
}

// A slot holds the state of one key. A counter, and a meter that is no more than a TAT, are in
// the slot itself. Any other state is in an arena.
type slot struct {
	key       hash   // 0: the slot is empty
	expires   int64  // Rule.Expires: a meter's TAT, rounded up; a counter's End, for a calendar plus Linger
	protected int64  // the key is not dropped for another one before this instant
	value     uint32 // a meter's Part, a counter's Count, or an index in an arena
	form      form
}

// A form says where the state of a slot is.
type form uint8

const (
	inSlot form = iota
	inTrails
	inOthers
)

// Arenas hold what does not fit into the slots of a table.
type arenas struct {
	trails arena[machine.Trail]
	others arena[other]
}

// An other is any state but a trail. Few keys have one.
type other struct {
	meter machine.Meter
	other machine.Other
}

// load fills in st, a zero State. An expired state does not exist, but a trail that has
// expired leaves its memory to the next one.
func (t *table) load(s *slot, r *machine.Rule, st *machine.State, now int64) {
	st.Exists = s.expires > now
	switch {
	case s.form == inTrails:
		st.Trail = *t.arenas.trails.at(s.value)
	case s.form == inOthers:
		o := t.arenas.others.at(s.value)
		st.Meter, st.Other = o.meter, o.other
	case r.Kind.Form() == machine.FormMeter:
		st.Meter.TAT, st.Meter.Part = s.expires, s.value
		if s.value > 0 {
			st.Meter.TAT--
		}
	default:
		st.Counter = machine.Counter{Count: int64(s.value), End: s.expires}
		if r.Calendar != nil {
			st.Counter.End -= machine.Linger
		}
	}
}

// store writes a state to its slot.
func (t *table) store(s *slot, r *machine.Rule, st *machine.State) {
	s.expires = r.Expires(st)
	s.protect(r.Refuses(st))
	switch {
	case r.Kind.Form() == machine.FormTrail:
		put(&t.arenas.trails, s, inTrails, st.Trail)
	case r.ForgetAfter > 0 || st.Meter.Turns != 0 || st.Meter.Refunds != nil || st.Other != nil:
		put(&t.arenas.others, s, inOthers, other{st.Meter, st.Other})
	case r.Kind.Form() == machine.FormMeter:
		t.arenas.release(s)
		s.value = st.Meter.Part
	default:
		s.value = uint32(st.Counter.Count)
	}
}

// protect keeps the key from being dropped for another one until then.
func (s *slot) protect(until int64) { s.protected = max(s.protected, until) }

// release frees a slot's entry in an arena.
func (a *arenas) release(s *slot) {
	switch s.form {
	case inTrails:
		a.trails.drop(s.value)
	case inOthers:
		a.others.drop(s.value)
	}
	s.form = inSlot
}

// An arena holds values in pages that never move.
type arena[T any] struct {
	pages []*[page]T
	used  uint32
	free  []uint32
}

const page = 8

func (a *arena[T]) at(i uint32) *T { return &a.pages[i/page][i%page] }

// put writes the value of a slot, which has a value in the same arena or none.
func put[T any](a *arena[T], s *slot, f form, v T) {
	if s.form != f {
		s.value, s.form = a.add(), f
	}
	*a.at(s.value) = v
}

func (a *arena[T]) add() (i uint32) {
	if n := len(a.free); n > 0 {
		i = a.free[n-1]
		a.free = a.free[:n-1]
		return i
	}
	if i = a.used; i%page == 0 {
		a.pages = append(a.pages, new([page]T))
	}
	a.used++
	return i
}

func (a *arena[T]) drop(i uint32) {
	var zero T
	*a.at(i) = zero
	a.free = append(a.free, i)
}
