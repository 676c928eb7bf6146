package gate

// Warnings, logged once, of a middleware with the wrong keys or in the wrong place.

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// A mounted is a Subject of a gate, and what its first requests may show.
type mounted[C any] struct {
	Subject[C]
	userless, actionless, ported notice.Never
	actions                      actions
}

// If the first requests of a middleware show that its keys or its place are wrong, so many of them without an
// exception, the log says so.
const (
	manyGuests  = 1000 // requests without the user of an optional subject
	manyKeyless = 100  // requests without a user, or with a user and without an action
	manyPorts   = 5    // users that are an address with a port
	manySame    = 5    // requests that show the same limit twice
	manyRight   = 1000 // successes of attempts that may fail
)

// actions counts how many actions a subject has, until it has many or so many requests have shown that it has
// not. It keeps hashes, and one action, since a client may choose long paths.
type actions struct {
	over     atomic.Bool
	latest   atomic.Pointer[string] // the latest new action: most subjects have one
	mu       sync.Mutex
	seen     map[uint64]struct{}
	requests int
}

const (
	manyActions   = 1000
	enoughActions = 100_000 // requests
)

var actionSeed = maphash.MakeSeed()

// knows reports whether an action need not be noted.
func (a *actions) knows(action string) bool {
	latest := a.latest.Load()
	return latest != nil && *latest == action || a.over.Load()
}

// note notes an action, and reports true once: if there are many.
func (a *actions) note(action string) bool {
	h := maphash.String(actionSeed, action)
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.seen[h]; !known {
		if a.seen == nil {
			a.seen = map[uint64]struct{}{}
		}
		a.seen[h] = struct{}{}
		latest := action
		a.latest.Store(&latest)
	}
	a.requests++
	many := len(a.seen) > manyActions
	if many || a.requests >= enoughActions {
		a.seen = nil
		return !a.over.Swap(true) && many
	}
	return false
}

// noteKeyless notes that a subject had no key that could be read, which f is about, and logs if no request has
// had one: a limit that is mounted before the login never has a user, and a proxy may write a client's address
// in a form that is not read. It also logs the first such request of all, since that may have been a visitor.
func (m *mounted[C]) noteKeyless(c C, missing *notice.Never, f *Failure) {
	if f.Status != http.StatusBadRequest {
		return
	}
	n := missing.Miss(manyKeyless)
	if n != 1 && n != manyKeyless {
		return
	}
	code, remedy := "never-a-user", "the error says why; a limit that is mounted before the login never has one"
	if f.asking == "action" {
		code, remedy = "never-an-action", `use one that every request has, such as Action("reply") or Route`
	}
	has := "had no " + f.asking
	if errors.Is(f, keyfuncs.ErrBadKey) {
		has, remedy = "had no "+f.asking+" that can be read", "the error says what cannot be read"
	}
	if n == 1 {
		code = "keyless-request"
	}
	args := []any{"code", code, "error", f.Err}
	if f.asking == "user" {
		args = slices.Insert(args, 2, any("action"), any(m.actionToLog(c)))
	}
	if n == 1 {
		slog.Default().Info(fmt.Sprintf("%s: the first request %s and was answered 400, as each such request is; %s", f.adapter, has, remedy), args...)
		return
	}
	slog.Default().Warn(fmt.Sprintf("%s: the first %d requests %s and were answered 400; %s", f.adapter, manyKeyless, has, remedy), args...)
}

// noteGuest notes that an optional subject had no user, and logs if no request has had one.
func (m *mounted[C]) noteGuest(c C, f *Failure) {
	if m.userless.Due(manyGuests) {
		slog.Default().Warn(fmt.Sprintf("%s: the first %d requests had no user of an optional subject, so only the other subjects limited them; the error says why; a limit that is mounted before the login never has one", f.adapter, manyGuests),
			"code", "never-a-user", "action", m.actionToLog(c), "error", f.Err)
	}
}

// warnPort logs once if all users are addresses with a port.
func (m *mounted[C]) warnPort(adapter, user string) {
	if _, err := netip.ParseAddrPort(user); err != nil {
		m.ported.Seen()
	} else if m.ported.Due(manyPorts) {
		slog.Default().Warn(adapter+": the users are addresses with a port, so each connection has a quota of its own; use keyfuncs.RemoteIP, or ForwardedIP behind a proxy",
			"code", "user-with-port")
	}
}

// actionToLog is "" if the action function panics: without a user it may.
func (m *mounted[C]) actionToLog(c C) (action string) {
	defer func() { _ = recover() }()
	action, _ = m.Action(c)
	return action
}

// noteTwice logs once if requests seem to be charged twice, because this limit shares its state with one further
// out. The signs: the outer limit shows used units, this one shows exactly the cost more, and both show the same
// quota or the same reset. It logs after manySame requests in a row that show all this.
func noteTwice(never *notice.Never, outer *shown, a *attempt, t *told, remedy string) {
	if outer.in == 0 || a.cost == 0 || !t.Allowed || !never.Open(manySame) {
		return
	}
	used := outer.limit - outer.remaining
	alike := outer.limit == int64(t.Limit) || outer.reset == t.reset(outer.since1970)
	if used < 1 || used+int64(a.cost) != int64(t.Limit-t.Remaining) || !alike {
		never.Seen()
	} else if never.Due(manySame) {
		slog.Default().Warn(a.adapter+": each request was charged twice for one action; "+remedy, "code", "charged-twice")
	}
}

const (
	mountedTwice = "the middleware is mounted twice, maybe on a group and on a route of it, or the limiters of two share a state: remove one, or give it another action"
	allowedTwice = "by a Limit, and by Allow in its handler: remove one, or give it another action"
)

// warnEntered logs once that a request that had a slot has entered this limit, which shares its slots.
func warnEntered(entered *notice.Once, adapter string) {
	if entered.Due() {
		slog.Default().Warn(adapter+": a request was charged twice: it had a slot of InFlight, and entered a limit with the same slots again; it keeps the one slot, and each pass is charged to rate limits; maybe the middleware is mounted twice, or a handler has the framework or the mux serve its request again: mount the limit where a request passes once, or give the other one another action or name",
			"code", "charged-twice")
	}
}

// noteRight notes a request that OnlyFailures did not count, and logs if the first manyRight requests were all
// successes. Requests with an Authorization header are left out: such a client may never fail.
func noteRight(right *notice.Never, r *http.Request, a *attempt, status int) {
	if status < http.StatusBadRequest && r.Header["Authorization"] == nil && right.Due(manyRight) {
		slog.Default().Warn(fmt.Sprintf("%s: the first %d requests that OnlyFailures was asked about were successes by their status, so the limit has never counted anything; if the handler answers failures so too, as GraphQL does with 200, have OnlyFailures report them by something else, or call Allow and Surcharge where the failure is known", a.adapter, manyRight),
			"code", "never-a-failure", "action", a.action, "limit", a.limiter.Limits()[0].String())
	}
}

// noteNothing logs once that an action was refused by core.Nothing. Somebody has asked for that, so it is no warning.
func (l *failureLog) noteNothing(a *attempt) {
	if a.decision.Reason != core.ReasonNothing || !l.nothing.Due() {
		return
	}
	slog.Default().Info(a.adapter+": an action was refused because its limit is Nothing(); this is said once, for the first such action",
		"code", "not-included", "action", a.bound().action)
}

// warnActions logs once if a subject has many actions, as if they were paths.
func (m *mounted[C]) warnActions(adapter, action string) {
	if m.actions.note(action) {
		slog.Default().Warn(fmt.Sprintf("%s: a limit has met more than %d actions, and each user has a quota for each; an action must not have a path or an id in it: use one such as Action(\"reply\"), or Route", adapter, manyActions),
			"code", "many-actions")
	}
}
