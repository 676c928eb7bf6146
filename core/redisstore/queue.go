package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Calls to a single server are sent in batches, each in one run of the script. A call
// that finds nothing under way is sent at once. While batches are under way calls queue,
// and they are sent together when a batch comes back. So batching costs an idle process
// nothing, and a busy one fills its batches.
//
// If the server is far away, more batches are started before the first comes back. If it
// does not answer at all, no more than a few are, since each uses up a connection.
//
// The nodes of a Cluster or Ring answer each for itself, so there every call is sent
// alone. A command that is no charge is sent alone everywhere.
//
// Each caller waits by a timer of its own, since the client's socket does not always
// keep Options.Timeout. If it does, a caller that finds nothing under way sends its call
// itself: another goroutine would take 30 of 70 us.
const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // if the server is far away
	pace        = time.Millisecond // between starts above the few
	lateAfter   = 8                // the part of the time-out after which a call is late
	lateAtMost  = 10 * time.Millisecond

	maxCalls  = 8192 // that queue or are sent alone: what a server that hangs can cost
	maxWeight = 512  // of a batch, in simple charges: how long a run may hold up others

	// How long a batch may take, in time-outs, though its callers have left by then. A client
	// that heeds deadlines closes the connection of a batch that takes longer, and to open
	// one takes three round trips: in one time-out it might never be done.
	batchTime = 5
)

// A call is a charge for the script, or a command of its own.
type call struct {
	keys []string
	*request

	args   []any
	keyAt  int8   // where in args the key is
	source string // of the script, if args runs one by its digest

	reply any
	err   error
	state atomic.Int32
	batch *batch     // once sent
	done  chan error // of one
	timer *time.Timer
}

// The states of a call. The sender and the caller both try to change it; the first wins.
const (
	callWaits = iota
	callSent
	callAnswered
	callLeft
)

// A batch is calls that are sent together, and the context that they are sent with. When
// all its callers have left it is cancelled: if it still waits for a connection, it is not
// sent any more. By its deadline they have, so the deadline needs no timer.
type batch struct {
	context.Context
	cancel   context.CancelCauseFunc
	deadline time.Time
	callers  atomic.Int32 // who wait
	late     atomic.Bool  // somebody looks after it
}

// newBatch is a batch in which its maker waits.
func (s *Store) newBatch() *batch {
	b := &batch{deadline: time.Now().Add(batchTime * s.timeout)}
	b.Context, b.cancel = context.WithCancelCause(context.Background())
	b.callers.Store(1)
	return b
}

// Deadline is for the client's socket.
func (b *batch) Deadline() (time.Time, bool) { return b.deadline, true }

// leave is called by each who waits no longer.
func (b *batch) leave() {
	if b.callers.Add(-1) == 0 {
		b.cancel(nil)
	}
}

// leave reports whether the caller is gone before the answer. If the call is not sent by
// then it is not charged.
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

// answer tells the caller, if it still waits. From then on the call is the caller's.
func (c *call) answer() {
	if err := c.err; c.state.CompareAndSwap(callSent, callAnswered) {
		c.done <- err
	}
}

// A queue is the calls that wait to be sent, and what is under way.
type queue struct {
	mu       sync.Mutex
	calls    []*call
	most     int       // calls that queue or are alone
	sending  int       // goroutines and callers that send batches
	underway int       // batches of theirs
	alone    int       // calls that are sent alone
	started  time.Time // the last batch
	answered time.Time // the last batch, or the first was started
	silent   bool      // the last batch that came back had no answer
	watched  bool      // hurry will be called
	tidied   time.Time
	timeout  time.Duration
}

// do sends a call and waits for its reply, within the time-out.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.alone(ctx, c) {
		return s.sendOwn(ctx, c)
	}
	late := min(s.timeout/lateAfter, lateAtMost)
	if c.done == nil {
		c.done, c.timer = make(chan error, 1), time.NewTimer(late)
	} else {
		c.timer.Reset(late)
	}
	defer c.timer.Stop()
	if err := s.join(c); err != nil {
		return err
	}
	for {
		select {
		case err := <-c.done:
			if err == nil {
				return nil
			}
			return explain(ctx, err)
		case <-c.timer.C:
			if late > 0 {
				c.timer.Reset(s.timeout - late)
				late = 0
				s.lookAfter(c)
				continue
			}
			c.leave()
			return explain(ctx, ErrTimeout)
		case <-ctx.Done():
			c.leave()
			return ctx.Err()
		}
	}
}

// alone reports whether the caller may send the call itself, and if so takes the place of a
// sender. The client must heed the deadline, since the caller cannot leave before. Nothing
// may be under way, and the last batch must have had an answer: after that the client has a
// connection. A caller whose own deadline is earlier would cost that connection.
func (s *Store) alone(ctx context.Context, c *call) bool {
	if !s.heeds || c.args != nil || s.scattered.Load() {
		return false
	}
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.underway > 0 || len(q.calls) > 0 || q.silent || q.answered.IsZero() {
		return false
	}
	now := time.Now()
	if end, ok := ctx.Deadline(); ok && end.Sub(now) < s.timeout {
		return false
	}
	q.sending++
	q.underway++
	q.started, q.answered = now, now
	return true
}

// join queues a call and sees to it that somebody sends it.
func (s *Store) join(c *call) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls)+q.alone >= q.most && (time.Since(q.tidied) < pace || !q.tidy()) {
		return ErrBusy
	}
	if c.args != nil || s.scattered.Load() {
		q.alone++
		go s.sendAlone(c)
		return nil
	}
	q.calls = append(q.calls, c)
	now := time.Now()
	switch {
	case q.sending < fewBatches, q.more(now) && now.Sub(q.started) > pace:
		s.start(now)
	case !q.watched:
		s.watch(q.timeout / lateAfter)
	}
	return nil
}

// more is whether there may be more than a few batches: while the server answers.
func (q *queue) more(now time.Time) bool {
	return q.sending < manyBatches && now.Sub(q.answered) <= q.timeout
}

// start has another batch sent.
func (s *Store) start(now time.Time) {
	q := s.queue
	if q.sending == 0 && !q.silent {
		q.answered = now
	}
	q.sending++
	q.started = now
	go s.send()
}

// watch sees to it that calls do not queue for long because the server is far away.
func (s *Store) watch(d time.Duration) {
	s.queue.watched = true
	time.AfterFunc(d, s.hurry)
}

func (s *Store) hurry() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watched = len(q.calls) > 0; !q.watched {
		return
	}
	now, wait := time.Now(), q.timeout/lateAfter
	if early := wait - now.Sub(q.started); early > 0 {
		wait = early
	} else {
		for n := len(q.calls); n > 0 && q.more(now); n -= maxWeight {
			s.start(now)
		}
	}
	s.watch(wait)
}

// back takes note of a batch that is under way no more, and of whether it was answered.
func (q *queue) back(answered bool) {
	q.underway--
	if q.silent = !answered; answered {
		q.answered = time.Now()
	}
}

// tidy drops the calls whose callers have left, and reports whether there is room then. It
// looks at all calls, so it is not for every caller.
func (q *queue) tidy() bool {
	kept := q.calls[:0]
	for _, c := range q.calls {
		if c.state.Load() == callWaits {
			kept = append(kept, c)
		}
	}
	clear(q.calls[len(kept):])
	q.calls, q.tidied = kept, time.Now()
	return len(kept)+q.alone < q.most
}

// take takes the calls of the next batch. If there are none the sender is done.
func (s *Store) take() (calls []*call, b *batch) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) > 0 {
		b = s.newBatch()
		defer b.leave() // not before the others are in
	}
	n, weight := 0, 0
	for _, c := range q.calls {
		if len(calls) > 0 && weight+c.weight > maxWeight {
			break
		}
		n++
		c.batch = b
		b.callers.Add(1)
		if c.state.CompareAndSwap(callWaits, callSent) {
			calls, weight = append(calls, c), weight+c.weight
		} else {
			b.callers.Add(-1)
		}
	}
	rest := copy(q.calls, q.calls[n:])
	clear(q.calls[rest:])
	q.calls = q.calls[:rest]
	if len(calls) == 0 {
		q.sending--
	} else {
		q.underway++
		q.started = time.Now()
	}
	return calls, b
}
