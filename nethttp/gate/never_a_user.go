package gate

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// manyUserless is the number of requests without a user, from the first one, after which the limit
// is reported as being in the wrong place.
const manyUserless = 100

// A loginCheck looks for a limit that is mounted before the login: its key function for the user
// never finds one.
type loginCheck struct {
	any    atomic.Bool
	misses atomic.Int32
}

// found notes that there was a user.
func (l *loginCheck) found() {
	if !l.any.Load() {
		l.any.Store(true)
	}
}

// missed notes a request without a user, and reports whether to log the warning.
func (l *loginCheck) missed() bool {
	return !l.any.Load() && l.misses.Load() < manyUserless && l.misses.Add(1) == manyUserless
}

func (g *Gate[C]) warnNoUser(c C, why error) {
	slog.Default().Warn(fmt.Sprintf("%s: the first %d requests had no user and were answered 400; is the limit mounted before the login?", g.framework.Name(), manyUserless),
		"code", "never-a-user", "action", g.actionToLog(c), "error", why)
}

// actionToLog is "" if the action function panics: without a user it may.
func (g *Gate[C]) actionToLog(c C) (action string) {
	defer func() { _ = recover() }()
	action, _ = g.action(c)
	return action
}
