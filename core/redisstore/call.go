package redisstore

// A call to Redis, and the batch that it is sent in.

import (
	"context"
	"sync/atomic"
	"time"
)

// A call is a charge for the script, or another command.
type call struct {
	keys []string // of a charge
	*request

	args    []any    // of another command
	keyAt   int8     // the index of the key in args
	program *program // if args runs one

	reply  any    // to another command
	values []any  // a charge's part of the reply
	scalar [1]any // room for a reply that is not an array
	err    error
	since  time.Time // when it was made
	state  atomic.Int32
	batch  *batch     // that it is sent in; nil if the caller sends it
	done   chan error // has room for one
}

// The states of a call. Sender, caller and timer try to change the state, and the first wins.
const (
	callWaits = iota
	callSent
	callAnswered
	callLeft
)

// A batch is the context of calls that are sent together. It is canceled when all its callers
// have left: if it still waits for a connection, it is then not sent. Its deadline is for the
// client's socket, and cancels nothing. A context of package context would take three
// allocations more.
type batch struct {
	calls    []*call  // the oldest first
	one      [1]*call // room for a single call
	direct   bool     // its only caller sends it
	at       int      // its place among the queue's batches
	deadline time.Time
	done     chan struct{}
	canceled atomic.Bool
	cause    error        // why it was canceled; set before done is closed
	callers  atomic.Int32 // callers that wait
	late     bool         // a probe was started
}

// newBatch makes a batch that counts one caller.
func newBatch(deadline time.Time, calls ...*call) *batch {
	b := &batch{deadline: deadline, done: make(chan struct{})}
	b.calls = append(b.one[:0], calls...)
	b.callers.Store(1)
	return b
}

// Deadline is for the client's socket.
func (b *batch) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *batch) Done() <-chan struct{} { return b.done }

func (b *batch) Err() error {
	select {
	case <-b.done:
		return context.Canceled
	default:
		return nil
	}
}

func (b *batch) Value(any) any { return nil }

// cancel cancels the batch. Only the first cause counts.
func (b *batch) cancel(cause error) {
	if !b.canceled.Swap(true) {
		b.cause = cause
		close(b.done)
	}
}

// key is the first key, which says where the call is sent.
func (c *call) key() string {
	if c.args != nil {
		return c.args[c.keyAt].(string)
	}
	return c.keys[0]
}

// leave removes a caller that waits no longer.
func (b *batch) leave() {
	if b.callers.Add(-1) == 0 {
		b.cancel(context.Canceled)
	}
}

// leave gives the call up, and reports whether there was no answer before. If the call was
// not sent yet, it is not charged.
func (c *call) leave() bool {
	if c.state.CompareAndSwap(callWaits, callLeft) {
		return true
	}
	left := c.state.CompareAndSwap(callSent, callLeft)
	if left {
		c.batch.leave()
	}
	return left
}

// expire ends the call at its timeout.
func (c *call) expire() {
	if c.leave() {
		c.done <- ErrTimeout
	}
}

// answer wakes the caller, if it still waits. The sender must not use the call afterwards.
func (c *call) answer() {
	if err := c.err; c.state.CompareAndSwap(callSent, callAnswered) {
		c.done <- err
	}
}
