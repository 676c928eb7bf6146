package batch

// Opening connections, and finding out whether the client can open them.

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Opening a connection takes several round trips. So a sender opens its connection before it
// takes calls: those that time out meanwhile are not sent.
//
// If a client cannot connect, it tries for longer than the timeout before it returns an error.
// Its failures add up: after PoolSize of them it tries only once a second. So the queue opens a
// connection by itself, without the client, after one was lost or all were closed, and if a call is late
// and the client has none. If that fails, the callers get the error at once.

// openTime is how long opening a connection may take, in timeouts.
const openTime = 10

// Connect opens connections before the first call: a few, or more to a server that is far away.
func (q *Queue) Connect(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- q.openAll(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openAll opens connections to all servers.
func (q *Queue) openAll(ctx context.Context) (err error) {
	defer q.guard(&err)
	switch rdb := q.rdb.(type) {
	case *redis.Client:
		return q.open(ctx, rdb)
	case interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	}:
		return rdb.ForEachMaster(ctx, q.open)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		return rdb.ForEachShard(ctx, q.open)
	}
	return q.rdb.Ping(ctx).Err()
}

// open opens connections to a server. Pings that are under way together have one each.
func (q *Queue) open(ctx context.Context, server *redis.Client) error {
	ping := func() (err error) {
		defer q.guard(&err)
		if err = server.Ping(ctx).Err(); redis.HasErrorPrefix(err, "NOPERM") { // on a connection that is open
			return nil
		}
		return err
	}
	if err := ping(); err != nil {
		return err
	}
	start := time.Now()
	if err := ping(); err != nil {
		return err
	}
	took := time.Since(start)
	if q.single {
		q.mu.Lock()
		l := q.lane(route{server: server}, start)
		l.response = cmp.Or(l.response, took)
		q.mu.Unlock()
	}
	n := batches(connections(server), took)
	errs := make(chan error, n)
	for range n {
		go func() { errs <- ping() }()
	}
	var err error
	for range n {
		err = cmp.Or(err, <-errs)
	}
	return err
}

// connect sees to it that the client has a connection to the server of a key.
func (q *Queue) connect(key string) (err error) {
	defer q.guard(&err)
	lost := q.lost.Load()
	if server := q.known(key); server != nil && !lost && server.PoolStats().IdleConns > 0 {
		return nil
	}
	return q.with(key, func(ctx context.Context, server *redis.Client) error {
		if lost || server.PoolStats().TotalConns == 0 && q.reached.Load() {
			if err := q.probe(ctx, server); err != nil {
				return err
			}
		}
		err := server.Ping(ctx).Err()
		if q.noteLost(err); isReply(err) {
			return nil
		}
		return err
	})
}

// noteLost notes that a connection could not be opened, or was closed.
func (q *Queue) noteLost(err error) {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.As(err, &op) && !op.Timeout() {
		q.lost.Store(true)
	}
}

// probeLate ends the calls of a lane if the client has no connection to the server of a key, and none
// can be opened.
func (q *Queue) probeLate(l *lane, key string) {
	opened := false
	err := q.with(key, func(ctx context.Context, server *redis.Client) error {
		if server.PoolStats().TotalConns > 0 {
			return nil
		}
		err := q.probe(ctx, server)
		opened = err == nil
		return err
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.probing = false; opened {
		l.opened = time.Now()
	}
	for err != nil && l.calls.Len() > 0 {
		l.calls.Front().Value.(*Call).end(err)
	}
}

// with calls do with the server of a key, if the client can tell which it is.
func (q *Queue) with(key string, do func(context.Context, *redis.Client) error) (err error) {
	defer q.guard(&err)
	ctx, cancel := context.WithTimeout(context.Background(), openTime*q.timeout)
	defer cancel()
	if server := q.server(ctx, key); server != nil {
		return do(ctx, server)
	}
	return nil
}

// probe opens and closes a connection to a server.
func (q *Queue) probe(ctx context.Context, server *redis.Client) error {
	o := server.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if q.lost.Store(err != nil); err != nil {
		return err
	}
	return conn.Close()
}
