package core

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ErrKey is what a store's error is, in the sense of errors.Is, if it concerns only
// the keys of that charge, one of which holds nonsense, say. [Fallback], [FailOpen]
// and [Shadow] answer it as they do any error, but it tells them nothing of how the
// store fares with others, whom they go on asking it for.
var ErrKey = errors.New("core: the store has no answer for this key")

// A breaker asks a store until it has failed a few times in a row. It is open then:
// only now and then one call asks, to probe, and the others are spared the store's
// time budget. The store's answer to a probe closes it. Whoever calls brings the
// time along, so there is no timer and no goroutine.
type breaker struct {
	store Store
	what  string // happens while the store fails; for the log
	base  time.Time

	// word is read on every call, and nothing else on a healthy one's. It and next
	// are written under mu.
	word atomic.Uint64
	next atomic.Int64 // since base: open, when a probe may go; noisy, when to say that it is over

	mu    sync.Mutex
	last  error // that failed a call
	noted int64 // since base: until when nothing is said of failures that open nothing
}

// A word is how many calls have failed in a row; whether the log says that the store
// fails; and the era, which every opening ends. How a call fared that was made in
// another era says nothing of this one.
const (
	trip  = 3 // failures in a row open; also their mask
	noisy = 4
	era   = 8
)

const (
	probeEvery = 250 * time.Millisecond
	calm       = 5 * time.Second // a store that comes and goes is said to answer when it has stayed so long
	noteEvery  = time.Minute
)

func newBreaker(store Store, where, what string) breaker {
	return breaker{store: mustStore(store, where), what: what, base: time.Now()}
}

func open(word uint64) bool { return word&trip == trip }

func (b *breaker) now() int64 { return int64(time.Since(b.base)) }

// down is whether a breaker in the store, or in one within it, is open.
func down(store Store) bool {
	s, ok := store.(interface{ down() bool })
	return ok && s.down()
}

func (b *breaker) down() bool { return open(b.word.Load()) || down(b.store) }

func (b *breaker) Accept(limits []Limit) error { return accept(b.store, limits) }

// Reset asks the store whether the breaker is open or not: there is nobody else to
// do it, and what comes of it says little of charges.
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
	case err == nil, ctx.Err() != nil:
		return silent
	case errors.Is(err, ErrKey):
		return keyed
	}
	return failed
}

// take asks the store if it is to be asked. With ok there is a decision, or the
// error of a caller who left, which is an error as it is and nobody's outage.
func (b *breaker) take(ctx context.Context, c Charge) (d Decision, ok bool, err error) {
	asked := b.word.Load()
	if open(asked) {
		return b.probe(ctx, c)
	}
	d, err = b.store.Take(ctx, c)
	v := judge(ctx, &d, err)
	switch v {
	case answered:
		if word := b.word.Load(); word%era != 0 && (word%era != noisy || b.now() >= b.next.Load()) {
			b.answer(asked)
		}
	case keyed:
		b.note(err)
	case failed:
		b.fail(asked, err)
	}
	return d, v == answered || v == silent, err
}

// answer ends a run of failures, and after an outage says that it is over.
func (b *breaker) answer(asked uint64) {
	b.mu.Lock()
	word := b.word.Load()
	if word/era != asked/era {
		b.mu.Unlock()
		return
	}
	short, last := word&trip > 0, b.last
	over := word&noisy != 0 && b.now() >= b.next.Load()
	word &^= trip
	if over {
		word &^= noisy
	}
	b.word.Store(word)
	b.mu.Unlock()
	if short {
		b.note(last)
	}
	if over {
		slog.Default().Info("core: the store answers again")
	}
}

// fail adds a failure, which may be the one that opens.
func (b *breaker) fail(asked uint64, err error) {
	b.mu.Lock()
	word := b.word.Load()
	if word/era != asked/era {
		b.mu.Unlock()
		return
	}
	b.last = err
	say := false
	if word++; open(word) {
		say = word&noisy == 0
		b.next.Store(b.now() + int64(probeEvery))
		word = (word/era+1)*era | noisy | trip
	}
	b.word.Store(word)
	b.mu.Unlock()
	if say {
		slog.Default().Warn(b.what, "error", err)
	}
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
func (b *breaker) probe(ctx context.Context, c Charge) (d Decision, ok bool, err error) {
	if b.now() < b.next.Load() || !b.begin() {
		return d, false, nil
	}
	v := failed // if the store panics
	defer func() { b.end(v) }()
	d, err = b.store.Take(ctx, c)
	v = judge(ctx, &d, err)
	return d, v == answered || v == silent, err
}

// begin takes the one place for a probe.
func (b *breaker) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !open(b.word.Load()) || b.now() < b.next.Load() {
		return false
	}
	b.next.Store(math.MaxInt64)
	return true
}

// end gives the place back: at once if nothing was learnt, or callers who leave
// could keep the breaker open.
func (b *breaker) end(v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch v {
	case answered:
		b.next.Store(b.now() + int64(calm))
		b.word.Store(b.word.Load() &^ trip)
	case failed:
		b.next.Store(b.now() + int64(probeEvery))
	default:
		b.next.Store(0)
	}
}
