package batch

// A call, and the batch that it is sent in.

import (
	"container/list"
	"context"
	"time"
)

// A Call is what one caller asks.
type Call struct {
	Keys  []string
	Args  any   // what is asked of these keys, as the Exchange knows it
	Reply []any // not nil after an exchange, unless there is an error
	Err   error

	weight int // in a batch; 0: it is sent alone
	since  time.Time
	lane   *lane
	batch  *batch        // nil: not sent
	place  *list.Element // in the lane's calls; nil: it has ended
	done   chan struct{} // closed when it has ended
	err    error         // why it has ended without a reply; set before
}

// A batch is the calls of one command, and their context. It is canceled when none of its callers
// waits: if the batch still waits for a connection, it is then not sent. Its deadline is for the
// client's socket, and cancels nothing. A context of package context would allocate six times.
type batch struct {
	lane     *lane
	calls    []*Call // the oldest first
	waiting  int     // of the calls
	direct   bool    // its only caller sends it
	late     bool    // a probe was started
	deadline time.Time
	done     chan struct{} // closed when none waits
}

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

func (*batch) Value(any) any { return nil }

// end answers the caller of a call, if it still waits.
func (c *Call) end(err error) {
	if c.place == nil {
		return
	}
	if c.batch == nil {
		c.lane.unqueue(c.place)
	} else if c.batch.waiting--; c.batch.waiting == 0 {
		close(c.batch.done)
	}
	c.lane.calls.Remove(c.place)
	c.place, c.err = nil, err
	close(c.done)
}
