package core

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A breaker stops asking a store that has failed three times in a row. It is then open:
// one call at a time asks the store, as a probe, and the others do not wait for the store's
// timeout. An answer to a probe closes the breaker. Calls compare instants themselves, so
// there is no timer and no goroutine.
//
// If parts of a store can fail one by one, as the nodes of a cluster can, the store has a
// method Part(user string) string. Then all this holds for each part.
//
// Overlapping failures count once: a failure counts if its call began after the last failure
// that counted. So a failed batch or a short stall counts once, and a store that hangs opens
// the breaker after three of its timeouts.
type breaker struct {
	store Store
	part  func(user string) string
	what  string    // logged when the breaker opens
	base  time.Time // the instants below are nanoseconds since base

	failures atomic.Int64                        // how many counted, in all parts
	circuits atomic.Pointer[map[string]*circuit] // the map is never changed; nil: no recent failure
	calm     atomic.Int64                        // when the outage is over if nothing else fails

	mu     sync.Mutex // guards the fields below, and all changes of circuits
	warned bool       // the log says that the store fails
	last   error
	quiet  int64 // until when note logs nothing
}

// A circuit is what a breaker knows of one part of its store.
type circuit struct {
	failed atomic.Int32 // failures in a row; the circuit is open at trip
	probe  atomic.Int64 // the earliest instant of the next probe
	latest int64        // the number of its last failure that counted
	at     int64        // the instant of its last failure
}

const (
	trip       = 3
	maxParts   = 64 // failing at a time; further parts share one circuit
	probeEvery = 250 * time.Millisecond
	calmFor    = 5 * time.Second // an outage is over after so long without a failure
	noteEvery  = time.Minute
	downFor    = time.Minute // see Failing

	// The time that the second store has if the caller's own deadline has ended.
	afterDeadline = 50 * time.Millisecond
)

func newBreaker(store Store, where, what string) breaker {
	return breaker{store: mustStore(store, where), part: partOf(store), what: what, base: time.Now()}
}

// partOf is the Part method of a store or of one that it wraps.
func partOf(store Store) func(user string) string {
	if s, ok := find[Partitioned](store); ok {
		return s.Part
	}
	return func(string) string { return "" }
}

func (b *breaker) now() int64 { return int64(time.Since(b.base)) }

// circuit is the circuit of the user's part, nil if nothing has failed there lately.
func (b *breaker) circuit(user string) *circuit {
	circuits := b.circuits.Load()
	if circuits == nil {
		return nil
	}
	return (*circuits)[key(*circuits, b.part(user))]
}

// key is where the circuit of a part is.
func key(circuits map[string]*circuit, part string) string {
	if len(circuits) >= maxParts && circuits[part] == nil {
		return ""
	}
	return part
}

func (c *circuit) open() bool { return c != nil && c.failed.Load() == trip }

func (b *breaker) down(user string) bool { return b.circuit(user).open() || down(b.store, user) }

// Failing reports, for package metrics, whether a circuit is open and a call has failed
// there within the last minute. So a part that no caller needs any more is not down for
// ever.
func (b *breaker) Failing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	circuits := b.circuits.Load()
	if circuits == nil {
		return false
	}
	for _, k := range *circuits {
		if k.open() && b.now()-k.at < int64(downFor) {
			return true
		}
	}
	return false
}

func (b *breaker) Unwrap() Store { return b.store }

// Reset asks the store even if the breaker is open: no other store can do it. Its result
// says little about charges, so it does not count.
func (b *breaker) Reset(ctx context.Context, user, action string, limits []Limit) error {
	return b.store.Reset(ctx, user, action, limits)
}

// A verdict is what the result of a call says about the store.
type verdict uint8

const (
	failed   verdict = iota
	answered         // the store works
	keyError         // an ErrKey
	unknown          // the caller left first, or a cache answered
)

func judge(ctx context.Context, d *Decision, err error) verdict {
	switch {
	case err == nil && d.Source != SourceCache:
		return answered
	case err == nil, ctx.Err() == context.Canceled:
		return unknown
	case errors.Is(err, ErrKey):
		return keyError
	}
	return failed // also if the caller's deadline has ended: the store had not answered
}

// take asks the store, unless the breaker is open. If ok, the results are a decision, or the
// error of a caller who canceled. If not, the store has no answer.
func (b *breaker) take(ctx context.Context, c Charge) (d Decision, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return d, true, err
	}
	begun := b.failures.Load()
	if k := b.circuit(c.User); k.open() {
		return b.probe(ctx, c, k)
	}
	d, err = b.store.Take(ctx, c)
	v := judge(ctx, &d, err)
	switch v {
	case answered:
		if b.circuits.Load() != nil {
			b.answer(c.User)
		}
	case keyError:
		b.note(err)
	case failed:
		b.fail(c.User, begun, err)
	}
	return d, v == answered || v == unknown, err
}

// answer ends a run of failures, and an outage after which nothing has failed for a while.
func (b *breaker) answer(user string) {
	k := b.circuit(user)
	short := k != nil && k.failed.Load() > 0
	if !short && b.now() < b.calm.Load() {
		return
	}
	b.mu.Lock()
	if short = short && !k.open(); short {
		k.failed.Store(0)
	}
	last, over := b.last, false
	if b.now() >= b.calm.Load() {
		// If a circuit is still open, no caller needs its part any more.
		over, b.warned = b.warned, false
		b.circuits.Store(nil)
	}
	b.mu.Unlock()
	if short {
		b.note(last)
	}
	if over {
		slog.Default().Info("core: the store answers again", "code", "store-answers")
	}
}

// fail counts a failure, which may open the breaker. begun is the number of failures when
// the call began. If the breaker is open, only a probe's result counts.
func (b *breaker) fail(user string, begun int64, err error) {
	part := b.part(user) // before the lock, since a store's Part may panic or wait
	b.mu.Lock()
	k := b.ensure(part)
	if k.open() || k.latest > begun {
		b.mu.Unlock()
		return
	}
	k.latest, k.at = b.failures.Add(1), b.now()
	b.last = err
	b.calm.Store(k.at + int64(calmFor))
	k.probe.Store(k.at + int64(probeEvery))
	say := k.failed.Add(1) == trip && !b.warned
	b.warned = b.warned || say
	b.mu.Unlock()
	if say {
		b.warn(part, err)
	}
}

func (b *breaker) warn(part string, err error) {
	if part != "" {
		slog.Default().Warn(b.what, "code", "store-fails", "part", part, "error", err)
		return
	}
	slog.Default().Warn(b.what, "code", "store-fails", "error", err)
}

// ensure returns the circuit of a part, and makes it if need be.
func (b *breaker) ensure(part string) *circuit {
	circuits := map[string]*circuit{}
	if was := b.circuits.Load(); was != nil {
		circuits = *was
	}
	at := key(circuits, part)
	if circuits[at] == nil {
		circuits = maps.Clone(circuits)
		circuits[at] = new(circuit)
		b.circuits.Store(&circuits)
	}
	return circuits[at]
}

// note logs a failure that did not open the breaker, at most once in noteEvery.
func (b *breaker) note(err error) {
	b.mu.Lock()
	now := b.now()
	say := now >= b.quiet
	if say {
		b.quiet = now + int64(noteEvery)
	}
	b.mu.Unlock()
	if say {
		slog.Default().Warn("core: the store answers, but not every call", "code", "store-falters", "error", err)
	}
}

// probe asks the store of an open breaker, if a probe is due and no other call is probing.
func (b *breaker) probe(ctx context.Context, c Charge, k *circuit) (d Decision, ok bool, err error) {
	if at := k.probe.Load(); b.now() < at || !k.probe.CompareAndSwap(at, math.MaxInt64) {
		return d, false, nil
	}
	v := failed // if the store panics
	defer func() { b.end(k, v) }()
	d, err = b.store.Take(ctx, c)
	v = judge(ctx, &d, err)
	return d, v == answered || v == unknown, err
}

// end takes the probe's result and sets when the next probe is due: at once if the result is
// unknown, or else callers who leave could keep the breaker open.
func (b *breaker) end(k *circuit, v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	switch v {
	case answered:
		k.failed.Store(0)
		b.calm.Store(now + int64(calmFor))
	case failed:
		k.at = now
		k.probe.Store(now + int64(probeEvery))
		b.calm.Store(now + int64(calmFor))
	default:
		k.probe.Store(now)
	}
}

// outlive returns a context for the second store, which gets a moment if the caller's
// deadline has ended.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != context.DeadlineExceeded {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), afterDeadline)
}
