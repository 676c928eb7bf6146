package memorystore

import "github.com/tailcut/tailcut/core/machine"

// Arenas hold what does not fit into the slots of a table.
type arenas struct {
	blocks arena[machine.Blocks] // of trails
	meters arena[machine.Meter]
	bans   arena[machine.Bans]
}

// An arena holds values in pages that never move.
type arena[T any] struct {
	pages []*[page]T
	used  uint64
	free  []uint32
}

const page = 4

func (a *arena[T]) at(i uint64) *T { return &a.pages[i/page][i%page] }

func (a *arena[T]) add(v *T) (i uint64) {
	if n := len(a.free); n > 0 {
		i = uint64(a.free[n-1])
		a.free = a.free[:n-1]
	} else {
		if i = a.used; i%page == 0 {
			a.pages = append(a.pages, new([page]T))
		}
		a.used++
	}
	*a.at(i) = *v
	return i
}

func (a *arena[T]) drop(i uint64) {
	var zero T
	*a.at(i) = zero
	a.free = append(a.free, uint32(i))
}
