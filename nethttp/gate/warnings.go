package gate

// This file logs warnings about a middleware that has the wrong keys or is in the wrong place. Each
// is logged once.

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/notice"
	"github.com/tailcut/tailcut/keyfuncs"
)

// Each number says how many first requests a warning looks at. The warning is logged if all of them
// show the mistake. A single request that does not show it prevents the warning.
const (
	manyGuests  = 1000 // requests without the user of an optional subject
	manyKeyless = 100  // requests without a user, or with a user and without an action
	manyPorts   = 5    // users that are an address with a port
	manySame    = 5    // requests that show the same limit twice
	manyRight   = 1000 // successes of attempts that may fail
)

// noteKeyless counts a request that was answered 400 because its user or its action is missing or
// cannot be read. f says why. If no request has had this key, noteKeyless logs the first such
// request, and warns at number manyKeyless. The first request is no reason for a warning, because
// it may have come without a login. The warning finds a limit that is mounted before the login, for
// example.
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

// noteGuest counts a request without the user of an optional subject. It warns if none of the first
// manyGuests requests has had one.
func (m *mounted[C]) noteGuest(c C, f *Failure) {
	if m.userless.Due(manyGuests) {
		slog.Default().Warn(fmt.Sprintf("%s: the first %d requests had no user of an optional subject, so only the other subjects limited them; the error says why; a limit that is mounted before the login never has one", f.adapter, manyGuests),
			"code", "never-a-user", "action", m.actionToLog(c), "error", f.Err)
	}
}

// warnPort warns if the users of the first requests are all addresses with a port.
func (m *mounted[C]) warnPort(adapter, user string) {
	if _, err := netip.ParseAddrPort(user); err != nil {
		m.ported.Seen()
	} else if m.ported.Due(manyPorts) {
		slog.Default().Warn(adapter+": the users are addresses with a port, so each connection has a quota of its own; use keyfuncs.RemoteIP, or ForwardedIP behind a proxy",
			"code", "user-with-port")
	}
}

// actionToLog returns the action, or "" if the action function panics, which it may do without a
// user.
func (m *mounted[C]) actionToLog(c C) (action string) {
	defer func() { _ = recover() }()
	action, _ = m.Action(c)
	return action
}

// noteTwice warns if requests seem to be charged twice, because this limit shares its state with a
// limit further out. outer is what that limit has shown. A request looks charged twice if all of
// this holds:
//
//   - The outer limit shows used units.
//   - This limit shows exactly a.cost more used units.
//   - Both show the same quota or the same reset. All slots of InFlight show the same reset, so their
//     reset does not count.
//
// noteTwice warns if the first manySame requests all look so.
func noteTwice(never *notice.Never, outer *shown, a *attempt, t *told, remedy string) {
	if outer.in == 0 || a.cost == 0 || !t.Allowed || !never.Open(manySame) {
		return
	}
	used := outer.limit - outer.remaining
	alike := outer.limit == int64(t.Limit) || (t.bound == nil || !t.bound.TakesSlots()) && outer.reset == t.reset(outer.since1970)
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

// warnEntered warns if a request that has a slot has entered a limit with the same slots again.
func warnEntered(entered *notice.Once, adapter string) {
	if entered.Due() {
		slog.Default().Warn(adapter+": a request was charged twice: it had a slot of InFlight, and entered a limit with the same slots again; it keeps the one slot, and each pass is charged to rate limits; maybe the middleware is mounted twice, or a handler has the framework or the mux serve its request again: mount the limit where a request passes once, or give the other one another action or name",
			"code", "charged-twice")
	}
}

// noteRight counts a request that OnlyFailures did not charge. It warns if the first
// manyRight requests were all successes by their status, because the handler may answer failures
// with such a status. It does not count requests with an
// Authorization header, because such a client may never fail.
func noteRight(right *notice.Never, r *http.Request, a *attempt, status int) {
	if status < http.StatusBadRequest && r.Header["Authorization"] == nil && right.Due(manyRight) {
		slog.Default().Warn(fmt.Sprintf("%s: the first %d requests that OnlyFailures was asked about were successes by their status, so the limit has never counted anything; if the handler answers failures so too, as GraphQL does with 200, have OnlyFailures report them by something else, or call Allow and Surcharge where the failure is known", a.adapter, manyRight),
			"code", "never-a-failure", "action", a.action, "limit", a.limiter.Limits()[0].String())
	}
}

// noteNothing logs the first refusal by core.Nothing. It is no warning, because the program has
// asked for the refusal.
func (l *failureLog) noteNothing(a *attempt) {
	if a.decision.Reason != core.ReasonNothing || !l.nothing.Due() {
		return
	}
	slog.Default().Info(a.adapter+": an action was refused because its limit is Nothing(); this is said once, for the first such action",
		"code", "not-included", "action", a.bound().action)
}

// warnActions warns if a subject has so many actions that they may be paths.
func (m *mounted[C]) warnActions(adapter, action string) {
	if m.actions.note(action) {
		slog.Default().Warn(fmt.Sprintf("%s: a limit has met more than %d actions, and each user has a quota for each; an action must not have a path or an id in it: use one such as Action(\"reply\"), or Route", adapter, manyActions),
			"code", "many-actions")
	}
}
