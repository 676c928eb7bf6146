package batch

// This file asks the client of go-redis for its servers and connections, and has it send commands.
// To open a connection takes several round trips. A sender opens its connection before it takes
// calls, so that calls that time out meanwhile are not sent.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core/notice"
)

// A redisClient is a client of go-redis.
type redisClient struct {
	rdb      redis.UniversalClient
	timeout  time.Duration
	single   bool          // the client is for one server
	heeds    bool          // the client is for one server and heeds deadlines
	reached  atomic.Bool   // a server has answered a command
	panicked notice.Rarely // when to log that the client or one of its hooks has panicked
}

// Server returns the address of the server that has a key, on a Cluster or a Ring. It returns ""
// for another client, before the first answer, or if the client cannot tell.
func (c *redisClient) Server(key string) string {
	if server := c.known(key); server != nil && !c.single {
		return server.Options().Addr
	}
	return ""
}

// known returns the client of the server that has a key, or nil if the server is not known. Before
// the first answer a client for a Cluster would have to ask Redis, so known returns nil.
func (c *redisClient) known(key string) *redis.Client {
	if !c.single && !c.reached.Load() {
		return nil
	}
	return c.server(context.Background(), key)
}

// server returns the client of the server that has a key, or nil if the client cannot tell.
func (c *redisClient) server(ctx context.Context, key string) (server *redis.Client) {
	var err error
	switch rdb := c.rdb.(type) {
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

// connections returns how many connections a client may use.
func connections(server *redis.Client) int {
	o := server.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// heedsDeadlines reports whether a caller who sends its own call returns at its deadline.
// Everything that the client runs in the goroutine of the caller must heed the deadline. The Dialer
// need not, because the client dials in another goroutine.
func heedsDeadlines(o *redis.Options) bool {
	return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 && // with a negative timeout the client sets no deadlines
		o.Limiter == nil && o.OnConnect == nil &&
		o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}

// askForMasters has the client of a Cluster look for new masters. Without askForMasters the client
// looks by default once a minute, and when it retries a command. It does not retry the calls of the
// queue. The client looks at most five times a second.
func (c *redisClient) askForMasters() {
	if c, ok := c.rdb.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(context.Background())
	}
}

// openTime is how long the client may take to open a connection, as a multiple of the timeout.
const openTime = 10

// For each server, connect opens connections, and then calls the function each. If the client is
// for a Cluster or a Ring, it calls each with the address of the server, and otherwise with "". If
// the client is for one server, connect first calls the function report with the time that an
// answer took.
func (c *redisClient) connect(ctx context.Context, report func(*redis.Client, time.Duration), each func(string, Send) error) (err error) {
	defer c.guard(&err)
	warm := func(ctx context.Context, server *redis.Client) (err error) {
		defer c.guard(&err)
		took, err := c.warm(ctx, server)
		if err != nil {
			return err
		}
		c.reached.Store(true)
		if c.single {
			report(server, took)
			return each("", sendTo(ctx, server))
		}
		return each(server.Options().Addr, sendTo(ctx, server))
	}
	switch rdb := c.rdb.(type) {
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
	if err := c.rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	return each("", sendTo(ctx, c.rdb))
}

// warm opens connections to a server, and returns how long an answer took. It sends several pings
// at once, because each of them needs a connection.
func (c *redisClient) warm(ctx context.Context, server *redis.Client) (took time.Duration, err error) {
	ping := func() (err error) {
		defer c.guard(&err)
		if err = server.Ping(ctx).Err(); redis.HasErrorPrefix(err, "NOPERM") { // then the connection is open
			return nil
		}
		return err
	}
	if err := ping(); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := ping(); err != nil {
		return 0, err
	}
	took = time.Since(start)
	n := batches(connections(server), took)
	errs := make(chan error, n)
	for range n {
		go func() { errs <- ping() }()
	}
	for range n {
		err = cmp.Or(err, <-errs)
	}
	return took, err
}

// Holds reports whether the client ignores deadlines, and may hold a connection for longer than a
// batch may take. read is the ReadTimeout of the client.
func (c *redisClient) Holds() (read time.Duration, holds bool) {
	heeds := true // a client of another type does not say
	switch rdb := c.rdb.(type) {
	case interface{ Options() *redis.Options }:
		heeds, read = rdb.Options().ContextTimeoutEnabled, rdb.Options().ReadTimeout
	case interface{ Options() *redis.ClusterOptions }:
		heeds, read = rdb.Options().ContextTimeoutEnabled, rdb.Options().ReadTimeout
	case interface{ Options() *redis.RingOptions }:
		heeds, read = rdb.Options().ContextTimeoutEnabled, rdb.Options().ReadTimeout
	}
	return read, !heeds && (read <= 0 || read > batchTime*c.timeout) // without a ReadTimeout the client holds it for ever
}

// Ask calls the function do, which sends commands to the server of a key. These commands do not
// wait in a queue.
func (c *redisClient) Ask(key string, do func(send Send) error) (err error) {
	defer c.guard(&err)
	ctx, cancel := context.WithTimeout(context.Background(), openTime*c.timeout)
	defer cancel()
	var client processor = c.rdb
	if server := c.server(ctx, key); server != nil {
		client = server
	}
	return do(sendTo(ctx, client))
}

// ensureConnection has the client open a connection to the server of a key, unless one is idle.
func (c *redisClient) ensureConnection(key string) (err error) {
	defer c.guard(&err)
	server := c.known(key)
	if server != nil && server.PoolStats().IdleConns > 0 {
		return nil
	}
	return c.withServer(server, key, func(_ context.Context, server *redis.Client) error { return c.firstPong(server, 1) })
}

// withServer calls the function do with the given server. If server is nil, it calls do with the
// server that has the key. If the client cannot tell which server has the key, withServer
// returns nil without calling do.
func (c *redisClient) withServer(server *redis.Client, key string, do func(context.Context, *redis.Client) error) (err error) {
	defer c.guard(&err)
	ctx, cancel := context.WithTimeout(context.Background(), openTime*c.timeout)
	defer cancel()
	if server == nil {
		server = c.server(ctx, key)
	}
	if server == nil {
		return nil
	}
	return do(ctx, server)
}

// dialAndPing opens a connection to a server, pings the server, and returns how long the answer
// took. If the server closes the connection instead, that counts as an answer.
func (c *redisClient) dialAndPing(ctx context.Context, server *redis.Client) (took time.Duration, err error) {
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

// firstPong sends n pings to a server at once, each on its own connection, and returns when the
// first one is answered.
//
// The other pings go on, because a client that is canceled while it opens a connection keeps the
// connection as idle. If one of the first manyBatches pings fails, the client may repeat it on a
// new connection. The client does not repeat the pings after these, which only close dead
// connections: they would take the first new connections from the calls.
func (c *redisClient) firstPong(server *redis.Client, n int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTime*c.timeout)
	errs := make(chan error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			defer func() { errs <- err }()
			defer c.guard(&err)
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
		if err = <-errs; err == nil || IsReply(err) {
			return nil
		}
	}
	return err
}

// process sends a command once. If the command has no key, it goes to the server of the given key.
func (c *redisClient) process(ctx context.Context, key string, args []any, keyAt int8) ([]any, error) {
	var client processor = c.rdb
	if keyAt == 0 {
		if server := c.server(ctx, key); server != nil {
			client = server
		}
	}
	reply, err := sendTo(ctx, client)(args, keyAt)
	if err == nil {
		c.reached.Store(true)
	}
	return reply, err
}

// A processor is a client of one server or of several.
type processor interface {
	Process(context.Context, redis.Cmder) error
}

// sendTo returns a Send that uses a client.
func sendTo(ctx context.Context, client processor) Send {
	return func(args []any, keyAt int8) ([]any, error) {
		cmd := command{redis.NewCmd(ctx, args...)}
		cmd.SetFirstKeyPos(keyAt)
		cmd.SetStepCount(1) // otherwise a Cluster's client sends COMMAND to its nodes
		if err := client.Process(ctx, cmd); err != nil {
			return nil, err
		}
		if values, ok := cmd.Val().([]any); ok {
			return values, nil
		}
		return []any{cmd.Val()}, nil
	}
}

// A command is a Redis command that the client does not retry: if a charge was sent and not
// answered, Redis may have run it. The client of a Cluster still repeats a command after the errors
// MOVED, ASK and READONLY. Then Redis has written nothing, because the role of a server does not
// change while a script runs.
type command struct{ *redis.Cmd }

// NoRetry makes the client not retry the command, except after the errors above.
func (command) NoRetry() bool { return true }

// guard turns a panic of the client or of one of its hooks into an error, because the panic would
// end the process. It logs one panic a minute. The caller defers guard.
func (c *redisClient) guard(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v", v)
		if c.panicked.Due() {
			slog.Default().Error("redisstore: the Redis client or one of its hooks panicked; if it was opening a connection, its pool has lost a place, and after PoolSize such panics every call fails: fix the cause and make a new client",
				"code", "redis-panic", "panic", v)
		}
	}
}

// IsReply reports whether an error is a reply of Redis.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}
