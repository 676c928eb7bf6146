package plans

// Following a source of documents. Requests look at it, and no goroutine outlives its look.

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	lookEvery = time.Second
	lookAgain = lookEvery / 2         // when the next look begins beside one that has no answer
	lookWaits = 50 * time.Millisecond // how long a request waits for a source
	lookEnds  = 10 * time.Second      // when the context of a source ends
	mostLooks = 12                    // at the same time; they are more only if a source does not heed its context
)

// A follower looks at a source.
type follower struct {
	load func(context.Context) ([]byte, error)
	base time.Time
	next atomic.Int64 // the earliest next look, since base
	slow atomic.Bool  // the last look took longer than a request waits

	turns  chan struct{} // a look has one of them until load returns
	looks  atomic.Int64  // that have begun
	newest int64         // of the looks that have returned a document, the one that began last. Plans.updates guards it and what is below
	last   []byte        // the document
	err    error         // what is wrong with it
	down   bool          // whether load has failed since
}

// Follow makes p follow a source: a [File], or any function load. It calls load at once. If the
// document has no error, it is put in force. Otherwise Follow returns the error, and the document
// in force stays.
//
//	p, err := plans.New(store, document)
//	err = p.Follow(plans.File("plans.json"))
//
// After that load is called again once a second, by a request. That request waits for load for at
// most 50 ms, or not at all if load took longer the last time. Other requests do not wait. If no
// requests come, load is not called: see [Plans.Refresh].
//
// load returns the present document, and must not change the bytes later. Its context ends after 10
// s. If load has not returned after half a second, it is called again beside the first call, and
// then once a second, so calls may overlap. The result of the call that began last counts, even if
// an earlier call returns later. If load returns the same document as before, nothing happens, so a
// document given to [Plans.Update] stays in force until the source changes. If load fails or its
// document is broken, that is logged and counted once.
//
// A second call of Follow replaces the source. If load is nil, p follows no source.
func (p *Plans) Follow(load func(context.Context) ([]byte, error)) error {
	if load == nil {
		p.follower.Store(nil)
		return nil
	}
	f := &follower{load: load, base: time.Now(), turns: make(chan struct{}, mostLooks)}
	f.next.Store(int64(lookEvery))
	p.follower.Store(f)
	return p.Refresh(context.Background())
}

// Refresh calls the source now and puts its document in force. The error is that of the source, or
// a [*DocumentError]. If ctx ends during the call, that does not count as a failure of the source.
// If p follows no source, Refresh does nothing.
func (p *Plans) Refresh(ctx context.Context) error {
	f := p.follower.Load()
	if f == nil {
		return nil
	}
	select {
	case f.turns <- struct{}{}:
		return p.look(ctx, f)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow lets a request look, if it is time.
func (p *Plans) follow() {
	f := p.follower.Load()
	if f == nil {
		return
	}
	now, next, again := int64(time.Since(f.base)), f.next.Load(), int64(lookEvery)
	if now < next {
		return
	}
	if len(f.turns) == 0 {
		again = int64(lookAgain)
	}
	if !f.next.CompareAndSwap(next, now+again) {
		return
	}
	select {
	case f.turns <- struct{}{}:
	default:
		return
	}
	slow, done := f.slow.Load(), make(chan struct{})
	go func() {
		begun := time.Now()
		_ = p.look(context.Background(), f)                    // it is logged
		f.next.CompareAndSwap(now+again, now+int64(lookEvery)) // it has an answer
		f.slow.Store(time.Since(begun) > lookWaits)
		close(done)
	}()
	if slow {
		return
	}
	wait := time.NewTimer(lookWaits)
	defer wait.Stop()
	select {
	case <-done:
	case <-wait.C:
		f.slow.Store(true)
	}
}

// document loads the document, and ends the turn when load returns. If the source panics, that is
// an error, because no caller would recover a panic in this goroutine. If the source does not
// return when its context has ended, that is an error too.
func (f *follower) document(ctx context.Context) (document []byte, err error) {
	type answer struct {
		document []byte
		err      error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if v := recover(); v != nil {
				a.err = fmt.Errorf("panic: %v", v)
			}
			<-f.turns
			answers <- a
		}()
		a.document, a.err = f.load(ctx)
	}()
	select {
	case a := <-answers:
		return a.document, a.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(lookWaits)
	defer grace.Stop()
	select {
	case a := <-answers:
		return a.document, a.err
	case <-grace.C:
		return nil, fmt.Errorf("the source does not heed its context: %w", ctx.Err())
	}
}

// look is for one who has a turn, and ends it.
func (p *Plans) look(ctx context.Context, f *follower) error {
	number := f.looks.Add(1)
	within, cancel := context.WithTimeout(ctx, lookEnds)
	defer cancel()
	document, err := f.document(within)
	p.updates.Lock()
	defer p.updates.Unlock()
	switch {
	case p.follower.Load() != f: // another source is followed now
		return nil
	case number < f.newest: // a look that began later has the document already
		return f.err
	case err != nil:
		err = fmt.Errorf("plans: the document is not loaded: %w", err)
		if ctx.Err() != nil { // the caller has left
			return err
		}
		if !f.down {
			p.rejected.Add(1)
			slog.Default().Error("plans: the document is not loaded; the one before stays in force", "code", "plans-not-loaded", "version", p.now.Load().version, "error", err)
		}
		f.down = true
		return err
	case f.newest == 0 || !bytes.Equal(document, f.last):
		f.last, f.err = document, p.update(document)
	}
	f.newest, f.down = number, false
	return f.err
}
