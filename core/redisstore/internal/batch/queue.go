// Package batch sends calls to Redis, and answers each within a timeout, whatever the client
// does. Calls that may share a command are sent in batches.
//
// What a call asks, how the calls of a batch become a command, and what its reply says to each,
// is the business of an [Exchange].
package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrBusy says that too many calls are waiting for an answer. The call was not sent.
var ErrBusy = errors.New("too many calls are waiting for an answer")

// A Queue sends calls through one client.
//
// If nothing is under way, a call is sent at once. While batches are under way, calls queue, and
// the next batch takes them together. So batching does not delay an idle process, and a busy
// process fills its batches. If the server is far away, more batches start before the first
// one is answered, spread over its response time. If the server does not answer at all, only a few
// start, and then one a second: each uses up a connection.
//
// A batch has a connection when it takes its calls. Calls that have waited too long to be answered
// in time are not sent. So at most the calls of the batches under way are charged without an answer.
//
// On a Cluster or Ring every call is sent alone, since each node answers only for its own keys.
// No more commands are under way to a server than the client has connections for it.
//
// A client need not keep the timeout, so a timer does: see timer.go. If the client does, a caller
// may send its own call: see mayBeDirect.
type Queue struct {
	rdb      redis.UniversalClient
	timeout  time.Duration
	exchange Exchange
	single   bool        // the client is for a single server
	heeds    bool        // and heeds deadlines
	sharded  atomic.Bool // two keys may be on two servers
	reached  atomic.Bool // a command was answered
	lost     atomic.Bool // a connection could not be opened, or was closed

	mu          sync.Mutex // guards all below, the lanes, and where a call is
	lanes       map[route]*lane
	maxCalls    int  // of a lane
	ticking     bool // the timer is set
	panicLogged time.Time
}

// New makes a queue. It sends nothing.
func New(rdb redis.UniversalClient, timeout time.Duration, exchange Exchange) *Queue {
	q := &Queue{rdb: rdb, timeout: timeout, exchange: exchange, lanes: map[route]*lane{}, maxCalls: maxCalls}
	client, single := rdb.(*redis.Client)
	q.single, q.heeds = single, single && heedsDeadlines(client.Options())
	q.sharded.Store(!single)
	return q
}

// Do sends a call and waits for its reply. The first key says which server it is sent to. Calls
// that have a weight may share a command; a call of weight 0 is sent alone. If there is no reply
// within the timeout, the error is context.DeadlineExceeded. If the caller's context ends before
// the call is sent, it is not sent.
func (q *Queue) Do(ctx context.Context, keys []string, args any, weight int) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &Call{Keys: keys, Args: args, weight: weight, done: make(chan struct{})}
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
		return nil, ctx.Err()
	}
	if c.err != nil {
		q.askForMasters()
		return nil, c.err
	}
	return c.Reply, nil
}

// join queues a call, and starts to send if need be. If the caller is to send its call itself,
// join returns its batch.
func (q *Queue) join(ctx context.Context, c *Call) (own *batch, err error) {
	r := route{server: q.known(c.Keys[0]), alone: c.weight == 0 || q.sharded.Load()}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	l := q.lane(r, now)
	if l.calls.Len() >= q.maxCalls {
		return nil, ErrBusy
	}
	direct := q.mayBeDirect(ctx, l, now)
	c.since = now
	l.queue(c)
	q.startTicking()
	switch {
	case direct:
		l.start(now)
		own = l.take(now, q.timeout)
	case l.ready == 0 && l.sending < l.most(now, q.timeout):
		l.start(now)
		go q.send(l)
	}
	return own, nil
}

// Sharded reports whether two keys may be on two servers.
func (q *Queue) Sharded() bool { return q.sharded.Load() }

// Load returns how many calls wait for an answer, and how many goroutines send. It is for tests.
func (q *Queue) Load() (calls, sending int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lanes {
		calls += l.calls.Len()
		sending += l.sending
	}
	return calls, sending
}
