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
	lookWaits = 50 * time.Millisecond // how long a request waits for a source
	lookEnds  = 10 * time.Second      // when the context of a source ends
)

// A follower looks at a source.
type follower struct {
	load func(context.Context) ([]byte, error)
	base time.Time
	next atomic.Int64 // the earliest next look, since base
	slow atomic.Bool  // the last look took longer than a request waits

	turn   chan struct{} // whoever looks has it, and with it the fields below
	looked bool          // whether load has returned a document
	last   []byte        // the document
	err    error         // what is wrong with it
	down   bool          // whether load has failed since
}

// Follow has p follow a source: a [File], or what load reads. It looks at once and returns the error. A
// document without an error replaces the one in force. Otherwise that stays.
//
//	p, err := plans.New(store, document)
//	err = p.Follow(plans.File("plans.json"))
//
// After that requests look, at most once a second. A request that looks waits for load for at most 50 ms,
// and not at all if load took longer the last time. The others do not wait. While no requests come, nobody
// looks. See also [Plans.Refresh].
//
// load returns the document as it is now. It must not change the bytes later. It may take its time, but
// its context ends after 10 s. Calls do not overlap. What it returns is compared with what it returned before,
// so a document given to [Plans.Update] stays in force until the source changes. If load fails or its document is
// broken, that is logged and counted once.
//
// A second call of Follow replaces the source. With nil, no source is followed.
func (p *Plans) Follow(load func(context.Context) ([]byte, error)) error {
	if load == nil {
		p.follower.Store(nil)
		return nil
	}
	f := &follower{load: load, base: time.Now(), turn: make(chan struct{}, 1)}
	f.next.Store(int64(lookEvery))
	p.follower.Store(f)
	return p.Refresh(context.Background())
}

// Refresh looks at the source now and puts its document in force. The error is that of the source, or a
// [*DocumentError]. If none is followed, Refresh does nothing.
func (p *Plans) Refresh(ctx context.Context) error {
	f := p.follower.Load()
	if f == nil {
		return nil
	}
	select {
	case f.turn <- struct{}{}:
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
	now, next := int64(time.Since(f.base)), f.next.Load()
	if now < next || !f.next.CompareAndSwap(next, now+int64(lookEvery)) {
		return
	}
	select {
	case f.turn <- struct{}{}:
	default: // somebody looks
		return
	}
	slow, done := f.slow.Load(), make(chan struct{})
	go func() {
		begun := time.Now()
		_ = p.look(context.Background(), f) // it is logged
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
	}
}

// document loads the document. A panic of the source, in a goroutine that nobody guards, is an error.
func (f *follower) document(ctx context.Context) (document []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return f.load(ctx)
}

// look is for one who has the turn, and ends it.
func (p *Plans) look(ctx context.Context, f *follower) error {
	defer func() { <-f.turn }()
	ctx, cancel := context.WithTimeout(ctx, lookEnds)
	defer cancel()
	document, err := f.document(ctx)
	p.updates.Lock()
	defer p.updates.Unlock()
	switch {
	case p.follower.Load() != f: // another source is followed now
		return nil
	case err != nil:
		err = fmt.Errorf("plans: the document is not loaded: %w", err)
		if !f.down {
			p.rejected.Add(1)
			slog.Default().Error("plans: the document is not loaded; the one before stays in force", "code", "plans-not-loaded", "version", p.now.Load().version, "error", err)
		}
		f.down = true
		return err
	case !f.looked || !bytes.Equal(document, f.last):
		f.looked, f.last, f.err = true, document, p.update(document)
	}
	f.down = false
	return f.err
}
