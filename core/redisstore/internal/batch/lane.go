package batch

// The calls to a server: how many wait, how many are under way, and what is sent next.

import (
	"container/list"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	fewBatches  = 2                // under way at a time: more would only make them smaller
	manyBatches = 32               // under way if the server is far away
	pace        = time.Millisecond // between starts of batches above fewBatches
	maxWeight   = 512              // of a batch: it bounds how long Redis is busy

	// maxCalls bounds the calls of a lane. So it bounds memory if a server hangs, and calls to
	// other servers still have room.
	maxCalls = 8192
)

// A lane has the calls that wait for a server's answer, in the order in which they came. A server
// has one lane for calls that may share a command, and one for those that are sent alone.
type lane struct {
	route
	few, many int           // commands under way: always, and if the server is far away
	calls     list.List     // those that are sent, and then those that queue
	next      *list.Element // the first one that queues
	queued    int           // how many queue
	sending   int           // goroutines and callers that send
	started   time.Time     // when the last command was sent
	answered  time.Time     // when the last one was answered, or the first one sent; zero: the last one was not
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
		most := q.maxCalls
		if r.server != nil {
			most = connections(r.server)
		}
		l = &lane{route: r, few: most, answered: now}
		if !r.alone {
			l.few, l.many = min(fewBatches, most), min(manyBatches, most)
		}
		q.lanes[r] = l
	}
	return l
}

// queue adds a call.
func (l *lane) queue(c *Call) {
	c.lane, c.place = l, l.calls.PushBack(c)
	if l.queued++; l.next == nil {
		l.next = c.place
	}
}

// unqueue notes that a call no longer queues.
func (l *lane) unqueue(place *list.Element) {
	if l.queued--; l.next == place {
		l.next = place.Next()
	}
}

// more reports whether another batch may start above the few: while the client has
// connections and the server answers. If the server does not answer, one may start each second,
// since only the replies to those under way may be lost.
func (l *lane) more(now time.Time, timeout time.Duration) bool {
	if l.sending >= l.many || now.Sub(l.answered) > timeout && now.Sub(l.started) <= time.Second {
		return false
	}
	pool := l.server.PoolStats()
	return pool.IdleConns > 0 || int(pool.TotalConns) < connections(l.server)
}

// start counts another sender.
func (l *lane) start(now time.Time) {
	if l.sending == 0 && !l.answered.IsZero() {
		l.answered = now
	}
	l.sending++
	l.started = now
}

// take makes a batch of the first calls that queue.
func (l *lane) take(deadline time.Time) *batch {
	b := &batch{lane: l, calls: make([]*Call, 0, min(l.queued, maxWeight)), deadline: deadline, done: make(chan struct{})}
	weight := 0
	for l.next != nil {
		c := l.next.Value.(*Call)
		if weight += c.weight; len(b.calls) > 0 && (l.alone || weight > maxWeight) {
			break
		}
		l.unqueue(c.place)
		c.batch = b
		b.calls = append(b.calls, c)
	}
	b.waiting = len(b.calls)
	return b
}
