package memorystore

// A slot of a table: how it holds a state, there or in an arena.

import "github.com/tailcut/tailcut/core/machine"

// A slot holds the state of one key: itself, if [machine.Rule.Pack] makes a number of the state, or else in
// an arena.
type slot struct {
	key       hash   // 0: the slot is empty
	expires   int64  // Rule.Expires
	protected int64  // the key is not dropped for another one before this instant
	value     uint32 // what Pack has made of the state, or an index in an arena
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
	switch s.form {
	case inSlot:
		r.Unpack(st, s.expires, s.value)
	case inTrails:
		st.Trail = *t.arenas.trails.at(s.value)
	case inOthers:
		o := t.arenas.others.at(s.value)
		st.Meter, st.Other = o.meter, o.other
	}
}

// store writes a state to its slot.
func (t *table) store(s *slot, r *machine.Rule, st *machine.State) {
	s.expires = r.Expires(st)
	s.protect(r.Refuses(st))
	value, packed := r.Pack(st)
	switch {
	case packed:
		t.arenas.release(s)
		s.value = value
	case st.Trail.Len() > 0:
		put(&t.arenas.trails, s, inTrails, st.Trail)
	default:
		put(&t.arenas.others, s, inOthers, other{st.Meter, st.Other})
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
