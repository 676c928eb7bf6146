package batch

// The calls to a server, and the servers of a client.

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxCalls bounds the calls of a lane. So it bounds memory if a server hangs, and calls to
// other servers still have room.
const maxCalls = 8192

// A lane has the calls to a server, and what is known of it. A server has one lane for calls that may share a
// command, and one for those that are sent alone.
type lane struct {
	q       *Queue
	server  *redis.Client // nil: not known
	calls   calls
	pacing  pacing   // pacing.go: how much is sent at a time
	senders *senders // send.go: what sends it
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
