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

	args   []any  // of another command
	keyAt  int8   // the index of the key in args
	source string // of the script, if args runs one by its digest

	reply any
	err   error
	state atomic.Int32
	batch *batch     // once sent
	done  chan error // has room for one
	timer *time.Timer
}

// The states of a call. Sender and caller both try to change the state, and the first wins.
const (
	callWaits = iota
	callSent
	callAnswered
	callLeft
)

// A batch is the context of calls that are sent together. It is canceled when all its callers
// have left: if it still waits for a connection, it is then not sent. All callers leave before
// its deadline, so the deadline needs no timer.
type batch struct {
	context.Context
	cancel   context.CancelCauseFunc
	deadline time.Time
	callers  atomic.Int32 // callers that wait
	late     atomic.Bool  // a probe was started
}

// newBatch makes a batch with one caller.
func (s *Store) newBatch() *batch {
	b := &batch{deadline: time.Now().Add(batchTime * s.timeout)}
	b.Context, b.cancel = context.WithCancelCause(context.Background())
	b.callers.Store(1)
	return b
}

// Deadline is for the client's socket.
func (b *batch) Deadline() (time.Time, bool) { return b.deadline, true }

// leave removes a caller that waits no longer.
func (b *batch) leave() {
	if b.callers.Add(-1) == 0 {
		b.cancel(nil)
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

// answer wakes the caller, if it still waits. The sender must not use the call afterwards.
func (c *call) answer() {
	if err := c.err; c.state.CompareAndSwap(callSent, callAnswered) {
		c.done <- err
	}
}
