// Package batch sends calls to Redis, and answers each call within a timeout, whatever the client
// does. Calls that may share a command are sent together, in a batch. An [Exchange] makes a command
// of the calls of a batch, and gives each call its part of the reply.
//
// A call goes through these steps:
//
//	join       queue.go  The call is put into the queue of its server. If fewer batches are under
//	                     way than allowed (most), another goroutine starts to send, or the caller
//	                     sends the call itself.
//	next       send.go   A goroutine that sends has the client open a connection
//	                     (ensureConnection), and waits until batches are far enough apart (gap).
//	                     It takes calls from the queue, up to a weight (take).
//	sendBatch  send.go   It sends the batch, notes how long the answer took (learn), and wakes the
//	                     callers.
//	tick       queue.go  If the timeout ends before there is an answer, a timer ends the call.
//
// Two batches may be under way to a server. If fewer are under way, a call is sent at once.
// Otherwise calls queue, and the next batch takes them together. Therefore an idle process does not
// wait for a batch to fill, and a busy process fills its batches. Other rules are for servers that
// are far away, busy or lost:
//
//   - The server is far away: one batch may be under way for each millisecond of the response time,
//     up to a bound. These batches are spread over the response time, so a call may have to wait
//     until its batch starts.
//   - The process or Redis is too busy: batches become smaller (learn), and a call whose answer
//     would be too late is not sent (shed). So only the calls of batches under way can be charged
//     without an answer.
//   - Calls have no answer: nothing is sent until a new connection answers. Idle connections that
//     do not answer are closed (recoverLane).
//   - The client cannot connect: the queue finds that out sooner than the client, and its callers
//     get the error at once (recoverLane).
//
// On a Cluster or Ring every call is sent alone, because a node answers only for its own keys. The
// same holds if a proxy refuses keys of several users in one command, or sends the command to the
// server of its first key (SendApart). The queue usually has no more commands under way to a server
// than the client has connections to it.
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

// A Call is what one caller sends: a charge, or a command.
type Call struct {
	Keys    []string // the first key says which server the call is for
	Word    any      // the charge as a string, for the Exchange
	Size    int      // how many values the reply to the charge has
	Weight  int      // how long Redis takes for the charge; 0 if the call must be sent alone
	Number  int64    // the number of the first slot that the charge may take; 0 if it takes none
	Command Command  // nil if the call is a charge

	// The Exchange sets Reply and Err of a charge. For a Command the queue sets them.
	Reply []any // not nil unless there is an error
	Err   error

	Lost bool // Do sets it if the call was sent, and has no answer

	since         time.Time
	lane          *lane         // where the call queues; nil if it has ended
	before, after *Call         // its neighbours in the lane
	batch         *batch        // nil if the call was not sent
	done          chan struct{} // closed when the call has ended
	err           error         // why the call has ended without a reply; set before done is closed
}

// An Exchange sends charges to Redis in one command. It sets the Reply or the Err of each charge.
// If it sets neither for a charge, that charge gets the error that Exchange returns. Exchange may
// send a charge again only if Redis has not run it. If Exchange returns an [Apart] for several
// charges, the queue sends each of them again in a separate command.
type Exchange func(send Send, calls []*Call) error

// Apart is the error of a command that Redis refuses because it has several keys. Redis would allow
// each key alone, and has run nothing.
type Apart struct{ Reply error }

func (a Apart) Error() string { return a.Reply.Error() }

// A Command sends a call that is not a charge.
type Command func(send Send) (reply []any, err error)

// A Send sends a command once. keyAt is the index of the first key in args. If the command has no
// key, keyAt is 0, and the command goes to the server that has the keys of the batch. If the reply
// is not an array, Send returns an array with the reply in it.
type Send func(args []any, keyAt int8) (reply []any, err error)

// end ends a call and wakes its caller. If the call has ended already, end does nothing.
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

	// mu guards all fields below, the lanes, and the place of each call. The caller of these
	// methods must hold mu: lane and startTicking of Queue, and the methods of Call, of lane and of
	// the parts of a lane. The other methods of Queue lock mu if they need it.
	mu       sync.Mutex
	lanes    map[route]*lane
	maxCalls int  // of a lane
	ticking  bool // the timer is set
}

// New makes a queue, and sends nothing.
func New(rdb redis.UniversalClient, timeout time.Duration, exchange Exchange) *Queue {
	q := &Queue{redisClient: redisClient{rdb: rdb, timeout: timeout}, exchange: exchange, lanes: map[route]*lane{}, maxCalls: maxCalls}
	client, single := rdb.(*redis.Client)
	q.single, q.heeds = single, single && heedsDeadlines(client.Options())
	q.sharded.Store(!single)
	return q
}

// Do sends a call and waits for its reply. If there is no reply within the timeout, the call ends,
// usually with the error context.DeadlineExceeded. If the caller's context ends before the call is
// sent, the call is not sent.
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
		left = nil // the call has ended
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
		c.Lost = c.batch != nil && !IsReply(c.err)
		q.askForMasters()
		return nil, c.err
	}
	return c.Reply, nil
}

// join puts a call into the queue of its server, and starts to send if fewer batches are under way
// than allowed. If the caller should send the call itself, join returns a batch of that call.
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

// mayBeDirect reports whether the caller may send its call itself. To hand the call to
// another goroutine would take 30 us of the 70 us that a call takes. These are the main conditions:
//
//   - The client heeds deadlines, because a caller who sends cannot leave before the client
//     returns.
//   - No batch is under way.
//   - The last batch was answered, so that the client has a connection.
//   - The caller's own deadline is not earlier than the timeout, because the client closes a
//     connection at a deadline.
func (l *lane) mayBeDirect(ctx context.Context, now time.Time) bool {
	if !l.q.heeds || l.pacing.alone || l.senders.running > 0 || l.health.state != up || !l.q.reached.Load() {
		return false
	}
	end, ends := ctx.Deadline()
	return !ends || end.Sub(now) >= l.q.timeout
}

// late returns how long a call waits until tick checks whether the client has a connection.
func (q *Queue) late() time.Duration { return min(q.timeout/8, 10*time.Millisecond) }

// startTicking starts the timer that all calls share, unless it runs. A timer for each call would
// take a twentieth of the process's time if there are many calls. If calls come one at a time, it
// would wake another thread for each of them.
func (q *Queue) startTicking() {
	if !q.ticking {
		q.ticking = true
		time.AfterFunc(q.late(), q.tick)
	}
}

// tick ends the calls whose timeout is over, because a client may not heed the timeout. It also
// starts a check if the server is down, or if a call has waited for long. In the second case the
// check pings only if the client has no connection.
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

// maxCalls bounds the calls in a lane, so that memory is bounded if a server hangs. The lanes of
// other servers still have room.
const maxCalls = 8192

// A lane has the calls to a server, and what is known of the server. A server has at most two
// lanes: one for calls that may share a command, and one for calls that are sent alone.
type lane struct {
	q       *Queue
	server  *redis.Client // nil if it is not known
	calls   calls
	senders *senders // the goroutines that send the calls: send.go
	pacing  pacing   // how much they send at a time
	health  health   // whether the server answers: health.go
}

// A route says which calls are in a lane.
type route struct {
	server *redis.Client // nil if it is not known
	alone  bool          // each call is sent alone
}

// lane returns the lane of a route. If there is none, lane makes it.
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

// calls are the calls of a lane that have not ended, oldest first. The calls before the field first
// were sent, or will not be sent because they have waited too long: see the method shed. From first
// on, the calls queue.
type calls struct {
	n              int
	oldest, newest *Call
	first          *Call // the oldest call that queues

	asked time.Time // when the newest call came
	key   string    // the first key of the newest call
}

// add puts a call at the end of the queue.
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

// remove removes a call that has ended.
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

// Connect opens connections before the first call: usually two to each server, or more if the
// server is far away. Then it calls the function each for every server. If the client is for a
// Cluster or a Ring, the argument server is the server's address, and otherwise it is "".
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

// begin sets how long the answer of a server takes, unless a batch has measured that already.
func (q *Queue) begin(server *redis.Client, response time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &q.lane(route{server: server}).pacing
	p.response = cmp.Or(p.response, response)
}

// Sharded reports whether each call is sent alone, for example because two keys may be on two
// servers.
func (q *Queue) Sharded() bool { return q.sharded.Load() }

// SendApart makes the queue send each call alone from now on.
func (q *Queue) SendApart() { q.sharded.Store(true) }

// Load returns how many calls wait for an answer, and how many goroutines send. Tests use it.
func (q *Queue) Load() (calls, sending int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		calls += l.calls.n
		sending += l.senders.running
	}
	return calls, sending
}
