package gate

import (
	"fmt"
	"log/slog"
	"sync/atomic"
)

// fewUsers is after how many requests without a user, from the first one, the limit is
// reported as being in the wrong place.
const fewUsers = 100

// users records whether a gate's key function for the user ever finds one.
type users struct {
	any    atomic.Bool
	misses atomic.Int32
}

// found notes that there was a user.
func (u *users) found() {
	if !u.any.Load() {
		u.any.Store(true)
	}
}

// missed notes a request without a user, and reports whether to log the warning.
func (u *users) missed() bool {
	return !u.any.Load() && u.misses.Load() < fewUsers && u.misses.Add(1) == fewUsers
}

func (u *users) warn(adapter, action string, why error) {
	slog.Default().Warn(fmt.Sprintf("%s: the first %d requests had no user and were answered 400; is the limit mounted before the login?", adapter, fewUsers),
		"code", "never-a-user", "action", action, "error", why)
}
