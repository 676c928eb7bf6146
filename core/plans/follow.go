package plans

// Follow: a source is asked for its document once a second. Requests ask it, so no goroutine runs
// longer than a call of the source.

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	lookEvery = time.Second           // how often a source is called
	lookAgain = lookEvery / 2         // after this time a source is called again if it has not returned
	lookWaits = 50 * time.Millisecond // how long a request waits for a source
	lookEnds  = 10 * time.Second      // the timeout of a source
	mostLooks = 12                    // calls at the same time; a source that ignores its context may reach them
)

// A follower calls a source. A call is a look.
type follower struct {
	load func(context.Context) ([]byte, error)
	base time.Time
	next atomic.Int64 // when the next look may begin, since base
	slow atomic.Bool  // the last look took longer than lookWaits

	turns  chan struct{} // a semaphore: each look holds a place until load returns
	looks  atomic.Int64  // how many looks have begun
	newest int64         // the number of the last look that has returned a document; Plans.updates guards this field and those below
	last   []byte        // the document of that look
	err    error         // the error of that document
	down   bool          // load has failed since that look
}

// Follow makes p follow a source: p calls load again and again, and puts the document that load
// returns in force. load is a [File], or any function that returns the present document. Follow
// calls load at once. If load fails or the document has an error, Follow returns that error, and
// the document in force stays. p follows the source all the same.
//
//	p, err := plans.New(store, document)
//	err = p.Follow(plans.File("plans.json"))
//
// Once a second, one request calls load. This request waits for load for at most 50 ms. It does not
// wait at all if the previous call of load took longer than 50 ms. The other requests do not wait
// for load. If no requests come, only [Plans.Refresh] calls load.
//
// load must be safe for concurrent use, and must not change the bytes that it has returned. The
// context of a call ends after 10 s at the latest. If load has not returned after half a second,
// the next request calls it again beside the first call, and later requests do so once a second. Of
// the documents that load returns, the one of the call that began last counts, even if an earlier
// call returns later.
//
// If load returns the same document as before, nothing happens. So a document of [Plans.Update]
// stays in force until the source returns another document. If load fails, or its document has an
// error, the error is logged and counted once, until load returns something else.
//
// Another call of Follow replaces the source. If load is nil, p follows no source.
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

// Refresh calls the source now, and puts its document in force. The error is the source's, or a
// [*DocumentError]. If the call fails because ctx ends, this does not count as a failure of the
// source. If p follows no source, Refresh does nothing.
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

// follow starts a look if it is time for one. The caller is a request.
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
		_ = p.look(context.Background(), f)                    // an error is logged there
		f.next.CompareAndSwap(now+again, now+int64(lookEvery)) // load has returned, so the next look can begin later
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

// document calls load, and frees the look's place when load returns. It turns a panic of load into
// an error, because nobody could recover a panic in load's goroutine. It also returns an error if
// load does not return soon after its context has ended.
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

// look calls the source and puts its document in force. The caller has taken a place in f.turns,
// which look frees.
func (p *Plans) look(ctx context.Context, f *follower) error {
	number := f.looks.Add(1)
	within, cancel := context.WithTimeout(ctx, lookEnds)
	defer cancel()
	document, err := f.document(within)
	p.updates.Lock()
	defer p.updates.Unlock()
	switch {
	case p.follower.Load() != f: // p follows another source now
		return nil
	case number < f.newest: // a look that began later has already returned
		return f.err
	case err != nil:
		err = fmt.Errorf("plans: the document is not loaded: %w", err)
		if ctx.Err() != nil { // the caller's context has ended
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
