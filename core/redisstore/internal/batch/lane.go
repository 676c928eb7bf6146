package batch

// The server that a call is for, and the calls to it: how many wait, how many are under way, and what is
// sent next.

import (
	"container/list"
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // under way if the server is far away
	pace        = time.Millisecond // of the response time, for each batch above fewBatches
	rejoin      = time.Millisecond // at most, the next batch waits for callers who were just answered
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
	timeout time.Duration // of a call
	conns   int           // how many the client can use; of an unknown server, as many as there are calls

	calls list.List     // those that are sent or passed over, and then those that queue
	next  *list.Element // the first one that queues
	asked time.Time     // when the last call came
	key   string        // of it

	senders *senders
	resume  time.Time // the next batch is not taken earlier
	room    int       // weight that a batch may have

	response time.Duration // how long an answer takes
	answered time.Time     // when the last one came

	doubt     doubt     // connect.go: why nothing is sent
	checks    int       // under way: a Dialer may hang
	recheck   time.Time // the next one does not begin earlier
	replacing bool      // one of them replaces dead connections
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
		l = &lane{route: r, timeout: q.timeout, conns: q.maxCalls, room: maxWeight}
		l.senders = &senders{lane: l}
		if r.server != nil {
			l.conns = connections(r.server)
		}
		q.lanes[r] = l
	}
	return l
}

// most returns how many batches may be under way.
func (l *lane) most() int {
	switch {
	case l.doubt == tried:
		return 1
	case l.alone:
		return l.conns
	}
	return batches(l.conns, l.response)
}

// batches returns how many may be under way to a server that answers. If it is far away, more start
// before the first one is answered.
func batches(conns int, response time.Duration) int {
	return min(conns, manyBatches, max(fewBatches, int(response/pace)))
}

// gap returns the least time between the starts of two batches. If more than a few are under way, they
// are spread over the response time, so that no call waits long for the next one.
func (l *lane) gap() time.Duration {
	n := batches(l.conns, l.response)
	if l.alone || n <= fewBatches {
		return 0
	}
	return min(l.response/time.Duration(n), l.slack()*2/3)
}

// slack returns how long a call can wait for its batch and still be answered in time. Some time is left
// for an answer that takes longer than the last one.
func (l *lane) slack() time.Duration { return max(l.timeout/16, (l.timeout-l.response)*3/4) }

// queue adds a call.
func (l *lane) queue(c *Call) {
	c.lane, c.place, l.asked, l.key = l, l.calls.PushBack(c), c.since, c.Keys[0]
	if l.next == nil {
		l.next = c.place
	}
}

// take makes a batch of the first calls that queue. It may take until the limit.
func (l *lane) take(now time.Time, limit time.Duration) *batch {
	b := &batch{senders: l.senders, sent: now, deadline: now.Add(limit), done: make(chan struct{})}
	for ; l.next != nil; l.next = l.next.Next() {
		c := l.next.Value.(*Call)
		if len(b.calls) > 0 && (l.alone || b.weight+c.Weight > l.room) {
			break
		}
		c.batch = b
		b.calls, b.weight = append(b.calls, c), b.weight+c.Weight
	}
	l.resume, b.waiting = now.Add(l.gap()), len(b.calls)
	return b
}

// shed passes over the calls that have waited so long that they would be answered too late. If
// they were sent, those behind them would be late too. They wait for their timeout, so that
// callers who repeat them at once do not add to the load.
func (l *lane) shed(now time.Time) {
	for l.next != nil && now.Sub(l.next.Value.(*Call).since) > l.slack() {
		l.next = l.next.Next()
	}
}

// learn takes the time of a batch's answer. A single slow one says little. If it was too late for the
// first call, batches become smaller: Redis, or this process, is too busy for all calls. If batches are
// spread, the next one waits a little, so that callers who were just answered can join it. Otherwise they
// would wait for the one after it.
func (l *lane) learn(b *batch, now time.Time) {
	switch {
	case now.Sub(b.calls[0].since) > l.timeout:
		l.room = max(minWeight, l.room*3/4)
	case b.weight > l.room*3/4:
		l.room = min(maxWeight, l.room*9/8)
	}
	took := now.Sub(b.sent)
	if l.response > 0 {
		took = min(took, l.response+l.response/4)
	}
	l.answered, l.response, l.doubt, l.recheck = now, took, none, time.Time{}
	if joined := now.Add(min(l.gap()/2, rejoin)); joined.After(l.resume) {
		l.resume = joined
	}
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
