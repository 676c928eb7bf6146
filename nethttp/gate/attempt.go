package gate

import (
	"context"
	"errors"
	"hash/crc32"
	"net/http"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// An attempt is an action that a request asks for, and what was decided.
type attempt struct {
	adapter string
	asking  string // what is asked at present, for a failure
	part           // of the first subject
	further []part
	cost    int
	spread  bool // whether clients are told to wait for different times

	decision core.Decision // zero if there is none
	lease    time.Duration // the shortest of the subjects' slots, or 0 if none has InFlight
	failure  *Failure      // why there is none
}

// A part of an attempt is that of one subject.
type part struct {
	limiter      *core.Limiter
	user, action string
}

// fail records why there is no decision. It returns false, for a caller that stops then.
func (a *attempt) fail(status int, err error) bool {
	a.decision = core.Decision{}
	a.failure = &Failure{Status: status, Err: err, adapter: a.adapter, asking: a.asking}
	return false
}

// soon is when a slot of InFlight may be free again. Nobody knows when: the actions that have the
// slots may take much less time than their leases.
const soon = time.Second

// told is the decision as the client is told it. If InFlight binds, the client is told to look again
// soon: a client that waits for the end of a lease would waste the slots that are released before.
//
// If the wait is spread, it is longer by a part that is always the same for the user, on every
// server. So of two refusals the later one tells the user no later time.
//
// p is the policy of the limiter that usually decides, or an empty one.
func (a *attempt) told(p *policy) *core.Decision {
	d := &a.decision
	if a.lease != 0 && a.slotBinds(p) {
		slot := *d
		slot.ResetAfter = soon
		if !d.Allowed {
			slot.RetryAfter = soon
		}
		return &slot
	}
	if !a.spread || d.Allowed || d.RetryAfter == core.Never {
		return d
	}
	spread := *d
	share := float64(crc32.ChecksumIEEE([]byte(a.user))) / (1 << 32) / 10
	spread.RetryAfter += min(time.Duration(share*float64(d.RetryAfter)), core.Never-1-d.RetryAfter)
	spread.ResetAfter = max(d.ResetAfter, spread.RetryAfter)
	return &spread
}

// slotBinds reports whether the binding limit is InFlight.
func (a *attempt) slotBinds(p *policy) bool {
	if !a.decision.Allowed {
		return a.decision.Reason == core.ReasonInFlight
	}
	p = p.of(a)
	return inFlight(&p.limits[p.binding(&a.decision)])
}

// inFlight reports whether a limit counts requests at the same time.
func inFlight(l *core.Limit) bool { return l.Kind() == "inflight" }

// key reports whether a key can be used.
func (a *attempt) key(key string, err error) bool {
	if err == nil && key == "" {
		err = keyfuncs.ErrNoKey
	}
	return err == nil || a.fail(statusOf(err), err)
}

// charge charges the cost, and waits for the turn for at most that long.
func (a *attempt) charge(ctx context.Context, most time.Duration) {
	a.asking = "store"
	a.lease = a.limiter.Lease()
	for _, o := range a.further {
		if its := o.limiter.Lease(); its != 0 && (a.lease == 0 || its < a.lease) {
			a.lease = its
		}
	}
	var err error
	if most == 0 && a.further == nil {
		a.decision, err = a.limiter.AllowN(ctx, a.user, a.action, a.cost)
	} else {
		a.decision, err = a.chargeAll(ctx, most)
	}
	switch {
	case err == nil || errors.Is(err, core.ErrRefused):
	case errors.Is(err, core.ErrCost):
		a.asking = "cost"
		a.fail(http.StatusInternalServerError, err)
	case errors.Is(err, core.ErrConfig): // core.New has not made the limiter
		a.asking = "limiter"
		a.fail(http.StatusInternalServerError, err)
	default:
		a.fail(http.StatusServiceUnavailable, err)
	}
}

// parts are those of all subjects.
func (a *attempt) parts() []part { return append([]part{a.part}, a.further...) }

// chargeAll charges all subjects, or waits for their turn.
func (a *attempt) chargeAll(ctx context.Context, most time.Duration) (core.Decision, error) {
	var subjects []core.Subject
	for _, p := range a.parts() {
		subjects = append(subjects, p.limiter.For(p.user, p.action).Cost(a.cost))
	}
	if most == 0 {
		return core.All(ctx, subjects...)
	}
	return core.WaitAll(ctx, most, subjects...)
}

// statusOf is 400 if the request is at fault, and 500 if the server is.
func statusOf(err error) int {
	if errors.Is(err, keyfuncs.ErrNoKey) || errors.Is(err, keyfuncs.ErrBadKey) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// caught is deferred, and makes a panic a failure.
func (a *attempt) caught() {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		a.fail(http.StatusInternalServerError, panicked(v))
	}
}
