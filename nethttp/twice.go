package nethttp

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tailcut/tailcut/core"
)

// A request that is charged twice for the same thing, since its middleware is mounted
// twice, is told without a context or a wrapped writer: the headers of the outer one
// show the inner one that limits are stacked. Only then does it look closer: for some
// requests every gate notes what it has charged, by the header value that it has left,
// which nobody else has.
var twice struct {
	said  atomic.Bool
	left  atomic.Int64 // notes to be made
	mu    sync.Mutex
	notes map[*string]*note
}

type note struct {
	limiter      *core.Limiter
	user, action string
	outer        *note // of the same request
}

const (
	closerLooks = 100 // of each gate that finds itself inside another
	someNotes   = 64
)

// charged notes a charge, and compares it with those of the gates further out, if
// they have left a header.
func (g *Gate[C]) charged(outer, mine []string, n note) {
	twice.mu.Lock()
	defer twice.mu.Unlock()
	if len(outer) == 1 {
		n.outer = twice.notes[&outer[0]]
		if g.looks.Add(1) <= closerLooks {
			twice.left.Store(someNotes)
		}
	}
	for o := n.outer; o != nil; o = o.outer {
		if o.limiter == n.limiter && o.user == n.user && o.action == n.action && !twice.said.Swap(true) {
			slog.Default().Warn(g.adapter+": one request is charged twice, by the same limiter for the same user and action; its middleware is mounted twice, maybe on a group and on a route of it: take one away",
				"code", "charged-twice")
		}
	}
	switch {
	case twice.said.Load() || twice.left.Add(-1) < 0:
		clear(twice.notes)
		twice.left.Store(0)
		return
	case twice.notes == nil || len(twice.notes) >= someNotes:
		twice.notes = map[*string]*note{}
	}
	twice.notes[&mine[0]] = &n
}
