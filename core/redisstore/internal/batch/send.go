package batch

// Sending: when a batch is sent, how much it has, and the reply of each call.

import (
	"context"
	"runtime"
	"time"
)

// How long a batch may take, in timeouts. Its callers leave after one. At the batch's deadline the
// client closes the connection.
const batchTime = 3

// A batch is the calls of one command, and their context. It is canceled when none of its callers
// waits: if the batch still waits for a connection, it is then not sent. Its deadline is for the
// client's socket, and cancels nothing. A context of package context would allocate six times.
type batch struct {
	senders  *senders // its sender is one of these
	calls    []*Call  // the oldest first
	weight   int      // of all calls
	waiting  int      // of the calls
	sent     time.Time
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

// senders are the goroutines and callers that send the calls of a lane. When its connections have turned out to be
// dead, they may hang. Then they are given up, and the lane gets others.
type senders struct {
	lane    *lane
	running int
	ready   int // of these: those that wait for their turn
}

// current reports whether they are not given up.
func (s *senders) current() bool { return s == s.lane.senders }

// goOn reports whether they send one more batch.
func (s *senders) goOn() bool {
	return s.current() && s.lane.calls.first != nil && !s.lane.health.down()
}

// start starts a goroutine that sends, if one more may.
func (l *lane) start() {
	most := l.pacing.most()
	if l.health.state == trial {
		most = 1
	}
	if s := l.senders; s.ready == 0 && s.running < most {
		s.running++
		go l.q.send(s)
	}
}

// sendDirect sends the caller's own call in its goroutine.
func (q *Queue) sendDirect(own *batch) {
	q.sendBatch(own)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := own.senders; s.goOn() {
		go q.send(s)
	} else {
		s.running--
	}
}

// send sends batches until no call queues. It yields between them: callers that were just
// answered can join the next batch. Most have not run yet when one yield ends.
func (q *Queue) send(s *senders) {
	for b := q.next(s); b != nil; b = q.next(s) {
		q.sendBatch(b)
		runtime.Gosched()
		runtime.Gosched()
	}
}

// next takes the next batch, when the client has a connection for it and it is its turn. If no
// call queues, or the sender was given up, it returns nil, and the sender ends.
func (q *Queue) next(s *senders) *batch {
	var err error
	if first := q.first(s); first != nil {
		err = q.ensureConnection(first.Keys[0])
	}
	q.queueUp(s, err)
	for {
		b, wait := q.turn(s)
		if wait <= 0 {
			return b
		}
		time.Sleep(wait)
	}
}

// first returns the first call that queues, if the sender goes on.
func (q *Queue) first(s *senders) *Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.goOn() {
		return nil
	}
	return s.lane.calls.first
}

// queueUp has a sender wait for its turn. err says why the client has no connection for it.
func (q *Queue) queueUp(s *senders, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := s.lane; err != nil && s.current() {
		l.health.worsen(stateAfter(err))
		for l.calls.first != nil && !isLate(err) { // if that only took too long, a call waits for its own timeout
			l.calls.first.end(err)
		}
	}
	s.ready++
}

// turn takes the next batch, or returns how long the sender has to wait. Both are zero if it ends.
func (q *Queue) turn(s *senders) (b *batch, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, now := s.lane, time.Now()
	l.shed(now)
	goesOn := s.goOn()
	if wait = l.pacing.resume.Sub(now); goesOn && wait > 0 {
		return nil, wait
	}
	if s.ready--; goesOn {
		return l.take(now, batchTime*q.timeout), 0
	}
	s.running--
	return nil, 0
}

// take makes a batch of the first calls that queue. It may take until the limit.
func (l *lane) take(now time.Time, limit time.Duration) *batch {
	b := &batch{senders: l.senders, sent: now, deadline: now.Add(limit), done: make(chan struct{})}
	for c := l.calls.first; c != nil && l.pacing.fits(b, c); c = c.after {
		c.batch, l.calls.first = b, c.after
		b.calls, b.weight = append(b.calls, c), b.weight+c.Weight
	}
	b.waiting = len(b.calls)
	l.pacing.resume = now.Add(l.pacing.gap())
	return b
}

// shed passes over the calls that have waited so long that they would be answered too late. If they
// were sent, the calls behind them would be late too. A call that is passed over ends at its
// timeout, so that callers who repeat it at once do not add to the load.
func (l *lane) shed(now time.Time) {
	for c := l.calls.first; c != nil && now.Sub(c.since) > l.pacing.slack(); c = c.after {
		l.calls.first = c.after
	}
}

// sendBatch sends a batch and wakes its callers. If the server refuses several keys in one command,
// the calls of the batch and all later calls are sent alone.
func (q *Queue) sendBatch(b *batch) {
	apart := len(b.calls) > 1 && q.sharded.Load()
	var err error
	if !apart {
		err = q.try(b, b.calls)
		if refused, ok := err.(Apart); ok {
			q.SendApart()
			err, apart = refused.Reply, len(b.calls) > 1
		}
	}
	if apart {
		q.separate(b)
		return
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := b.senders.lane; err != nil && !isReply(err) {
		l.unanswered(b, err)
	} else if b.senders.current() {
		l.pacing.learn(b, now)
		l.health.answers(now)
	}
	for _, c := range b.calls {
		if c.Reply == nil && c.Err == nil {
			c.Err = err
		}
		c.end(c.Err)
	}
}

// try exchanges calls of a batch in one command.
func (q *Queue) try(b *batch, calls []*Call) (err error) {
	defer q.guard(&err)
	send := func(args []any, keyAt int8) ([]any, error) { return q.process(b, b.calls[0].Keys[0], args, keyAt) }
	if c := calls[0]; c.Command != nil {
		c.Reply, err = c.Command(send)
		return err
	}
	return q.exchange(send, calls)
}

// separate moves the calls of a batch that Redis has not run to the lane of calls that are sent
// alone. If there was an answer, it came from a proxy, and says nothing about the server's health.
func (q *Queue) separate(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := b.senders.lane
	to := q.lane(route{from.server, true})
	for _, c := range b.calls {
		if c.lane == nil { // its caller has left
			continue
		}
		from.calls.remove(c)
		c.lane, c.batch = to, nil
		to.calls.add(c)
		to.start()
	}
}

const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // under way if the server is far away
	perBatch    = time.Millisecond // of the response time, for each batch above fewBatches
	rejoin      = time.Millisecond // at most, the next batch waits for callers who were just answered
	maxWeight   = 2048             // of a batch: it bounds how long Redis is busy
	minWeight   = 64               // that a batch may have, even if it is answered too late
)

// pacing is how many batches of a lane may be under way, how heavy they are, and how far apart they start.
type pacing struct {
	alone    bool          // a batch has one call
	conns    int           // how many the client can use; of an unknown server, as many as there are calls
	timeout  time.Duration // of a call
	response time.Duration // how long an answer takes
	room     int           // weight that a batch may have
	resume   time.Time     // the next batch does not start earlier
}

// most returns how many batches may be under way to a server that answers.
func (p *pacing) most() int {
	if p.alone {
		return p.conns
	}
	return batches(p.conns, p.response)
}

// batches returns how many may be under way. If the server is far away, more start before the first one is
// answered.
func batches(conns int, response time.Duration) int {
	return min(conns, manyBatches, max(fewBatches, int(response/perBatch)))
}

// gap returns the least time between the starts of two batches. If more than a few are under way, they
// are spread over the response time, so that no call waits long for the next one.
func (p *pacing) gap() time.Duration {
	n := p.most()
	if p.alone || n <= fewBatches {
		return 0
	}
	return min(p.response/time.Duration(n), p.slack()*2/3)
}

// slack returns how long a call can wait for its batch and still be answered in time. It leaves
// time for an answer that takes longer than the last one.
func (p *pacing) slack() time.Duration { return max(p.timeout/16, (p.timeout-p.response)*3/4) }

// fits reports whether a batch has room for a call.
func (p *pacing) fits(b *batch, c *Call) bool {
	return len(b.calls) == 0 || !p.alone && b.weight+c.Weight <= p.room
}

// learn adjusts the pace to the time that a batch's answer took. One slow answer changes little. If
// the answer was too late for the first call, batches become smaller, because Redis or this process
// is too busy for all calls. If batches are spread, the next batch waits a little, so that callers
// who were just answered can join it. Otherwise they would wait for the batch after it.
func (p *pacing) learn(b *batch, now time.Time) {
	switch {
	case now.Sub(b.calls[0].since) > p.timeout:
		p.room = max(minWeight, p.room*3/4)
	case b.weight > p.room*3/4:
		p.room = min(maxWeight, p.room*9/8)
	}
	took := now.Sub(b.sent)
	if p.response > 0 {
		took = min(took, p.response+p.response/4)
	}
	p.response = took
	if joined := now.Add(min(p.gap()/2, rejoin)); joined.After(p.resume) {
		p.resume = joined
	}
}
