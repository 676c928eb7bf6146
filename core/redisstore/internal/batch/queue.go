// Package batch sends calls to Redis, and answers each within a timeout, whatever the client
// does. Calls that may share a command are sent in batches. An [Exchange] makes a command of the calls
// of a batch, and gives each its part of the reply.
//
// A call goes through these steps:
//
//	join       queue.go    It queues in the lane of its server. If fewer batches are under way than may be
//	                       (most), another goroutine starts to send, or the caller sends by itself.
//	next       send.go     A sender has the client open a connection (ensureConnection), and waits until batches
//	                       are far enough apart (gap). It takes what queues, up to a weight (take).
//	sendBatch  send.go     It sends the batch, notes how long the answer took (learn), and wakes the callers.
//	tick       queue.go    If the timeout ends before, a timer ends the call.
//
// Two batches may be under way. If there are fewer, a call is sent at once. If there are two, calls queue, and
// the next batch takes them together. So batching does not delay an idle process, and a busy process fills
// its batches. These rules are for the rest (pacing in send.go, health.go):
//
//   - The server is far away: one batch may be under way for each millisecond of the response time. They
//     are spread over it, so a call may have to wait until its batch starts.
//   - The process or Redis is too busy: batches become smaller (learn), and a call that would be answered
//     too late is not sent (shed). So at most the calls of the batches under way are charged without an answer.
//   - Calls have no answer: nothing is sent until a new connection answers, and idle ones that do not are
//     closed (recoverLane).
//   - The client cannot connect: the queue finds out sooner than the client, and its callers get the error
//     at once (recoverLane).
//
// On a Cluster or Ring every call is sent alone, since each node answers only for its own keys. So it is behind a
// proxy that refuses keys of several users in one command, or sends it to the server of the first (SendApart).
// No more commands are under way to a server than the client has connections for it.
package batch

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrBusy says that too many calls are waiting for an answer. The call was not sent.
var ErrBusy = errors.New("too many calls are waiting for an answer")

// A Call is what one caller asks: a charge, or a command.
type Call struct {
	Keys    []string // the first one says which server the call is for
	Word    any      // of a charge: what is asked of the keys, a string
	Size    int      // of a charge: values in its reply
	Weight  int      // of a charge in a batch; 0: the call is sent alone
	Number  int64    // of a charge that may take slots: the number of the first one; 0: it takes none
	Command Command  // nil: a charge

	// The Exchange sets Reply and Err. For a Command the sender sets them.
	Reply []any // not nil, unless there is an error
	Err   error

	Lost bool // set by Do: it was sent, and has no answer

	since         time.Time
	lane          *lane         // that it is in; nil: it has ended
	before, after *Call         // in the lane
	batch         *batch        // nil: not sent
	done          chan struct{} // closed when it has ended
	err           error         // why it has ended without a reply; set before
}

// An Exchange sends charges to Redis in one command. It sets the Reply or the Err of each charge.
// If it sets neither for a charge, that charge gets the error that Exchange returns. It sends a
// charge again only if Redis has not run it. If it returns an [Apart], each charge is sent again in
// a separate command.
type Exchange func(send Send, calls []*Call) error

// Apart is a reply of Redis that refuses several keys in one command, and would allow each alone.
// Nothing has run.
type Apart struct{ Reply error }

func (a Apart) Error() string { return a.Reply.Error() }

// A Command sends a call that is not a charge.
type Command func(send Send) (reply []any, err error)

// A Send sends a command once. keyAt is the index of its first key. If the command has none, keyAt
// is 0, and the command goes to the server that has the keys of the calls. A reply that is not an
// array is returned as an array of one.
type Send func(args []any, keyAt int8) (reply []any, err error)

// end answers the caller of a call, if it still waits.
func (c *Call) end(err error) {
	if c.lane == nil {
		return
	}
	if c.batch != nil {
		if c.batch.waiting--; c.batch.waiting == 0 {
			close(c.batch.done)
		}
	}
	c.lane.calls.remove(c)
	c.lane, c.err = nil, err
	close(c.done)
}

// A Queue sends calls through one client.
type Queue struct {
	redisClient
	exchange Exchange
	sharded  atomic.Bool // two keys may be on two servers

	// mu guards all fields below, the lanes, and each call's place. Methods of Queue lock it. The methods lane and
	// startTicking, and those of Call, of lane and of its parts, are called with mu held.
	mu       sync.Mutex
	lanes    map[route]*lane
	maxCalls int  // of a lane
	ticking  bool // the timer is set
}

// New makes a queue. It sends nothing.
func New(rdb redis.UniversalClient, timeout time.Duration, exchange Exchange) *Queue {
	q := &Queue{redisClient: redisClient{rdb: rdb, timeout: timeout}, exchange: exchange, lanes: map[route]*lane{}, maxCalls: maxCalls}
	client, single := rdb.(*redis.Client)
	q.single, q.heeds = single, single && heedsDeadlines(client.Options())
	q.sharded.Store(!single)
	return q
}

// Do sends a call and waits for its reply. If there is no reply within the timeout, the error is
// context.DeadlineExceeded. If the caller's context ends before the call is sent, it is not sent.
func (q *Queue) Do(ctx context.Context, c *Call) (reply []any, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.done = make(chan struct{})
	own, err := q.join(ctx, c)
	if err != nil {
		return nil, err
	}
	left := ctx.Done()
	if own != nil {
		q.sendDirect(own)
		left = nil // the answer is there
	}
	select {
	case <-c.done:
	case <-left:
		q.mu.Lock()
		defer q.mu.Unlock()
		c.end(nil)
		c.Lost = c.batch != nil
		return nil, ctx.Err()
	}
	if c.err != nil {
		c.Lost = c.batch != nil && !isReply(c.err)
		q.askForMasters()
		return nil, c.err
	}
	return c.Reply, nil
}

// join queues a call, and starts to send if need be. If the caller is to send its call itself,
// join returns its batch.
func (q *Queue) join(ctx context.Context, c *Call) (own *batch, err error) {
	r := route{server: q.known(c.Keys[0]), alone: c.Weight == 0 || q.sharded.Load()}
	q.mu.Lock()
	defer q.mu.Unlock()
	now, l := time.Now(), q.lane(r)
	if l.calls.n >= q.maxCalls {
		return nil, ErrBusy
	}
	c.since, c.lane = now, l
	l.calls.add(c)
	q.startTicking()
	switch {
	case l.health.down():
		l.startCheck(now)
	case l.mayBeDirect(ctx, now):
		l.senders.running++
		own = l.take(now, q.timeout)
	default:
		l.start()
	}
	return own, nil
}

// mayBeDirect reports whether the caller may send its call itself: another goroutine would take
// 30 of 70 us. The client must heed deadlines, since the caller cannot leave before. Nothing may
// be under way, and the last batch must have been answered, so that the client has a connection.
// The caller's own deadline may not be earlier: the client closes a connection at a deadline.
func (l *lane) mayBeDirect(ctx context.Context, now time.Time) bool {
	if !l.q.heeds || l.pacing.alone || l.senders.running > 0 || l.health.state != up || !l.q.reached.Load() {
		return false
	}
	end, ends := ctx.Deadline()
	return !ends || end.Sub(now) >= l.q.timeout
}

// late returns after how long a call is late.
func (q *Queue) late() time.Duration { return min(q.timeout/8, 10*time.Millisecond) }

// startTicking sets the timer of all calls, unless it is set. A timer for each call would take a
// twentieth of the client's time if there are many calls. If they come one at a time, it would wake
// another thread each time.
func (q *Queue) startTicking() {
	if !q.ticking {
		q.ticking = true
		time.AfterFunc(q.late(), q.tick)
	}
}

// tick ends the calls whose timeout is over, because a client may not keep to it. If no answer came
// to what was sent, or if a call is late and the client has no connection, a check finds out why.
func (q *Queue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticking = false
	now, next := time.Now(), q.late()
	for r, l := range q.lanes {
		oldest := l.calls.oldest
		for ; oldest != nil && now.Sub(oldest.since) >= q.timeout; oldest = l.calls.oldest {
			oldest.end(context.DeadlineExceeded)
			l.unanswered(oldest.batch, context.DeadlineExceeded)
		}
		switch {
		case oldest != nil:
			age := now.Sub(oldest.since)
			q.ticking, next = true, min(next, q.timeout-age)
			if l.health.down() || age >= q.late() {
				l.startCheck(now)
			}
		case l.health.down() && now.Sub(l.calls.asked) < time.Second: // soon there are calls again
			q.ticking = true
			l.startCheck(now)
		case r.alone && l.senders.running == 0: // its server may be gone
			delete(q.lanes, r)
		}
	}
	if q.ticking {
		time.AfterFunc(next, q.tick)
	}
}

// maxCalls bounds the calls of a lane. So it bounds memory if a server hangs, and calls to
// other servers still have room.
const maxCalls = 8192

// A lane has the calls to a server, and what is known of it. A server has one lane for calls that may share a
// command, and one for those that are sent alone.
type lane struct {
	q       *Queue
	server  *redis.Client // nil: not known
	calls   calls
	senders *senders // send.go: what sends them
	pacing  pacing   // and how much at a time
	health  health   // health.go: whether the server answers
}

// A route is what the calls of a lane have in common.
type route struct {
	server *redis.Client // nil: not known
	alone  bool          // each call is sent alone
}

// lane returns a route's lane.
func (q *Queue) lane(r route) *lane {
	l := q.lanes[r]
	if l == nil {
		l = &lane{q: q, server: r.server, pacing: pacing{alone: r.alone, conns: q.maxCalls, timeout: q.timeout, room: maxWeight}}
		l.senders = &senders{lane: l}
		if r.server != nil {
			l.pacing.conns = connections(r.server)
		}
		q.lanes[r] = l
	}
	return l
}

// calls are the calls of a lane that have not ended, the oldest first. The calls at the front were
// sent or passed over. The calls behind them queue.
type calls struct {
	n              int
	oldest, newest *Call
	first          *Call // that queues

	asked time.Time // when the last one came
	key   string    // of it
}

// add has a call queue.
func (cs *calls) add(c *Call) {
	cs.n, cs.asked, cs.key = cs.n+1, c.since, c.Keys[0]
	if c.before = cs.newest; c.before != nil {
		c.before.after = c
	} else {
		cs.oldest = c
	}
	if cs.newest = c; cs.first == nil {
		cs.first = c
	}
}

// remove removes a call.
func (cs *calls) remove(c *Call) {
	cs.n--
	if cs.first == c {
		cs.first = c.after
	}
	if c.before != nil {
		c.before.after = c.after
	} else {
		cs.oldest = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	} else {
		cs.newest = c.before
	}
	c.before, c.after = nil, nil
}

// Connect opens connections before the first call: a few, or more to a server that is far away. Then it calls
// each for each server, whose address is empty if there is one only.
func (q *Queue) Connect(ctx context.Context, each func(server string, send Send) error) error {
	done := make(chan error, 1)
	go func() { done <- q.connect(ctx, q.begin, each) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin sets the response time of a server's lane, unless it is known.
func (q *Queue) begin(server *redis.Client, response time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &q.lane(route{server: server}).pacing
	p.response = cmp.Or(p.response, response)
}

// Sharded reports whether two keys may be on two servers.
func (q *Queue) Sharded() bool { return q.sharded.Load() }

// SendApart makes each call be sent alone from now on.
func (q *Queue) SendApart() { q.sharded.Store(true) }

// Load returns how many calls wait for an answer, and how many goroutines send. It is for tests.
func (q *Queue) Load() (calls, sending int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		calls += l.calls.n
		sending += l.senders.running
	}
	return calls, sending
}
