package batch

// The server that a call is for, and the calls to it: how many wait, how many are under way, and what is
// sent next.

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

// A lane has the calls that wait for a server's answer, in the order in which they came. A server
// has one lane for calls that may share a command, and one for those that are sent alone.
type lane struct {
	route
	conns     int           // how many the client can use
	calls     list.List     // those that are sent or passed over, and then those that queue
	next      *list.Element // the first one that queues
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
	if l.next == nil {
		l.next = c.place
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
	b := &batch{lane: l, sent: now, deadline: now.Add(limit), done: make(chan struct{})}
	for ; l.next != nil; l.next = l.next.Next() {
		c := l.next.Value.(*Call)
		if len(b.calls) > 0 && (l.alone || b.weight+c.Weight > l.room) {
			break
		}
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
	for l.next != nil && now.Sub(l.next.Value.(*Call).since) > l.slack(timeout)*3/4 {
		l.next = l.next.Next()
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

// Server returns the address of the server that has a key, on a Cluster or a Ring. It is empty
// otherwise, and before the first answer.
func (q *Queue) Server(key string) string {
	if server := q.known(key); server != nil && !q.single {
		return server.Options().Addr
	}
	return ""
}

// known returns the client of the server that has a key, or nil if it is not known. Before the
// first answer a Cluster's client would have to ask Redis.
func (q *Queue) known(key string) *redis.Client {
	if !q.single && !q.reached.Load() {
		return nil
	}
	return q.server(context.Background(), key)
}

// server returns the client of the server that has a key, or nil if the client cannot tell.
func (q *Queue) server(ctx context.Context, key string) (server *redis.Client) {
	var err error
	switch rdb := q.rdb.(type) {
	case *redis.Client:
		return rdb
	case interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	}:
		server, err = rdb.MasterForKey(ctx, key)
	case interface {
		GetShardClientForKey(string) (*redis.Client, error)
	}:
		server, err = rdb.GetShardClientForKey(key)
	}
	if err != nil {
		return nil
	}
	return server
}

// connections returns how many a client can use.
func connections(server *redis.Client) int {
	o := server.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// askForMasters has a Cluster's client look for new masters, at most five times a second. By
// itself it does so when it retries a command, which these commands forbid, or once a minute.
func (q *Queue) askForMasters() {
	if c, ok := q.rdb.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(context.Background())
	}
}
