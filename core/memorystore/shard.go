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
	windows table    // of the rules that have trails
	_       [32]byte // to whole cache lines
}

// table returns the table that has the states of a rule.
func (sh *shard) table(r *machine.Rule) *table {
	if r.Trailed() {
		return &sh.windows
	}
	return &sh.keys
}
