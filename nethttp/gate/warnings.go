package gate

// Warnings, logged once, of a middleware with the wrong keys or in the wrong place.

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/keyfuncs"
)

// noteKeyless notes that a subject had no key that could be read, which f is about, and logs if no request has
// had one: a limit that is mounted before the login never has a user, and a proxy may write a client's address
// in a form that is not read. It also logs the first such request of all, since that may have been a visitor.
func (g *Gate[C]) noteKeyless(c C, m *mounted[C], missing *suspicion, f *Failure) {
	if f.Status != http.StatusBadRequest {
		return
	}
	n := missing.count(manyKeyless)
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
		slog.Default().Info(fmt.Sprintf("%s: the first request %s and was answered 400, as each such request is; %s", g.name, has, remedy), args...)
		return
	}
	slog.Default().Warn(fmt.Sprintf("%s: the first %d requests %s and were answered 400; %s", g.name, manyKeyless, has, remedy), args...)
}

// noteGuest notes that an optional subject had no user, and logs if no request has had one.
func (g *Gate[C]) noteGuest(c C, m *mounted[C], f *Failure) {
	if m.userless.note(manyGuests) {
		slog.Default().Warn(fmt.Sprintf("%s: the first %d requests had no user of an optional subject, so only the other subjects limited them; the error says why; a limit that is mounted before the login never has one", g.name, manyGuests),
			"code", "never-a-user", "action", m.actionToLog(c), "error", f.Err)
	}
}

// manyUserless is how many requests without a user are suspicious.
func (m *mounted[C]) manyUserless() int32 {
	if m.Guests {
		return manyGuests
	}
	return manyKeyless
}

// warnPort logs once if all users are addresses with a port.
func (g *Gate[C]) warnPort(m *mounted[C], user string) {
	if _, err := netip.ParseAddrPort(user); err != nil {
		m.ported.clear(manyPorts)
	} else if m.ported.note(manyPorts) {
		slog.Default().Warn(g.name+": the users are addresses with a port, so each connection has a quota of its own; use keyfuncs.RemoteIP, or ForwardedIP behind a proxy",
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
func (s *suspicion) noteTwice(outer *shown, a *attempt, t *told, remedy string) {
	if outer.in == 0 || a.cost == 0 || !t.allowed || !s.open(manySame) {
		return
	}
	used := outer.limit - outer.remaining
	alike := outer.limit == int64(t.limit) || outer.reset == t.reset(outer.since1970)
	if used < 1 || used+int64(a.cost) != int64(t.limit-t.remaining) || !alike {
		s.clear(manySame)
	} else if s.note(manySame) {
		slog.Default().Warn(a.adapter+": each request was charged twice for one action; "+remedy, "code", "charged-twice")
	}
}

const (
	mountedTwice = "the middleware is mounted twice, maybe on a group and on a route of it, or the limiters of two share a state: remove one, or give it another action"
	allowedTwice = "by a Limit, and by Allow in its handler: remove one, or give it another action"
)

// warnEntered logs once that a request that had a slot has entered this limit, which shares its slots.
func (g *Gate[C]) warnEntered() {
	if g.entered.Due() {
		slog.Default().Warn(g.name+": a request was charged twice: it had a slot of InFlight, and entered a limit with the same slots again; it keeps the one slot, and each pass is charged to rate limits; maybe the middleware is mounted twice, or a handler has the framework or the mux serve its request again: mount the limit where a request passes once, or give the other one another action or name",
			"code", "charged-twice")
	}
}

// noteRight notes a request that OnlyFailures did not count, and logs if the first manyRight requests were all
// successes. Requests with an Authorization header are left out: such a client may never fail.
func (g *Gate[C]) noteRight(c C, a *attempt, status int) {
	if status < http.StatusBadRequest && g.framework.Request(c).Header["Authorization"] == nil && g.right.note(manyRight) {
		slog.Default().Warn(fmt.Sprintf("%s: the first %d requests that OnlyFailures was asked about were successes by their status, so the limit has never counted anything; if the handler answers failures so too, as GraphQL does with 200, have OnlyFailures report them by something else, or call Allow and Surcharge where the failure is known", g.name, manyRight),
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
func (g *Gate[C]) warnActions(m *mounted[C], action string) {
	if m.actions.note(action) {
		slog.Default().Warn(fmt.Sprintf("%s: a limit has met more than %d actions, and each user has a quota for each; an action must not have a path or an id in it: use one such as Action(\"reply\"), or Route", g.name, manyActions),
			"code", "many-actions")
	}
}
