package memorystore

import (
	"sync"

	"github.com/tailcut/tailcut/core/machine"
)

// A shard holds the states of some users. All decisions read its first cache line, and those
// of windows the second one.
type shard struct {
	mu      sync.Mutex
	keys    table
	shared  map[overflowKey]overflow
	windows table           // of the rules that have trails
	states  []machine.State // for scratch
	places  []place
}

// scratch returns zero states and places for a charge of n limits. They are valid until the lock is
// released.
func (sh *shard) scratch(n int) ([]machine.State, []place) {
	if cap(sh.states) < n {
		sh.states, sh.places = make([]machine.State, n), make([]place, n)
	}
	states, places := sh.states[:n], sh.places[:n]
	clear(states)
	clear(places)
	return states, places
}

// table returns the table that has the states of a rule.
func (sh *shard) table(r *machine.Rule) *table {
	if r.Kind.Form() == machine.FormTrail {
		return &sh.windows
	}
	return &sh.keys
}
