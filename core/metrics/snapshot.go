package metrics

import (
	"cmp"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A Snapshot is all that a [Metrics] has counted, sorted by the labels.
type Snapshot struct {
	Decisions []Decisions
	Near      []Near
	Store     Histogram // how long the store took to answer; a memorystore alone is not timed
	Down      bool      // whether a store is down
	Waiting   []Waiting // calls of Wait under way, held requests included
	Wait      Histogram // how long calls of Wait took

	// The keys of the memorystores and their bounds, added up; 0 if there is none.
	MemoryKeys, MemoryKeysMax int

	Leases Leases
	Plans  Plans

	Refused []RefusedUser // the most refused users: see Options.ExportRefused
}

// Leases counts the units of leased limits: those that the stores have taken in advance, those that
// they have given back, and those that were lost because a store could not give them back. See
// core.Limit.Leased.
type Leases struct{ Taken, Returned, Lost uint64 }

// Decisions is the number of decisions with these labels.
type Decisions struct {
	Action, Limit, Outcome, Source string
	Count                          uint64
}

// Near is the number of actions that a shadow limit would have allowed, with a fifth of its quota
// or less left.
type Near struct {
	Action, Limit string
	Count         uint64
}

// Waiting is the number of calls that wait for an action at present.
type Waiting struct {
	Action string
	Calls  int64
}

// A Histogram counts times.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets []Bucket

	// Exponential has the same measurements in finer buckets, those of a native histogram of
	// Prometheus with schema 2. Exponential[i] counts calls that took more than 2^((i-1)/4) and up
	// to 2^(i/4) seconds. Calls that took less than a microsecond are in Exponential[-80].
	Exponential map[int]int64
}

// A Bucket counts the calls that took at most UpTo.
type Bucket struct {
	UpTo  time.Duration
	Count uint64
}

// Snapshot reads all counts. Decisions may be counted while it reads, so two counts may be of
// slightly different instants.
func (m *Metrics) Snapshot() Snapshot {
	s := Snapshot{Store: m.answers.snapshot(), Wait: m.waits.snapshot(), Plans: m.inForce()}
	if n := m.options.ExportRefused; n > 0 {
		s.Refused = m.MostRefused(n).Users
	}
	for _, v := range m.pairs.Range {
		x := v.(*series)
		for o, word := range outcomes {
			for _, source := range sources {
				if n := x.counts[o][source].Load(); n > 0 {
					s.Decisions = append(s.Decisions, Decisions{x.action, x.limit, word, source.String(), n})
				}
			}
		}
		if n := x.near.Load(); n > 0 {
			s.Near = append(s.Near, Near{x.action, x.limit, n})
		}
	}
	for action, g := range m.waiting.Range {
		s.Waiting = append(s.Waiting, Waiting{action.(string), g.(*atomic.Int64).Load()})
	}
	slices.SortFunc(s.Decisions, func(a, b Decisions) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Source, b.Source))
	})
	slices.SortFunc(s.Near, func(a, b Near) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Limit, b.Limit))
	})
	slices.SortFunc(s.Waiting, func(a, b Waiting) int { return cmp.Compare(a.Action, b.Action) })
	m.stores(&s)
	return s
}

// stores reads the stores, each once even if it is watched twice.
func (m *Metrics) stores(s *Snapshot) {
	m.mu.Lock()
	watched := slices.Clone(m.watched)
	m.mu.Unlock()
	seen := map[core.Store]bool{}
	for _, w := range watched {
		s.Down = s.Down || w.down()
		for store := range core.Stores(w.store) {
			if reflect.ValueOf(store).Comparable() {
				if seen[store] {
					continue
				}
				seen[store] = true
			}
			if x, ok := store.(core.Sized); ok {
				keys, maxKeys := x.Len()
				s.MemoryKeys, s.MemoryKeysMax = s.MemoryKeys+keys, s.MemoryKeysMax+maxKeys
			}
			if x, ok := store.(core.Leaser); ok {
				taken, returned, lost := x.Leases()
				s.Leases.Taken, s.Leases.Returned, s.Leases.Lost = s.Leases.Taken+taken, s.Leases.Returned+returned, s.Leases.Lost+lost
			}
		}
	}
}
