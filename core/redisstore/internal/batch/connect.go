package batch

// Opening connections, and finding out whether the client can.

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
// Its failures add up: after PoolSize of them it tries only once a second. So after a
// connection was lost, and if a call is late and the client has no connection, the queue opens
// one itself. If that fails, the callers get the error at once.

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
	server, lost := q.known(key), q.lost.Load()
	if server != nil && !lost && server.PoolStats().IdleConns > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime*q.timeout)
	defer cancel()
	if server = q.server(ctx, key); server == nil {
		return nil
	}
	pool := server.PoolStats()
	if lost || pool.TotalConns == 0 && q.reached.Load() {
		if err := q.probe(ctx, server); err != nil || pool.IdleConns > 0 {
			return err
		}
	}
	err = server.Ping(ctx).Err()
	if err == nil || isReply(err) {
		return nil
	}
	q.noteLost(err)
	return err
}

// noteLost notes that a connection could not be opened, or was closed.
func (q *Queue) noteLost(err error) {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.As(err, &op) && !op.Timeout() {
		q.lost.Store(true)
	}
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

// probeLate ends the calls of a lane if the client cannot connect to the server of a key. While the
// client has a connection, that may be one that is lost: it looks again soon.
func (q *Queue) probeLate(l *lane, key string) {
	pause := time.Second // a server that hangs is sent little
	err := func() (err error) {
		defer q.guard(&err)
		ctx, cancel := context.WithTimeout(context.Background(), openTime*q.timeout)
		defer cancel()
		server := q.server(ctx, key)
		if server == nil || server.PoolStats().TotalConns > 0 {
			pause = q.late()
			return nil
		}
		return q.probe(ctx, server)
	}()
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.probing = false; err == nil {
		l.probeNext = time.Now().Add(pause)
		return
	}
	for e := l.calls.Front(); e != nil; e = l.calls.Front() {
		e.Value.(*Call).end(err)
	}
}
