package batch

// The calls to a server, and the servers of a client.

import (
	"container/list"
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
	pacing  pacing
	senders *senders
	health  health
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

// calls are those of a lane that have not ended, the oldest first. The first ones were sent or passed over. The
// others queue.
type calls struct {
	list  list.List
	queue *list.Element // the first one that queues

	asked time.Time // when the last one came
	key   string    // of it
}

// add has a call queue.
func (cs *calls) add(c *Call) {
	c.place, cs.asked, cs.key = cs.list.PushBack(c), c.since, c.Keys[0]
	if cs.queue == nil {
		cs.queue = c.place
	}
}

// remove removes a call that ends.
func (cs *calls) remove(c *Call) {
	if cs.queue == c.place {
		cs.pass()
	}
	cs.list.Remove(c.place)
	c.place = nil
}

// oldest returns the call that has waited for longest, or nil.
func (cs *calls) oldest() *Call { return callAt(cs.list.Front()) }

// first returns the first call that queues, or nil.
func (cs *calls) first() *Call { return callAt(cs.queue) }

// pass takes the first call that queues out of the queue.
func (cs *calls) pass() { cs.queue = cs.queue.Next() }

func callAt(place *list.Element) *Call {
	if place == nil {
		return nil
	}
	return place.Value.(*Call)
}

// take makes a batch of the first calls that queue. It may take until the limit.
func (l *lane) take(now time.Time, limit time.Duration) *batch {
	b := &batch{senders: l.senders, sent: now, deadline: now.Add(limit), done: make(chan struct{})}
	for c := l.calls.first(); c != nil && l.pacing.fits(b, c); c = l.calls.first() {
		l.calls.pass()
		c.batch = b
		b.calls, b.weight = append(b.calls, c), b.weight+c.Weight
	}
	b.waiting = len(b.calls)
	l.pacing.resume = now.Add(l.pacing.gap())
	return b
}

// shed passes over the calls that have waited so long that they would be answered too late. If
// they were sent, those behind them would be late too. They wait for their timeout, so that
// callers who repeat them at once do not add to the load.
func (l *lane) shed(now time.Time) {
	for c := l.calls.first(); c != nil && now.Sub(c.since) > l.pacing.slack(); c = l.calls.first() {
		l.calls.pass()
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
