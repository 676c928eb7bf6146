package memorystore

// States that users without a key share, while a store is full of refused keys. Together they may
// do what one user may. So a flood of keys does not lock out new users.

import (
	"slices"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// sharable reports whether shared states may decide a charge. They cannot hold the ban or the debt of
// one user.
func sharable(c *core.Charge) bool { return c.Ban == 0 && c.Mode != machine.ModeOwe }

// share has the shared state of the i-th place's limit decide instead of the user's own. It returns
// false if that state decides for another place of the charge: it cannot be charged twice at once.
func (s *Store) share(st *step, i int) bool {
	p := &st.places[i]
	if p.in.shared == nil {
		p.in.shared = &table{slots: empty[:]}
	}
	in, its := p.in.shared, key(0, 1, p.limit)
	if slices.ContainsFunc(st.places, func(o place) bool { return o.in == in && o.key == its }) {
		return false
	}
	p.in, p.key, p.shared = in, its, true
	st.states[i] = machine.State{}
	s.load(p, &st.states[i], st.now)
	return true
}

// sharedWait is how long the shared states refuse a charge.
func (st *step) sharedWait(c *core.Charge) (wait int64) {
	for i := range st.places {
		if p, state := &st.places[i], &st.states[i]; p.shared && !state.Fits {
			wait = max(wait, p.limit.Rule().Read(state, st.now, &c.Ask).Wait)
		}
	}
	return wait
}
