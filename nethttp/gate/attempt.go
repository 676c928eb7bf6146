package gate

// What a request asks for, and what comes of it: all stages of Serve and Allow pass it on.

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// An attempt is an action that a request asks for. keys.go fills in what it asks, and charge.go what was decided.
type attempt struct {
	adapter string
	asking  string // what is asked at present, for a failure
	subject        // the first
	further []subject
	cost    int
	picked  *policy // with a limiter that was picked

	lease    time.Duration // the shortest of the subjects' slots, or 0 if none has InFlight
	decision core.Decision // zero if there is none. Its Subject counts those that were asked
	failure  *Failure      // why there is none
}

// A subject is a user and an action, and the limiter that decides about them.
type subject struct {
	limiter      *core.Limiter
	user, action string
	index        int // among those of the middleware
}

func (a *attempt) subjects() []subject { return append([]subject{a.subject}, a.further...) }

// bound is the subject that binds.
func (a *attempt) bound() *subject {
	if n := a.decision.Subject; n > 0 && n <= len(a.further) { // else a foreign store has set it
		return &a.further[n-1]
	}
	return &a.subject
}

// share sets d to the decision for the application, whose subjects are all those of the middleware: one that is
// optional was not asked if it had no user.
func (a *attempt) share(d *core.Decision) {
	*d = a.decision
	if a.failure == nil {
		d.Subject = a.bound().index
	}
}

// binding is the limit that binds, or nil if it is not known. p is the policy of the limiter that usually decides.
func (a *attempt) binding(p *policy) *core.Limit {
	for _, made := range []*policy{p, a.picked} {
		if made == nil || len(made.limits) == 0 {
			continue
		}
		if i := slices.Index(made.limiters, a.bound().limiter); i >= 0 {
			return &made.limits[made.bound(i, a.decision.Binding)]
		}
	}
	return nil
}

// policy is p, unless Config.Limiter has picked another limiter, Allow was given one, or an optional subject has no
// user.
func (a *attempt) policy(p *policy) *policy {
	for _, made := range []*policy{p, a.picked} {
		if made != nil && len(made.limiters) == 1+len(a.further) && made.limiters[0] == a.limiter {
			return made
		}
	}
	var limiters []*core.Limiter
	for _, s := range a.subjects() {
		limiters = append(limiters, s.limiter)
	}
	return newPolicy(limiters)
}

// key reports whether a key can be used.
func (a *attempt) key(key string, err error) bool {
	return err == nil && key != "" || a.keyless(err)
}

func (a *attempt) keyless(err error) bool {
	err = cmp.Or(err, keyfuncs.ErrNoKey)
	return a.fail(statusOf(err), err)
}

// fail records why there is no decision. It returns false, for a caller that stops then.
func (a *attempt) fail(status int, err error) bool {
	a.decision = core.Decision{}
	a.failure = &Failure{Status: status, Err: err, adapter: a.adapter, asking: a.asking}
	return false
}

// caught is deferred, and makes a panic a failure.
func (a *attempt) caught() {
	if v := recover(); v == http.ErrAbortHandler {
		panic(v)
	} else if v != nil {
		a.fail(http.StatusInternalServerError, panicked(v))
	}
}
