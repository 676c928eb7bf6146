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

// tell returns the decision as the client is told it. If the store has failed, the client is told of the
// first limit with nothing left. If InFlight binds, the client is told to look again soon: a client that
// waits for the end of a lease would waste the slots that are released before.
//
// If waits are spread, they are longer by whole seconds, up to a tenth of the wait: see spread.
//
// p is the policy of the limiter that usually decides.
func (a *attempt) tell(p *policy) *core.Decision {
	d := &a.decision
	switch {
	case a.failure != nil && a.failure.down():
		const retry = retrySeconds * time.Second
		return &core.Decision{Limit: a.limiter.Limits()[0].Quota(), RetryAfter: retry, ResetAfter: retry}
	case a.lease != 0 && a.slotBinds(p):
		told := *d
		told.ResetAfter = soon
		if !d.Allowed {
			told.RetryAfter = soon
		}
		return &told
	case a.spread && !d.Allowed && d.RetryAfter != core.Never:
		told := *d
		told.RetryAfter += min(spread(a.user, d.RetryAfter), core.Never-1-d.RetryAfter)
		told.ResetAfter = max(d.ResetAfter, told.RetryAfter)
		return &told
	}
	return d
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
	if !a.decision.Allowed {
		return a.decision.Reason == core.ReasonInFlight
	}
	p = p.of(a)
	return p.limits[p.binding(&a.decision)].Rule().TakesSlots()
}
