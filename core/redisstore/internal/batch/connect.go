package batch

// Opening connections. That takes several round trips, so a sender opens its connection before it takes calls: those
// that time out meanwhile are not sent.

import (
	"cmp"
	"context"
	"io"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// openTime is how long opening a connection may take, in timeouts.
const openTime = 10

// Connect opens connections before the first call: a few, or more to a server that is far away. Then it calls
// each for each server, whose address is empty if there is one only.
func (q *Queue) Connect(ctx context.Context, each func(server string, send Send) error) error {
	done := make(chan error, 1)
	go func() { done <- q.warmAll(ctx, each) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// warmAll opens connections to all servers.
func (q *Queue) warmAll(ctx context.Context, each func(string, Send) error) (err error) {
	defer q.guard(&err)
	warm := func(ctx context.Context, server *redis.Client) (err error) {
		defer q.guard(&err)
		if err := q.warm(ctx, server); err != nil {
			return err
		}
		q.reached.Store(true)
		addr := ""
		if !q.single {
			addr = server.Options().Addr
		}
		return each(addr, sendTo(ctx, server))
	}
	switch rdb := q.rdb.(type) {
	case *redis.Client:
		return warm(ctx, rdb)
	case interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	}:
		return rdb.ForEachMaster(ctx, warm)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		return rdb.ForEachShard(ctx, warm)
	}
	if err := q.rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	return each("", sendTo(ctx, q.rdb))
}

// Holds reports whether the client ignores deadlines, and by its ReadTimeout holds a connection for longer than a batch
// may take.
func (q *Queue) Holds() (read time.Duration, holds bool) {
	heeds := true // a client of another type tells nothing
	switch rdb := q.rdb.(type) {
	case interface{ Options() *redis.Options }:
		heeds, read = rdb.Options().ContextTimeoutEnabled, rdb.Options().ReadTimeout
	case interface{ Options() *redis.ClusterOptions }:
		heeds, read = rdb.Options().ContextTimeoutEnabled, rdb.Options().ReadTimeout
	case interface{ Options() *redis.RingOptions }:
		heeds, read = rdb.Options().ContextTimeoutEnabled, rdb.Options().ReadTimeout
	}
	return read, !heeds && (read <= 0 || read > batchTime*q.timeout) // without a ReadTimeout it is held for ever
}

// Ask calls do, which sends commands to the server of a key. These do not queue with the waiting
// calls.
func (q *Queue) Ask(key string, do func(send Send) error) (err error) {
	defer q.guard(&err)
	ctx, cancel := context.WithTimeout(context.Background(), openTime*q.timeout)
	defer cancel()
	var client processor = q.rdb
	if server := q.server(ctx, key); server != nil {
		client = server
	}
	return do(sendTo(ctx, client))
}

// warm opens connections to a server. Pings that are under way together have one each.
func (q *Queue) warm(ctx context.Context, server *redis.Client) error {
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
		p := &q.lane(route{server: server}).pacing
		p.response = cmp.Or(p.response, took)
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

// ensureConnection sees to it that the client has a connection to the server of a key.
func (q *Queue) ensureConnection(key string) (err error) {
	defer q.guard(&err)
	if server := q.known(key); server != nil && server.PoolStats().IdleConns > 0 {
		return nil
	}
	return q.withServer(nil, key, func(_ context.Context, server *redis.Client) error { return q.firstPong(server, 1) })
}

// withServer calls do with a server, or with that of a key, if the client can tell which it is.
func (q *Queue) withServer(server *redis.Client, key string, do func(context.Context, *redis.Client) error) (err error) {
	defer q.guard(&err)
	ctx, cancel := context.WithTimeout(context.Background(), openTime*q.timeout)
	defer cancel()
	if server == nil {
		server = q.server(ctx, key)
	}
	if server == nil {
		return nil
	}
	return do(ctx, server)
}

// dialAndPing opens a connection to a server, pings it, and returns how long the answer took. One that
// closes the connection is there too.
func (q *Queue) dialAndPing(ctx context.Context, server *redis.Client) (took time.Duration, err error) {
	o := server.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start := time.Now()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	if _, err = io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if isLate(err) {
		return 0, err
	}
	return time.Since(start), nil
}

// firstPong pings a server n times at once, each on a separate connection, and returns when the
// first ping is answered. The other pings go on, because a client that is canceled while it opens a
// connection keeps the connection as idle. Pings that may be needed are repeated on new
// connections. The others only close dead connections: if they were repeated, they would take the
// first new connections from the calls.
func (q *Queue) firstPong(server *redis.Client, n int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTime*q.timeout)
	errs := make(chan error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			defer func() { errs <- err }()
			defer q.guard(&err)
			if i >= manyBatches {
				err = server.Process(ctx, command{redis.NewCmd(ctx, "ping")})
			} else {
				err = server.Ping(ctx).Err()
			}
		})
	}
	go func() {
		all.Wait()
		cancel()
	}()
	for range n {
		if err = <-errs; err == nil || isReply(err) {
			return nil
		}
	}
	return err
}
