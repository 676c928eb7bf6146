package metrics

// Watch makes the store that counts: it passes each call on to another store, and counts what that
// store decides.

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/stores"
)

// Watch returns a store that passes each call on to store, and counts the decisions. Call it at
// start-up, once for each store, because m keeps the stores that it watches. If you have several
// exporters, give them the same Metrics.
//
// Watch panics if store is nil. It also panics if store was returned by Watch, or wraps a store
// that Watch returned. Otherwise decisions would be counted twice.
func (m *Metrics) Watch(store core.Store) core.Store {
	if stores.IsNil(store) {
		panic("metrics: Watch: the store is nil; use memorystore.New(nil) or redisstore.New")
	}
	w := &watch{m: m, store: store, timed: timed(store), base: time.Now()}
	for s := range core.Stores(store) {
		if _, ok := s.(*watch); ok {
			panic("metrics: Watch: the store, or one that it wraps, is watched already; leave the inner Watch out, and give several exporters the same Metrics")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = append(m.watched, w)
	return w
}

var (
	_ core.Unwrapper   = (*watch)(nil)
	_ core.WaitWatcher = (*watch)(nil)
)

type watch struct {
	m     *Metrics
	store core.Store
	timed bool

	// These detect that a store without a breaker is down.
	base     time.Time
	failures atomic.Int64 // failures in a row
	failedAt atomic.Int64 // the last failure, since base
}

// timed reports whether the answers of store are timed. They are not timed if the store that usually
// decides is a memorystore. That is the store inside all wrappers, and not a fallback.
func timed(store core.Store) bool {
	for s := range core.Stores(store) {
		if _, ok := s.(core.Sized); ok {
			return false
		}
		if _, wraps := s.(core.Unwrapper); !wraps {
			break
		}
	}
	return true
}

func (w *watch) Unwrap() core.Store { return w.store }

func (w *watch) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return w.store.Reset(ctx, user, action, limits)
}

// Take passes the charge on, and counts the decision.
func (w *watch) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	if !w.timed {
		d, r, err = w.store.Take(ctx, c)
	} else {
		begun := time.Now()
		d, r, err = w.store.Take(ctx, c)
		if err == nil && d.Source == core.SourceStore {
			w.m.answers.add(time.Since(begun))
		}
	}
	w.judge(ctx, &d, err)
	if c.Ban == 0 && c.Mode.NeedsRoom() && ctx.Value(waitingKey{}) != w {
		w.count(ctx, &c, &d, err)
	}
	return d, r, err
}

// judge counts failures in a row. A decision of the store ends the row. A canceled call and
// core.ErrKey do not count.
func (w *watch) judge(ctx context.Context, d *core.Decision, err error) {
	switch {
	case err == nil:
		if d.Source == core.SourceStore && w.failures.Load() > 0 {
			w.failures.Store(0)
		}
	case ctx.Err() != context.Canceled && !errors.Is(err, core.ErrKey):
		w.failedAt.Store(int64(time.Since(w.base)))
		w.failures.Add(1)
	}
}

func (w *watch) down() bool {
	for s := range core.Stores(w.store) {
		if b, ok := s.(core.Breaker); ok && b.Failing() {
			return true
		}
	}
	return w.failures.Load() >= stores.Trip && time.Since(w.base)-time.Duration(w.failedAt.Load()) < stores.DownFor
}

// count counts a decision or an error. It does not count an error if the caller has canceled its
// context.
func (w *watch) count(ctx context.Context, c *core.Charge, d *core.Decision, err error) {
	if err != nil && ctx.Err() == context.Canceled {
		return
	}
	p := c.Part(d.Subject)
	o, i := judged(&p, d, err)
	s := w.m.find(p.Action, limitOf(&p, i))
	s.add(o, d.Source)
	if d.Reason == core.ReasonNear {
		w.m.find(p.Action, limitOf(&p, d.Shadow)).near.Add(1)
	}
	w.m.decided(ctx, p.User, s, o, d, err)
}

// limitOf returns the i-th limit of a subject. It returns the first one if i is out of range,
// because a foreign store may set any index in its decision.
func limitOf(p *core.Part, i int) *core.Limit {
	if uint(i) >= uint(len(p.Limits)) {
		i = 0
	}
	return &p.Limits[i]
}

// judged returns the outcome of a charge, and the index of the limit that decided.
func judged(p *core.Part, d *core.Decision, err error) (o outcome, limit int) {
	last := len(p.Limits) - 1
	switch {
	case err != nil:
		return failed, 0
	case d.Reason == core.ReasonBanned && p.Limits[last].Rule().Ban != nil:
		return banned, last
	case d.Reason == core.ReasonBanned:
		return banned, d.Binding
	case d.Reason == core.ReasonFull:
		return full, d.Binding
	case d.Reason == core.ReasonShadowed:
		if d.Shadow > 0 {
			return shadowed, d.Shadow
		}
		return shadowed, d.Binding
	case d.Allowed:
		return allowed, d.Binding
	case d.Reason == core.ReasonInFlight:
		return inFlight, d.Binding
	}
	return limited, d.Binding
}

// waitingKey is the context key of a call of Wait. Its value is the watch that counts the call as a
// whole. That watch does not count the attempts that the call makes.
type waitingKey struct{}

// Waiting counts a call of Wait: see core.WaitWatcher.
func (w *watch) Waiting(ctx context.Context, c core.Charge) (context.Context, func(core.Decision, error)) {
	begun, gauge := time.Now(), w.m.gauge(c.Action)
	gauge.Add(1)
	return context.WithValue(ctx, waitingKey{}, w), func(d core.Decision, err error) {
		gauge.Add(-1)
		w.m.waits.add(time.Since(begun))
		switch {
		case errors.Is(err, core.ErrRefused):
			err = nil
		case err != nil && ctx.Err() != nil: // the caller no longer waits for an answer
			return
		case err == nil && !d.Allowed: // the call is ending with a panic
			return
		}
		w.count(ctx, &c, &d, err)
	}
}
