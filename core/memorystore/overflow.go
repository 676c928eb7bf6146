package memorystore

// New users in a store that is full of refused keys.

import (
	"maps"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
)

// makeRoom finds room for the new keys of a charge that all limits admit. If there is no
// room for a limit, the state that new users share decides. If that refuses, or may not be
// used, makeRoom returns how long the caller should wait.
func (s *Store) makeRoom(c *core.Charge, sh *shard, states []machine.State, places []place, now int64) (wait int64) {
	missing, shares := 0, -1
	for i := range places {
		if places[i].found || !required(c, i) {
			continue
		}
		missing++
		if c.Mode == machine.Peek && s.roomFor(sh, places, i, missing, now) || c.Mode != machine.Peek && s.reserve(sh, places, i, now) {
			continue
		}
		shares = i
		if c.Ban > 0 {
			break // a shared state cannot hold the ban of one user
		}
		sh.loadShared(&c.Limits[i], &states[i], now)
		places[i].shared = true
	}
	if shares < 0 {
		return 0
	}
	c.Ahead = 0 // no turns are reserved in a shared state
	if c.Ban == 0 && c.Check(states, now) {
		return 0
	}
	s.cancel(places)
	for i := range places {
		if r := c.Limits[i].Rule(); places[i].shared && !states[i].Fits {
			v := r.Read(&states[i], now, c.Ask)
			wait = max(wait, r.RetryAfter(&v, c.Cost))
		}
	}
	if wait == 0 {
		wait = longestWait
	}
	return max(1, min(wait, sh.nextFree(places, shares, now)-now, longestWait))
}

// longestWait is the longest RetryAfter for a user without a key, in microseconds.
const longestWait = 60e6

// An overflow is the state of one limit that all users of a shard without a key share.
// Together they may do what one user may. An overflow is never evicted.
type overflow struct {
	state   machine.State
	expires int64
}

// An overflowKey is a limit, whatever the user and the action: their number is bounded by
// the program's limits, and not by what clients send.
type overflowKey struct {
	limit      uint64
	allActions bool
}

func (sh *shard) loadShared(l *core.Limit, st *machine.State, now int64) {
	if kept := sh.shared[overflowKey{l.Rule().Hash, l.IsPerUser()}]; kept.expires > now {
		*st = kept.state
	}
}

func (sh *shard) keepShared(l *core.Limit, st *machine.State, now int64) {
	if sh.shared == nil {
		sh.shared = map[overflowKey]overflow{}
	}
	maps.DeleteFunc(sh.shared, func(_ overflowKey, kept overflow) bool { return kept.expires <= now })
	sh.shared[overflowKey{l.Rule().Hash, l.IsPerUser()}] = overflow{*st, l.Rule().Expires(st)}
}

// full is the refusal of a charge if there is no room for its keys.
func full(c core.Charge, wait int64) core.Decision {
	d := time.Duration(max(1, wait)) * time.Microsecond
	return core.Decision{Limit: c.Limits[0].Quota(), RetryAfter: d, ResetAfter: d, Reason: core.ReasonFull, Source: core.SourceStore}
}
