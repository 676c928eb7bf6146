package batch

// Sending: when a batch is sent, how many calls it has, and how each call gets its reply.

import (
	"context"
	"runtime"
	"time"
)

// batchTime is how long a batch may take, as a multiple of the timeout. Its callers leave after one
// timeout. At the deadline of the batch the client closes the connection, if it heeds deadlines.
const batchTime = 3

// A batch has the calls of one command. It is also the context of that command. The context is
// canceled when no caller of the batch waits any more: if the client is still waiting for a
// connection, it then does not send the batch. The deadline is for the client's socket, and does
// not cancel the context. A context of package context would allocate six times.
type batch struct {
	senders  *senders // the goroutine that sends the batch is one of these
	calls    []*Call  // oldest first
	weight   int      // the sum of the calls' weights
	waiting  int      // how many of the calls have not ended
	sent     time.Time
	deadline time.Time
	done     chan struct{} // closed when all calls have ended
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

// senders are the goroutines that send the calls of a lane. A caller who sends its own call is one
// of them. If the connections of the lane are dead, the senders may hang. Then the lane abandons
// them and gets new senders.
type senders struct {
	lane    *lane
	running int
	ready   int // how many of the running ones wait until they may take a batch
}

// current reports whether the lane still has these senders.
func (s *senders) current() bool { return s == s.lane.senders }

// goOn reports whether the senders have another batch to send.
func (s *senders) goOn() bool {
	return s.current() && s.lane.calls.first != nil && !s.lane.health.down()
}

// start starts a goroutine that sends, unless enough of them do.
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

// sendDirect sends the batch of the caller's own call. If calls queue after that, another goroutine
// sends them.
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

// send sends batches until no call queues. It yields twice between two batches, so that callers who
// were just answered can join the next batch. After one yield most of these callers have not run
// yet.
func (q *Queue) send(s *senders) {
	for b := q.next(s); b != nil; b = q.next(s) {
		q.sendBatch(b)
		runtime.Gosched()
		runtime.Gosched()
	}
}

// next waits until the client has a connection and it is time for a batch. Then it returns a batch.
// If no call queues, if the server is down, or if the lane has abandoned the senders, next returns
// nil, and the goroutine ends.
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

// first returns the first call that queues. If there is nothing to send, it returns nil.
func (q *Queue) first(s *senders) *Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.goOn() {
		return nil
	}
	return s.lane.calls.first
}

// queueUp counts a sender that is ready to take a batch. If err is not nil, it says why the client
// has no connection. Then queueUp notes that the server's health is worse. It also ends the calls
// that queue, with err, unless the client only took too long.
func (q *Queue) queueUp(s *senders, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := s.lane; err != nil && s.current() {
		l.health.worsen(stateAfter(err))
		for l.calls.first != nil && !isLate(err) { // if the client only took too long, each call waits for its own timeout
			l.calls.first.end(err)
		}
	}
	s.ready++
}

// turn returns a batch, or how long the sender has to wait for its batch. If the sender must end,
// turn returns nil and 0.
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

// take makes a batch of the first calls that queue. limit is how long the batch may take.
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

// shed passes over calls that have waited so long that they would be answered too late. If they
// were sent, the calls behind them would be late too. A call that shed has passed over ends at its
// timeout, and not at once: callers who repeat a call at once would add to the load.
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
		err = q.try(b)
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
	if l := b.senders.lane; err != nil && !IsReply(err) {
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

// try exchanges the calls of a batch in one command.
func (q *Queue) try(b *batch) (err error) {
	defer q.guard(&err)
	send := func(args []any, keyAt int8) ([]any, error) { return q.process(b, b.calls[0].Keys[0], args, keyAt) }
	if c := b.calls[0]; c.Command != nil {
		c.Reply, err = c.Command(send)
		return err
	}
	return q.exchange(send, b.calls)
}

// separate moves the calls of a batch that Redis has not run to the lane of calls that are sent
// alone. It does not change the health of the server: if there was an answer, it came from a proxy.
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
	fewBatches  = 2                // how many may be under way: more would only make them smaller
	manyBatches = 32               // how many may be under way if the server is far away
	perBatch    = time.Millisecond // one batch may be under way for each perBatch of the response time
	rejoin      = time.Millisecond // the longest wait for callers who were just answered
	maxWeight   = 2048             // the most weight of a batch: it bounds how long Redis is busy
	minWeight   = 64               // the weight that a batch may always have, even if Redis is too busy
)

// pacing says how many batches of a lane may be under way, how heavy they may be, and how far apart
// they start.
type pacing struct {
	alone    bool          // each batch has one call
	conns    int           // how many connections the client may use; if the server is not known, maxCalls
	timeout  time.Duration // the timeout of a call
	response time.Duration // how long an answer takes
	room     int           // how much weight a batch may have
	resume   time.Time     // when the next batch may start
}

// most returns how many batches may be under way to a server that answers.
func (p *pacing) most() int {
	if p.alone {
		return p.conns
	}
	return batches(p.conns, p.response)
}

// batches returns how many batches may be under way. To a server that is far away, several start
// before the first of them is answered.
func batches(conns int, response time.Duration) int {
	return min(conns, manyBatches, max(fewBatches, int(response/perBatch)))
}

// gap returns the least time between the starts of two batches. If more than two batches may be
// under way, they are spread over the response time, so that no call waits long for the next batch.
func (p *pacing) gap() time.Duration {
	n := p.most()
	if p.alone || n <= fewBatches {
		return 0
	}
	return min(p.response/time.Duration(n), p.slack()*2/3)
}

// slack returns how long a call can wait for its batch and still be answered in time, even if the
// answer takes longer than the last one.
func (p *pacing) slack() time.Duration { return max(p.timeout/16, (p.timeout-p.response)*3/4) }

// fits reports whether a batch has room for a call.
func (p *pacing) fits(b *batch, c *Call) bool {
	return len(b.calls) == 0 || !p.alone && b.weight+c.Weight <= p.room
}

// learn adjusts the pacing to an answer that has arrived.
//
//   - It notes how long the answer took. A slow answer raises that time by at most a quarter.
//   - If the answer was too late for the first call, batches become smaller, because Redis or this
//     process is too busy.
//   - If batches are spread over the response time, the next batch waits up to a millisecond, so
//     that callers who were just answered can join it.
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
