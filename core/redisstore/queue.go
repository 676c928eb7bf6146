package redisstore

// The queue of calls that wait to be sent.

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Calls to a single server are sent in batches, each in one run of the script. If nothing is
// under way, a call is sent at once. While batches are under way, calls queue, and the next
// batch takes them together. So batching does not delay an idle process, and a busy process
// fills its batches.
//
// If the server is far away, more batches start before the first one is answered. If the
// server does not answer at all, only a few start, and then one a second: each uses up a
// connection.
//
// On a Cluster or Ring every call is sent alone, since each node answers only for its own
// keys. A command that is not a charge is always sent alone.
//
// A client need not keep Options.Timeout, so a timer does: see watch.go. If the client does, a
// caller may send its own call: see direct.go.
const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // under way if the server is far away
	pace        = time.Millisecond // between starts of batches above fewBatches
	lateAfter   = 8                // a call is late after an eighth of the timeout

	// maxCalls bounds the calls that queue, and those that are sent alone to one server. So it bounds
	// memory and goroutines if a server hangs, and calls to others still have room.
	maxCalls = 8192

	maxWeight = 512 // of a batch, in simple charges: it bounds how long Redis is busy

	// How long a batch may take, in timeouts. Its callers leave after one. At the batch's
	// deadline the client closes the connection, and opening one takes three round trips,
	// which may be more than one timeout.
	batchTime = 5
)

// A queue has the calls that wait to be sent, and counts what is under way.
type queue struct {
	mu         sync.Mutex
	calls      []*call
	most       int                   // maxCalls
	sending    int                   // goroutines and callers that send batches
	alone      int                   // calls that are sent alone
	aloneTo    map[*redis.Client]int // the same, by server; nil: it is not known
	started    time.Time             // when the last batch started
	answered   time.Time             // when the last batch was answered, or the first one started
	unanswered bool                  // the last batch had no answer
	timed      bool                  // a timer will call startMore
	batches    []*batch              // those under way, and those of calls that are sent alone
	watched    bool                  // a timer will call watch
	droppedAt  time.Time             // when dropLeft last ran
	timeout    time.Duration
}

// do sends a call and waits for its reply, within the timeout.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b := s.direct(ctx, c); b != nil {
		return s.sendDirect(ctx, b, c)
	}
	if c.done == nil {
		c.done = make(chan error, 1)
	}
	if err := s.join(c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		if err == nil {
			return nil
		}
		return s.explain(ctx, c, err)
	case <-ctx.Done():
		c.leave()
		return ctx.Err()
	}
}

// join queues a call, and starts a batch if need be.
func (s *Store) join(c *call) error {
	if c.args != nil || s.sharded.Load() {
		return s.joinAlone(c)
	}
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) >= q.most && (time.Since(q.droppedAt) < pace || !q.dropLeft()) {
		return ErrBusy
	}
	now := time.Now()
	c.since = now
	s.startWatch()
	q.calls = append(q.calls, c)
	switch {
	case q.sending < fewBatches, q.more(now) && now.Sub(q.started) > pace:
		s.start(now)
	case !q.timed:
		s.startMoreAfter(q.timeout / lateAfter)
	}
	return nil
}

// joinAlone starts to send a call alone.
func (s *Store) joinAlone(c *call) error {
	var server *redis.Client
	if s.sharded.Load() && s.answered.Load() > 0 { // before, a Cluster's client would have to ask Redis
		server = s.node(context.Background(), c.key())
	}
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.aloneTo[server] >= q.most {
		return ErrBusy
	}
	c.since = time.Now()
	s.startWatch()
	c.batch = newBatch(c.since.Add(batchTime*s.timeout), c)
	q.add(c.batch)
	q.alone++
	q.aloneTo[server]++
	go s.sendAlone(c.batch, server)
	return nil
}

// more reports whether another batch may start: while the server answers, and otherwise once a
// second, since only the replies to those under way may be lost.
func (q *queue) more(now time.Time) bool {
	return q.sending < manyBatches && (now.Sub(q.answered) <= q.timeout || now.Sub(q.started) > time.Second)
}

// start starts a goroutine that sends batches.
func (s *Store) start(now time.Time) {
	q := s.queue
	if q.sending == 0 && !q.unanswered {
		q.answered = now
	}
	q.sending++
	q.started = now
	go s.send()
}

// startMoreAfter starts a timer for startMore.
func (s *Store) startMoreAfter(d time.Duration) {
	s.queue.timed = true
	time.AfterFunc(d, s.startMore)
}

// startMore starts more batches if calls have queued for long, since the server is far away.
func (s *Store) startMore() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timed = len(q.calls) > 0; !q.timed {
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
	s.startMoreAfter(wait)
}

// add and remove keep the list of batches.
func (q *queue) add(b *batch) {
	b.at = len(q.batches)
	q.batches = append(q.batches, b)
}

func (q *queue) remove(b *batch) {
	last := len(q.batches) - 1
	q.batches[b.at] = q.batches[last]
	q.batches[b.at].at = b.at
	q.batches[last] = nil
	q.batches = q.batches[:last]
}

// returned removes a batch that is no longer under way, and notes whether it was answered.
func (q *queue) returned(b *batch, answered bool) {
	q.remove(b)
	if q.unanswered = !answered; answered {
		q.answered = time.Now()
	}
}

// dropLeft drops the calls whose callers have left, and reports whether there is room then. It
// reads all calls, so join does not call it each time.
func (q *queue) dropLeft() bool {
	kept := q.calls[:0]
	for _, c := range q.calls {
		if c.state.Load() == callWaits {
			kept = append(kept, c)
		}
	}
	clear(q.calls[len(kept):])
	q.calls, q.droppedAt = kept, time.Now()
	return len(kept) < q.most
}

// nextBatch takes the calls of the next batch. If there are none, it returns nil, and the sender
// ends.
func (s *Store) nextBatch() *batch {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		q.sending--
		return nil
	}
	now := time.Now()
	b := newBatch(now.Add(batchTime * s.timeout))
	b.calls = make([]*call, 0, min(len(q.calls), maxWeight))
	defer b.leave() // it counts one until all have joined, or the batch would be canceled
	n, weight := 0, 0
	for _, c := range q.calls {
		if len(b.calls) > 0 && weight+c.weight > maxWeight {
			break
		}
		n++
		c.batch = b
		b.callers.Add(1)
		if c.state.CompareAndSwap(callWaits, callSent) {
			b.calls, weight = append(b.calls, c), weight+c.weight
		} else {
			b.callers.Add(-1)
		}
	}
	rest := copy(q.calls, q.calls[n:])
	clear(q.calls[rest:])
	q.calls = q.calls[:rest]
	if len(b.calls) == 0 {
		q.sending--
		return nil
	}
	q.started = now
	q.add(b)
	return b
}
