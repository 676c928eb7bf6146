package gate

// This file keeps the slot of core.InFlight that a request has taken. The slot is renewed while it
// has users: the handlers, calls of Hold, and the same request if it enters a limit again. The last
// user releases it.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
)

// askAgain is the pause after a renewal that has failed.
const askAgain = time.Second

// A slot is what one decision has taken for a request: a slot of one InFlight, or of several. A
// timer renews it, so that no goroutine waits.
type slot struct {
	adapter        string
	limiter        *core.Limiter
	decision       core.Decision
	lease, longest time.Duration   // of its limits, the shortest lease and the longest
	ctx            context.Context // that of the request, but it is never canceled
	failed         *rarely         // logs that a renewal or a release has failed
	outer          *slot           // the slot of a limit further out

	mu       sync.Mutex
	timer    *time.Timer
	since    time.Time // when a lease was last renewed or taken
	renewing bool      // a renewal is under way
	users    int
}

// keep begins to renew the slot, for the request whose context is ctx.
func (s *slot) keep(ctx context.Context) *slot {
	s.outer = slotIn(ctx)
	for s.outer != nil && s.outer.ended() { // if a handler has Gin or Echo serve its request again
		s.outer = s.outer.outer
	}
	s.ctx, s.since, s.users = context.WithoutCancel(ctx), time.Now(), 1
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.lease/3, s.renew)
	return s
}

type slotKey struct{}

// slotIn returns the innermost slot of the request whose context is ctx, or nil.
func slotIn(ctx context.Context) *slot {
	s, _ := ctx.Value(slotKey{}).(*slot)
	return s
}

// Hold implements the function Hold of an adapter: see nethttp.Hold.
func Hold(r *http.Request) (release func()) {
	var slots []*slot
	for s := slotIn(r.Context()); s != nil; s = s.outer {
		if s.use() {
			slots = append(slots, s)
		} else if s.failed.Due() {
			slog.Default().Error(s.adapter+": Hold was called after the handler had returned, and the slot is free already; call it before", "code", "hold-too-late")
		}
	}
	h := &hold{slots: slots}
	if slots != nil {
		h.lost = runtime.AddCleanup(h, lose, slots)
	}
	return h.release
}

// A hold is what a call of Hold keeps.
type hold struct {
	slots []*slot
	once  sync.Once
	lost  runtime.Cleanup
}

func (h *hold) release() {
	h.once.Do(func() {
		h.lost.Stop()
		endSlots(h.slots)
	})
}

// lose releases slots whose release function the handler has dropped. Otherwise they would be
// renewed as long as the process lives.
func lose(slots []*slot) {
	if s := slots[0]; s.failed.Due() {
		slog.Default().Error(s.adapter+": a handler has dropped what Hold returned without calling it, and the slot is released now; call release in every case", "code", "hold-dropped")
	}
	go endSlots(slots) // the store may take its time
}

// reuseSlots changes the subjects so that they take no slot that the request has already. Otherwise
// the request would wait for itself. reuseSlots returns these slots. They stay taken until
// endSlots.
func reuseSlots(ctx context.Context, subjects []core.Subject) (reused []*slot) {
	for s := slotIn(ctx); s != nil; s = s.outer {
		if !s.use() {
			continue
		}
		before := slices.Clone(subjects)
		for i := range subjects {
			subjects[i] = subjects[i].Within(s.limiter, s.decision)
		}
		if slices.Equal(before, subjects) {
			s.end()
		} else {
			reused = append(reused, s)
		}
	}
	return reused
}

func endSlots(slots []*slot) {
	for _, s := range slots {
		s.end()
	}
}

// ended reports whether the slot has no users.
func (s *slot) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0
}

// use adds a user of the slot, and reports true. If the slot is released, use reports false.
func (s *slot) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return false
	}
	s.users++
	return true
}

// renew renews the lease, and sets the timer for the next renewal.
func (s *slot) renew() {
	s.mu.Lock()
	if s.users == 0 {
		s.mu.Unlock()
		return
	}
	s.renewing = true
	s.mu.Unlock()

	err := s.ask((*core.Limiter).Renew)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewing = false
	now := time.Now()
	renewed := err == nil || errors.Is(err, core.ErrLeaseEnded) // if there are several slots, others were renewed
	if renewed {
		s.since = now
	}
	switch {
	case s.users == 0:
		s.finish()
	case renewed:
		s.timer.Reset(s.lease / 3)
	case now.Sub(s.since) < s.longest: // later all leases have ended
		s.timer.Reset(min(askAgain, s.lease/3))
	}
}

// end removes a user. The last user releases the slot. If a renewal is under way, the renewal
// releases the slot when it is done. To wait for both could delay the response by two timeouts of
// the store.
func (s *slot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	s.timer.Stop()
	if !s.renewing {
		s.finish()
	}
}

// finish releases the slot. If the store fails, package core tries again.
func (s *slot) finish() { _ = s.ask((*core.Limiter).Release) }

// ask renews or releases the slot, and logs an error.
func (s *slot) ask(do func(*core.Limiter, context.Context, core.Decision) error) (err error) {
	defer s.failed.log(s.adapter, ": the slot of a request cannot be renewed or released; it is tried again until the lease has ended", "slot-not-freed", &err)
	return do(s.limiter, s.ctx, s.decision)
}
