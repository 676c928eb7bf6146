package batch

// The calls to a server: how many wait, how many are under way, and what is sent next.

import (
	"container/list"
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // under way if the server is far away
	pace        = time.Millisecond // of the response time, for each batch above fewBatches
	maxWeight   = 2048             // of a batch: it bounds how long Redis is busy
	minWeight   = 64               // that a batch may have, even if it is answered too late

	// maxCalls bounds the calls of a lane. So it bounds memory if a server hangs, and calls to
	// other servers still have room.
	maxCalls = 8192
)

// A Call is what one caller asks: a charge, or a command.
type Call struct {
	Keys    []string // the first one says which server the call is for
	Word    any      // of a charge: what is asked of the keys, a string
	Size    int      // of a charge: values in its reply
	Weight  int      // of a charge in a batch; 0: the call is sent alone
	Command Command  // nil: a charge

	// What the Exchange sets.
	Reply []any // not nil, unless there is an error
	Err   error

	since time.Time
	late  bool // it is not sent any more
	lane  *lane
	batch *batch        // nil: not sent
	place *list.Element // in the lane's calls; nil: it has ended
	done  chan struct{} // closed when it has ended
	err   error         // why it has ended without a reply; set before
}

// end answers the caller of a call, if it still waits.
func (c *Call) end(err error) {
	if c.place == nil {
		return
	}
	switch {
	case c.batch != nil:
		if c.batch.waiting--; c.batch.waiting == 0 {
			close(c.batch.done)
		}
	case !c.late:
		c.lane.unqueue(c)
	}
	c.lane.calls.Remove(c.place)
	c.place, c.err = nil, err
	close(c.done)
}

// A batch is the calls of one command, and their context. It is canceled when none of its callers
// waits: if the batch still waits for a connection, it is then not sent. Its deadline is for the
// client's socket, and cancels nothing. A context of package context would allocate six times.
type batch struct {
	lane     *lane
	calls    []*Call // the oldest first
	weight   int     // of all calls
	waiting  int     // of the calls
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

// A lane has the calls that wait for a server's answer, in the order in which they came. A server
// has one lane for calls that may share a command, and one for those that are sent alone.
type lane struct {
	route
	conns     int           // how many the client can use
	calls     list.List     // those that are sent or late, and then those that queue
	next      *list.Element // the first one that queues
	queued    int           // how many queue
	weight    int           // of those that queue
	room      int           // weight that a batch may have
	sending   int           // goroutines and callers that send
	ready     int           // of them wait for their turn
	probing   bool          // a probe is under way
	probeNext time.Time     // the next one is not earlier
	tried     time.Time     // when the last sender started
	started   time.Time     // when the last batch was taken
	answered  time.Time     // when the last one was answered, or the first one sent; zero: the last one was not
	learned   time.Time     // when the last one was answered
	response  time.Duration // how long an answer takes
}

// A route is what the calls of a lane have in common.
type route struct {
	server *redis.Client // nil: not known
	alone  bool          // each call is sent alone
}

// lane returns a route's lane.
func (q *Queue) lane(r route, now time.Time) *lane {
	l := q.lanes[r]
	if l == nil {
		l = &lane{route: r, conns: q.maxCalls, room: maxWeight, answered: now}
		if r.server != nil {
			l.conns = connections(r.server)
		}
		q.lanes[r] = l
	}
	return l
}

// most returns how many batches may be under way. If the server is far away, more start before
// the first one is answered. If it does not answer, one may start each second above the few,
// since only the replies to those under way may be lost: each uses up a connection.
func (l *lane) most(now time.Time, timeout time.Duration) int {
	switch {
	case l.alone:
		return l.conns
	case now.Sub(l.answered) > timeout:
		if now.Sub(l.tried) > time.Second {
			return min(l.conns, manyBatches)
		}
		return min(l.conns, fewBatches)
	}
	return batches(l.conns, l.response)
}

// batches returns how many may be under way to a server that answers.
func batches(conns int, response time.Duration) int {
	return min(conns, manyBatches, max(fewBatches, int(response/pace)))
}

// far reports whether the server is so far away that more than a few batches are under way.
func (l *lane) far() bool { return !l.alone && l.response > fewBatches*pace && l.conns > fewBatches }

// gathered returns when callers that were just answered have joined the next batch. If the server
// is far away, those that come later would wait for too long.
func (l *lane) gathered() time.Time {
	if !l.far() {
		return time.Time{}
	}
	return l.learned.Add(l.response / 20)
}

// gap returns the least time between the starts of two batches. They are spread over the response
// time, so that no call waits long for the next one.
func (l *lane) gap(timeout time.Duration) time.Duration {
	if !l.far() {
		return 0
	}
	return min(l.response/time.Duration(batches(l.conns, l.response)), l.slack(timeout)/2)
}

// slack returns how long a call can wait and still be answered in time.
func (l *lane) slack(timeout time.Duration) time.Duration {
	return max(timeout/16, timeout-l.response)
}

// queue adds a call.
func (l *lane) queue(c *Call) {
	c.lane, c.place = l, l.calls.PushBack(c)
	l.weight += c.Weight
	if l.queued++; l.next == nil {
		l.next = c.place
	}
}

// unqueue notes that a call no longer queues.
func (l *lane) unqueue(c *Call) {
	l.weight -= c.Weight
	if l.queued--; l.next == c.place {
		l.next = c.place.Next()
	}
}

// fail ends the calls that queue, since no connection could be opened. If that only took too long,
// a call waits for its own timeout.
func (l *lane) fail(err error) {
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return
	}
	for l.next != nil {
		l.next.Value.(*Call).end(err)
	}
}

// start counts another sender.
func (l *lane) start(now time.Time) {
	if l.sending == 0 && !l.answered.IsZero() {
		l.answered = now
	}
	l.sending++
	l.tried = now
}

// take makes a batch of the first calls that queue.
func (l *lane) take(now time.Time, limit time.Duration) *batch {
	b := &batch{lane: l, calls: make([]*Call, 0, min(l.queued, maxWeight)), sent: now, deadline: now.Add(limit), done: make(chan struct{})}
	for l.next != nil {
		c := l.next.Value.(*Call)
		if len(b.calls) > 0 && (l.alone || b.weight+c.Weight > l.room) {
			break
		}
		l.unqueue(c)
		c.batch = b
		b.calls, b.weight = append(b.calls, c), b.weight+c.Weight
	}
	l.started, b.waiting = now, len(b.calls)
	return b
}

// shed passes over the calls that have waited so long that they would be answered too late. If
// they were sent, those behind them would be late too. They wait for their timeout, so that
// callers who repeat them at once do not add to the load.
func (l *lane) shed(now time.Time, timeout time.Duration) {
	for l.next != nil {
		c := l.next.Value.(*Call)
		if now.Sub(c.since) <= l.slack(timeout)*3/4 {
			return
		}
		l.unqueue(c)
		c.late = true
	}
}

// learn takes the time of a batch's answer. A single slow one says little. If it was too late for
// the first call, batches become smaller: Redis, or this process, is too busy for all calls.
func (l *lane) learn(b *batch, now time.Time, timeout time.Duration) {
	switch {
	case now.Sub(b.calls[0].since) > timeout:
		l.room = max(minWeight, l.room*3/4)
	case b.weight > l.room*3/4:
		l.room = min(maxWeight, l.room*9/8)
	}
	took := now.Sub(b.sent)
	l.answered, l.learned = now, now
	if l.response > 0 {
		took = min(took, l.response+l.response/4)
	}
	l.response = took
}
