package gate

// The slot that a request has taken of core.InFlight. It is renewed while it has users: the handlers, what
// has called Hold, and the same request where it enters a limit again. The last one releases it.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core"
)

// askAgain is the pause after a renewal that has failed.
const askAgain = time.Second

// A hold keeps the slot of a request. A timer renews it, so that a request waits in no goroutine of
// its own.
type hold struct {
	attempt
	ctx    context.Context // of the request, without its end
	failed *rarely         // logs that a renewal or a release has failed
	outer  *hold           // of a limit further out

	mu       sync.Mutex
	timer    *time.Timer
	since    time.Time // no lease has begun later
	renewing bool      // a renewal is under way
	users    int
}

// hold begins to keep the slot of an attempt that is allowed.
func (g *Gate[C]) hold(ctx context.Context, a *attempt) *hold {
	h := &hold{attempt: *a, ctx: context.WithoutCancel(ctx), failed: &g.unreleased, outer: heldIn(ctx), since: time.Now(), users: 1}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.lease/3, h.renew)
	return h
}

type holdKey struct{}

// heldIn returns the innermost slot of the request whose context is ctx, or nil.
func heldIn(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// Hold is an adapter's function Hold: see nethttp.Hold.
func Hold(r *http.Request) (release func()) {
	var held []*hold
	for h := heldIn(r.Context()); h != nil; h = h.outer {
		if h.use() {
			held = append(held, h)
		} else if h.failed.now() {
			slog.Default().Error(h.adapter + ": Hold was called after the handler had returned, and the slot is free already; call it before")
		}
	}
	t := &ticket{held: held}
	if held != nil {
		t.lost = runtime.AddCleanup(t, lose, held)
	}
	return t.release
}

// A ticket is a call of Hold.
type ticket struct {
	held []*hold
	once sync.Once
	lost runtime.Cleanup
}

func (t *ticket) release() {
	t.once.Do(func() {
		t.lost.Stop()
		for _, h := range t.held {
			h.end()
		}
	})
}

// lose is for slots whose release nobody can call any more: they would be renewed as long as the process lives.
func lose(held []*hold) {
	if h := held[0]; h.failed.now() {
		slog.Default().Error(h.adapter + ": a handler has dropped what Hold returned without calling it, and the slot is released now; call release in every case")
	}
	go func() { // the store may take its time
		for _, h := range held {
			h.end()
		}
	}()
}

// use counts another user of the slot, unless it is released.
func (h *hold) use() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 {
		return false
	}
	h.users++
	return true
}

// renew renews the lease, and sets the timer for the next time.
func (h *hold) renew() {
	h.mu.Lock()
	if h.users == 0 {
		h.mu.Unlock()
		return
	}
	h.renewing = true
	h.mu.Unlock()

	err := h.ask((*core.Limiter).Renew)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewing = false
	now := time.Now()
	renewed := err == nil || errors.Is(err, core.ErrLeaseEnded) // of one slot; another one was renewed, if there are several
	if renewed {
		h.since = now
	}
	switch {
	case h.users == 0:
		h.finish()
	case renewed:
		h.timer.Reset(h.lease / 3)
	case now.Sub(h.since) < h.longest(): // otherwise there is nothing left to renew
		h.timer.Reset(min(askAgain, h.lease/3))
	}
}

// end counts one user less. The last one releases the slot. If a renewal is under way, that one releases
// it afterwards: to wait for both would delay the response by two timeouts of the store.
func (h *hold) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	h.timer.Stop()
	if !h.renewing {
		h.finish()
	}
}

// finish releases the slot. If the store fails, core tries again.
func (h *hold) finish() { _ = h.ask((*core.Limiter).Release) }

// longest is the longest lease.
func (h *hold) longest() time.Duration {
	longest := h.lease
	for _, s := range h.subjects() {
		for _, l := range s.limiter.Limits() {
			if l.Rule().TakesSlots() {
				longest = max(longest, l.Period())
			}
		}
	}
	return longest
}

// ask asks the store, and logs its error.
func (h *hold) ask(do func(*core.Limiter, context.Context, core.Decision) error) (err error) {
	defer h.failed.log(h.adapter, ": the slot of a request cannot be renewed or released; it is tried again until the lease has ended", &err)
	return do(h.limiter, h.ctx, h.decision)
}
