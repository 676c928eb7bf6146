package metrics

import (
	"cmp"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

// A Snapshot has the counts of a [Metrics]. Decisions, Near and Waiting are sorted by their labels.
type Snapshot struct {
	Decisions []Decisions
	Near      []Near
	Store     Histogram // how long the stores took to decide; errors, and decisions of a memorystore, are not timed
	Down      bool      // a store is down
	Waiting   []Waiting // calls of Wait in progress, and requests that the middleware holds
	Wait      Histogram // how long those calls took

	// MemoryKeys is the number of keys in all watched memorystores. MemoryKeysMax is the sum of the
	// most keys that each may hold. Both are 0 if no memorystore is watched.
	MemoryKeys, MemoryKeysMax int

	Leases Leases
	Plans  Plans

	Refused []RefusedUser // the users with the most refusals: see Options.ExportRefused
}

// Leases counts units of limits with core.Limit.Leased: the units that stores have taken in
// advance, the units that they have given back, and the units that were lost, for example because a
// store could not give them back.
type Leases struct{ Taken, Returned, Lost uint64 }

// Decisions is the number of decisions with these label values.
type Decisions struct {
	Action, Limit, Outcome, Source string
	Count                          uint64
}

// Near counts the near misses of a shadow limit. A near miss is an action that the limit would have
// allowed, and that leaves a fifth of the quota or less.
type Near struct {
	Action, Limit string
	Count         uint64
}

// Waiting is the number of calls that wait for an action now.
type Waiting struct {
	Action string
	Calls  int64
}

// A Histogram counts durations.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets []Bucket

	// Exponential counts the same durations in finer buckets: those of a native histogram of
	// Prometheus with schema 2. Exponential[i] counts durations from 2^((i-1)/4) seconds,
	// exclusive, to 2^(i/4) seconds, inclusive. Exponential[-80] also counts all shorter durations.
	Exponential map[int]int64
}

// A Bucket counts the durations of at most UpTo.
type Bucket struct {
	UpTo  time.Duration
	Count uint64
}

// Snapshot returns all counts. It does not stop the counting, so two counts may be from slightly
// different instants.
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

// stores adds the numbers of the watched stores to a snapshot. It counts a store once, even if the
// store is watched twice.
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
