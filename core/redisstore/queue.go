package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Charges are combined: while some are under way others queue, and when one comes
// back, or another charge comes a millisecond after the last left, those that queue go
// out together in one run of the script. A charge that finds nothing under way goes at
// once, and only those that queue have a timer, for a server that is far away, so combining
// costs an idle process nothing. It is for a single server; the nodes of a Cluster or Ring
// answer each for itself, so there every charge, and everywhere every other command, goes
// alone.
//
// Every caller waits by its own clock, not by the client's socket, which alone keeps
// Options.Timeout. That is the same for all, so one timer, set for whoever came first,
// does for all.
const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // with a server that is far away, or hangs
	pace        = time.Millisecond // between batches above the few
	lingers     = 8                // of which part of the time-out those who queue wait, if nobody comes

	maxCalls  = 8192 // that queue, or go alone: what a server that hangs can cost
	maxWeight = 512  // of a batch, in simple charges: how long a run may hold up others

	// What a batch may take, in time-outs, though its callers have left by then: a client
	// that heeds deadlines ends a connection with its first batch, and to open one takes
	// three round trips more. If that were never to be done within one time-out there would
	// never be a connection.
	batchTime = 5
)

// A call is a charge for the script, or a command of its own.
type call struct {
	keys []string
	*request

	args   []any
	keyAt  int8   // where in args the key is
	source string // of the script, if args run one by its digest

	reply any
	err   error
	state atomic.Int32
	batch *batch     // once sent
	done  chan error // of one

	deadline     time.Time
	older, newer *call // of those without an answer
}

// The states of a call: who is first, the one who sends or answers or the one who leaves.
const (
	callWaits = iota
	callSent
	callAnswered
	callLeft
)

// A batch is calls that are sent together, and the context that they are sent with.
// When all their callers have left, what was not sent yet, for want of a connection, is
// not sent any more. By its deadline they have, so it needs no timer of its own.
type batch struct {
	context.Context
	cancel   context.CancelFunc
	deadline time.Time
	here     atomic.Int32 // callers who wait
}

// newBatch is a batch in which its maker waits.
func (s *Store) newBatch() *batch {
	b := &batch{deadline: time.Now().Add(batchTime * s.timeout)}
	b.Context, b.cancel = context.WithCancel(context.Background())
	b.here.Store(1)
	return b
}

// Deadline is for the client's socket.
func (b *batch) Deadline() (time.Time, bool) { return b.deadline, true }

// leave is the last word of one who waits.
func (b *batch) leave() {
	if b.here.Add(-1) == 0 {
		b.cancel()
	}
}

// leave is a caller's last word, or the time-out's, unless there is an answer. Who
// leaves before the call is sent is not charged.
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

// answer tells the caller, if he is there. Then the call is his again.
func (c *call) answer() {
	if err := c.err; c.state.CompareAndSwap(callSent, callAnswered) {
		c.done <- err
	}
}

// A queue is where calls queue, and the list of all that have no answer yet.
type queue struct {
	mu      sync.Mutex
	calls   []*call
	most    int       // calls that queue or go alone
	sending int       // batches of calls that queued
	alone   int       // calls that went alone
	sent    time.Time // the last batch
	awaited bool      // lingered will be called
	tidied  time.Time

	timeout        time.Duration
	oldest, newest *call       // of those without an answer
	timer          *time.Timer // for the oldest, or one before it
	watched        bool        // the timer runs
}

// do sends a call and waits for its reply, within the time-out.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.done == nil {
		c.done = make(chan error, 1)
	}
	if err := s.join(c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		if err == nil || err == ErrTimeout {
			return err
		}
		return explain(ctx, err)
	case <-ctx.Done():
		if c.leave() {
			s.queue.mu.Lock()
			s.queue.unlink(c)
			s.queue.mu.Unlock()
		}
		return ctx.Err()
	}
}

// watch tells those whose time is over.
func (q *queue) watch() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for c := q.oldest; c != nil && !now.Before(c.deadline); c = q.oldest {
		q.unlink(c)
		if c.leave() {
			c.done <- ErrTimeout
		}
	}
	if q.watched = q.oldest != nil; q.watched {
		q.timer.Reset(q.oldest.deadline.Sub(now))
	}
}

// link adds a call to those without an answer.
func (q *queue) link(c *call, now time.Time) {
	c.deadline = now.Add(q.timeout)
	c.older, q.newest = q.newest, c
	if c.older != nil {
		c.older.newer = c
	} else {
		q.oldest = c
	}
	switch {
	case q.watched:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(q.timeout, q.watch)
	default:
		q.timer.Reset(q.timeout)
	}
	q.watched = true
}

// unlink takes a call from them, if it is there.
func (q *queue) unlink(c *call) {
	switch {
	case c.older != nil:
		c.older.newer = c.newer
	case q.oldest == c:
		q.oldest = c.newer
	default:
		return
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		q.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// join queues a call and sees to it that somebody sends it.
func (s *Store) join(c *call) error {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls)+q.alone >= q.most && (time.Since(q.tidied) < pace || !q.tidy()) {
		return ErrBusy
	}
	now := time.Now()
	q.link(c, now)
	if c.args != nil || s.scattered.Load() {
		q.alone++
		go s.sendAlone(c)
		return nil
	}
	q.calls = append(q.calls, c)
	if q.sending < fewBatches || q.sending < manyBatches && now.Sub(q.sent) > pace {
		s.start(now)
	} else if !q.awaited {
		s.linger(q.timeout / lingers)
	}
	return nil
}

// start has another batch leave.
func (s *Store) start(now time.Time) {
	s.queue.sending++
	s.queue.sent = now
	go s.send()
}

// linger sees to it that those who queue do not wait for an answer from far away.
func (s *Store) linger(d time.Duration) {
	s.queue.awaited = true
	time.AfterFunc(d, s.lingered)
}

func (s *Store) lingered() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	now, wait := time.Now(), q.timeout/lingers
	if q.awaited = len(q.calls) > 0; !q.awaited {
		return
	}
	if early := wait - now.Sub(q.sent); early > 0 {
		wait = early
	} else {
		for n := len(q.calls); n > 0 && q.sending < manyBatches; n -= maxWeight {
			s.start(now)
		}
	}
	s.linger(wait)
}

// tidy drops those who have left, and reports whether there is room now. It looks at
// everybody, so it is not for everybody who comes.
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

// take takes the calls that are to go out together. With none the sending is over.
func (s *Store) take() (calls []*call, b *batch) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) > 0 {
		b = s.newBatch() // which is not over when the first has left
		defer b.leave()
	}
	n, weight := 0, 0
	for _, c := range q.calls {
		if len(calls) > 0 && weight+c.weight > maxWeight {
			break
		}
		n++
		c.batch = b
		b.here.Add(1)
		if c.state.CompareAndSwap(callWaits, callSent) {
			calls, weight = append(calls, c), weight+c.weight
		} else {
			b.here.Add(-1)
		}
	}
	rest := copy(q.calls, q.calls[n:])
	clear(q.calls[rest:])
	q.calls = q.calls[:rest]
	if len(calls) == 0 {
		q.sending--
	} else {
		q.sent = time.Now()
	}
	return calls, b
}
