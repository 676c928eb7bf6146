package gate

// The slot that a request has taken of core.InFlight. It is renewed while it has users: the handlers, what
// has called Hold, and the same request where it enters a limit again. The last one releases it.

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

// A slot is what a request has taken: of one limit with InFlight, or of several that were decided together.
// A timer renews it, so that no goroutine waits.
type slot struct {
	adapter        string
	limiter        *core.Limiter
	decision       core.Decision
	lease, longest time.Duration   // the shortest of the limits that it is of, and the longest
	ctx            context.Context // of the request, without its end
	failed         *rarely         // logs that a renewal or a release has failed
	outer          *slot           // of a limit further out

	mu       sync.Mutex
	timer    *time.Timer
	since    time.Time // no lease has begun later
	renewing bool      // a renewal is under way
	users    int
}

// keep begins to keep the slot, for the request whose context is ctx.
func (s *slot) keep(ctx context.Context) *slot {
	s.outer = slotIn(ctx)
	for s.outer != nil && s.outer.ended() { // Gin and Echo leave it in a request that is served again
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

// Hold is an adapter's function Hold: see nethttp.Hold.
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

// A hold is a call of Hold.
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

// lose is for slots whose release nobody can call any more: they would be renewed as long as the process lives.
func lose(slots []*slot) {
	if s := slots[0]; s.failed.Due() {
		slog.Default().Error(s.adapter+": a handler has dropped what Hold returned without calling it, and the slot is released now; call release in every case", "code", "hold-dropped")
	}
	go endSlots(slots) // the store may take its time
}

// reuseSlots has the subjects take no slot that the request has already, since it would wait for itself. It
// returns these slots, which stay taken until endSlots.
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

// ended reports whether the slot has no user any more.
func (s *slot) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users == 0
}

// use counts another user of the slot, unless it is released.
func (s *slot) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		return false
	}
	s.users++
	return true
}

// renew renews the lease, and sets the timer for the next time.
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
	renewed := err == nil || errors.Is(err, core.ErrLeaseEnded) // of one slot; another one was renewed, if there are several
	if renewed {
		s.since = now
	}
	switch {
	case s.users == 0:
		s.finish()
	case renewed:
		s.timer.Reset(s.lease / 3)
	case now.Sub(s.since) < s.longest: // otherwise there is nothing left to renew
		s.timer.Reset(min(askAgain, s.lease/3))
	}
}

// end counts one user less. The last one releases the slot. If a renewal is under way, that one releases
// it afterwards: to wait for both would delay the response by two timeouts of the store.
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

// finish releases the slot. If the store fails, core tries again.
func (s *slot) finish() { _ = s.ask((*core.Limiter).Release) }

// ask asks the store, and logs its error.
func (s *slot) ask(do func(*core.Limiter, context.Context, core.Decision) error) (err error) {
	defer s.failed.log(s.adapter, ": the slot of a request cannot be renewed or released; it is tried again until the lease has ended", "slot-not-freed", &err)
	return do(s.limiter, s.ctx, s.decision)
}
