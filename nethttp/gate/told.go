package gate

// What the client is told: the decision, or of a store that has failed, that there is room again soon.

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
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
// If the wait is spread, it is longer by a part that is always the same for the user in this process. So
// of two refusals the later one tells the user no later time.
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
		told.RetryAfter += min(time.Duration(spread(a.user)*float64(d.RetryAfter)), core.Never-1-d.RetryAfter)
		told.ResetAfter = max(d.ResetAfter, told.RetryAfter)
		return &told
	}
	return d
}

// spread returns the user's share of a wait, up to a tenth. Without the key, who sees the waits of a user
// could tell which user it is.
func spread(user string) float64 {
	mac := hmac.New(sha256.New, spreadKey[:])
	mac.Write([]byte(user))
	return float64(binary.BigEndian.Uint32(mac.Sum(nil))) / (1 << 32) / 10
}

var spreadKey = func() (key [32]byte) {
	_, _ = rand.Read(key[:]) // it never fails
	return key
}()

// slotBinds reports whether the binding limit is InFlight.
func (a *attempt) slotBinds(p *policy) bool {
	if !a.decision.Allowed {
		return a.decision.Reason == core.ReasonInFlight
	}
	p = p.of(a)
	return p.limits[p.binding(&a.decision)].Rule().TakesSlots()
}
