package gate

// What the client is told: the decision, or of a store that has failed, that there is room again soon.

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
)

const (
	// retrySeconds is the Retry-After of a store failure.
	retrySeconds = 1

	// soon is when a slot of InFlight may be free again. Nobody knows when: the actions that have the
	// slots may take much less time than their leases.
	soon = time.Second
)

// A told is what of a decision the headers and the problem say.
type told struct {
	allowed                bool
	reason                 core.Reason
	limit, remaining       int
	retryAfter, resetAfter time.Duration
	subject, binding       int
	bound                  *core.Limit // the limit that binds, or nil if it is not known
	whose                  string      // of several subjects, the action of the one that binds
}

// reset is when the limit is whole again, in seconds since 1970 or from now. Seconds since 1970 are by the process's
// clock, as in the Date header. Now is a little later than the decision, so a boundary of a calendar, a whole second,
// would be rounded up to the next one.
func (t *told) reset(since1970 bool) int64 {
	if !since1970 {
		return secondsUp(0, t.resetAfter)
	}
	now := time.Now()
	if t.bound != nil {
		start, end := t.bound.PeriodAt(now)                   // zero for other limits than a CalendarWindow
		for _, boundary := range [...]time.Time{start, end} { // start, if it has passed since the decision
			if late := now.Add(t.resetAfter).Sub(boundary); late >= 0 && late < time.Second {
				return boundary.Unix()
			}
		}
	}
	return secondsUp(now.UnixNano(), t.resetAfter)
}

// tell returns what the client is told of the decision. If the store has failed, the client is told of the
// first limit with nothing left. If InFlight binds, the client is told to look again soon: a client that
// waits for the end of a lease would waste the slots that are released before.
//
// If waits are spread, they are longer by whole seconds, up to a tenth of the wait: see spread.
//
// p is the policy of the limiter that usually decides.
func (a *attempt) tell(p *policy, spreads bool) told {
	d := &a.decision
	t := told{d.Allowed, d.Reason, d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter, d.Subject, d.Binding, a.binding(p), ""}
	if a.further != nil {
		t.whose = a.bound().action
	}
	switch {
	case a.failure != nil && a.failure.down():
		const retry = retrySeconds * time.Second
		t.limit, t.retryAfter, t.resetAfter = a.limiter.Limits()[0].Quota(), retry, retry
	case a.lease != 0 && a.slotBinds(p):
		t.resetAfter = soon
		if !t.allowed {
			t.retryAfter = soon
		}
	case spreads && !t.allowed && t.retryAfter != core.Never:
		t.retryAfter += min(spread(a.user, d.RetryAfter), core.Never-1-d.RetryAfter)
		t.resetAfter = max(d.ResetAfter, t.retryAfter)
	}
	return t
}

// spread returns by how many seconds a wait is told longer, from 0 to a tenth of it. Of the refusals of a user each of
// these seconds gets about as many: their shares are multiples of the golden ratio, which never come close to
// each other. A wait that is rounded up to a second is no longer than it would be.
//
// Users begin at different shares. Without the seed, who sees the waits of a user could tell which user it is.
func spread(user string, wait time.Duration) time.Duration {
	const golden = 0x9e3779b97f4a7c15 // of 2^64
	hash := maphash.String(spreadSeed, user)
	share := hash + spreadOf[hash%uint64(len(spreadOf))].Add(1)*golden
	second, _ := bits.Mul64(share, uint64(wait/10/time.Second)+1)
	return time.Duration(second) * time.Second
}

var (
	spreadSeed = maphash.MakeSeed()
	spreadOf   [1024]atomic.Uint64 // how many refusals the users of a class had
)

// slotBinds reports whether the binding limit is InFlight.
func (a *attempt) slotBinds(p *policy) bool {
	if d := &a.decision; d.Allowed {
		p = a.policy(p)
		return p.limits[p.bound(d.Subject, d.Binding)].TakesSlots()
	}
	return a.decision.Reason == core.ReasonInFlight
}
