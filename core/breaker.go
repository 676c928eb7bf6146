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

// A breaker stops asking a store that has failed three times in a row. It is open then:
// one call at a time asks the store, as a probe, and the others are spared the store's
// timeout. An answer to a probe closes the breaker. Every call brings the time with
// it, so there is no timer and no goroutine.
//
// A store whose parts fail each by itself, as the nodes of a cluster do, has a method
// Part(user string) string. Then all this holds for each part.
//
// Failures of calls that overlap are one event: a failure counts if its call began after
// the failure that counted before it. So a batch of calls or a short stall counts once,
// and a store that hangs opens the breaker after three of its timeouts.
type breaker struct {
	store Store
	part  func(user string) string
	what  string // happens while the store fails; for the log
	base  time.Time

	failures atomic.Int64                        // that counted, in all parts
	circuits atomic.Pointer[map[string]*circuit] // never changed; nil: nothing has failed lately
	calm     atomic.Int64                        // since base: when an outage is over if nothing else fails

	mu    sync.Mutex // for whatever changes
	noisy bool       // the log says that the store fails
	last  error
	noted int64 // since base: until when nothing is said of failures that open nothing
}

// A circuit is what a breaker knows of one part of its store.
type circuit struct {
	failed atomic.Int32 // in a row; at trip it is open
	probe  atomic.Int64 // since base: when a probe may go, if it is open
	latest int64        // the number of its last failure that counted
	at     int64        // since base: of its last failure
}

const (
	trip       = 3
	maxParts   = 64 // that fail at a time; more share one circuit
	probeEvery = 250 * time.Millisecond
	calmFor    = 5 * time.Second // a store that comes and goes is said to answer when it has stayed so long
	noteEvery  = time.Minute
	downFor    = time.Minute // see Failing

	// What another store gets to decide for a caller whose own deadline has ended.
	afterDeadline = 50 * time.Millisecond
)

func newBreaker(store Store, where, what string) breaker {
	return breaker{store: mustStore(store, where), part: partOf(store), what: what, base: time.Now()}
}

// partOf is the Part method of a store or of one that it wraps.
func partOf(store Store) func(user string) string {
	if s, ok := find[interface{ Part(user string) string }](store); ok {
		return s.Part
	}
	return func(string) string { return "" }
}

func (b *breaker) now() int64 { return int64(time.Since(b.base)) }

// circuit is that of the user's part, nil if nothing has failed there lately.
func (b *breaker) circuit(user string) *circuit {
	circuits := b.circuits.Load()
	if circuits == nil {
		return nil
	}
	return (*circuits)[b.key(*circuits, user)]
}

func (b *breaker) key(circuits map[string]*circuit, user string) string {
	part := b.part(user)
	if len(circuits) >= maxParts && circuits[part] == nil {
		return ""
	}
	return part
}

func (c *circuit) open() bool { return c != nil && c.failed.Load() == trip }

func (b *breaker) down(user string) bool { return b.circuit(user).open() || down(b.store, user) }

// Failing reports, for package metrics, whether a part of the store is down: it is only
// asked to probe, and a call has failed there within the last minute. So a part that no
// caller asks for any more is not down for ever.
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

// Reset asks the store whether the breaker is open or not: nobody else can do it. Its
// result says little of charges, so it does not count.
func (b *breaker) Reset(ctx context.Context, user, action string, limits []Limit) error {
	return b.store.Reset(ctx, user, action, limits)
}

// A verdict is what a call says of the store.
type verdict uint8

const (
	failed   verdict = iota
	answered         // the store is there
	keyed            // an ErrKey
	silent           // nothing: the caller left first, or the answer is from a cache
)

func judge(ctx context.Context, d *Decision, err error) verdict {
	switch {
	case err == nil && d.Source != SourceCache:
		return answered
	case err == nil, ctx.Err() == context.Canceled:
		return silent
	case errors.Is(err, ErrKey):
		return keyed
	}
	return failed // a deadline that has ended counts: the store had not answered
}

// take asks the store, unless the breaker is open. With ok there is a decision, or the
// error of a caller who left, which says nothing of the store.
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
	case keyed:
		b.note(err)
	case failed:
		b.fail(c.User, begun, err)
	}
	return d, v == answered || v == silent, err
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
		// A circuit that is still open is that of a part that nobody asks for any more.
		over, b.noisy = b.noisy, false
		b.circuits.Store(nil)
	}
	b.mu.Unlock()
	if short {
		b.note(last)
	}
	if over {
		slog.Default().Info("core: the store answers again")
	}
}

// fail counts a failure of a call that began when so many had failed. It may open the
// breaker. Of an open one only the probe's result counts.
func (b *breaker) fail(user string, begun int64, err error) {
	b.mu.Lock()
	k := b.ensure(user)
	if k.open() || k.latest > begun {
		b.mu.Unlock()
		return
	}
	k.latest, k.at = b.failures.Add(1), b.now()
	b.last = err
	b.calm.Store(k.at + int64(calmFor))
	k.probe.Store(k.at + int64(probeEvery))
	say := k.failed.Add(1) == trip && !b.noisy
	b.noisy = b.noisy || say
	b.mu.Unlock()
	if say {
		b.warn(user, err)
	}
}

func (b *breaker) warn(user string, err error) {
	if part := b.part(user); part != "" {
		slog.Default().Warn(b.what, "part", part, "error", err)
		return
	}
	slog.Default().Warn(b.what, "error", err)
}

// ensure is the circuit of the user's part, which may be a new one.
func (b *breaker) ensure(user string) *circuit {
	circuits := map[string]*circuit{}
	if was := b.circuits.Load(); was != nil {
		circuits = *was
	}
	key := b.key(circuits, user)
	if circuits[key] == nil {
		circuits = maps.Clone(circuits)
		circuits[key] = new(circuit)
		b.circuits.Store(&circuits)
	}
	return circuits[key]
}

// note says, now and then, that the store fails now and then.
func (b *breaker) note(err error) {
	b.mu.Lock()
	now := b.now()
	say := now >= b.noted
	if say {
		b.noted = now + int64(noteEvery)
	}
	b.mu.Unlock()
	if say {
		slog.Default().Warn("core: the store answers, but not every call", "error", err)
	}
}

// probe asks the store of an open breaker if it is time to and nobody else does.
func (b *breaker) probe(ctx context.Context, c Charge, k *circuit) (d Decision, ok bool, err error) {
	if at := k.probe.Load(); b.now() < at || !k.probe.CompareAndSwap(at, math.MaxInt64) {
		return d, false, nil
	}
	v := failed // if the store panics
	defer func() { b.end(k, v) }()
	d, err = b.store.Take(ctx, c)
	v = judge(ctx, &d, err)
	return d, v == answered || v == silent, err
}

// end gives the place for a probe back: at once if nothing was learnt, or callers who
// leave could keep the breaker open.
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

// outlive is a context for a second store to decide with, if the caller's deadline has
// ended while the first had not answered.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != context.DeadlineExceeded {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), afterDeadline)
}
