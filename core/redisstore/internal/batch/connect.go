package batch

// Opening connections, and finding out whether the client can open them.

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Opening a connection takes several round trips. So a sender opens its connection before it
// takes calls: those that time out meanwhile are not sent.
//
// A doubt says why nothing is sent: if a call has no answer, its connection may be dead, or the server. This is
// all that changes it:
//
//	queueUp     no connection can be opened: cut or mute
//	unanswered  what was sent has no answer: cut or mute
//	conclude    a check: if a new connection answers, tried; if it is refused, cut
//	learn       what was sent has an answer: none
//
// A check opens a connection by itself: if a client cannot connect, it tries for longer than the timeout before
// it returns an error. Its failures add up too: after PoolSize of them it tries only once a second. If no
// connection can be opened, the callers get the error at once. If the new connection answers and the old ones
// did not, the check asks all idle ones at once, so that the dead ones go together. With the first that
// answers, a batch tries again.
type doubt int

const (
	none  doubt = iota
	tried       // one batch may be under way until there is an answer
	cut         // a connection was closed, or could not be opened
	mute        // what was sent had no answer in time
)

const (
	openTime  = 10 // how long opening a connection may take, in timeouts
	maxChecks = 4  // under way at a time, since a Dialer may hang

	maxRecheck = 100 * time.Millisecond // from a connection that was closed to the next check, at most
)

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

// Ask has do send commands to the server of a key, beside the calls that wait.
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
		l := q.lane(route{server: server})
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

// ensureConnection sees to it that the client has a connection to the server of a key.
func (q *Queue) ensureConnection(key string) (err error) {
	defer q.guard(&err)
	if server := q.known(key); server != nil && server.PoolStats().IdleConns > 0 {
		return nil
	}
	return q.withServer(nil, key, func(_ context.Context, server *redis.Client) error { return q.firstPong(server, 1) })
}

// unanswered takes the error of a batch that has no answer.
func (l *lane) unanswered(b *batch, err error) {
	if d := doubtOf(err); b != nil && b.senders.current() && (d != mute || !l.answered.After(b.sent)) {
		l.doubt = max(l.doubt, d)
		if soon := time.Now().Add(min(l.timeout, maxRecheck)); d == cut && soon.Before(l.recheck) {
			l.recheck = soon
		}
	}
}

// doubtOf returns the doubt that an error leaves.
func doubtOf(err error) doubt {
	var op *net.OpError
	switch {
	case isLate(err):
		return mute
	case errors.Is(err, io.EOF), errors.As(err, &op):
		return cut
	}
	return none
}

// isLate reports whether an error says that there was no answer in time.
func isLate(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// startCheck starts a check, unless there was one lately.
func (q *Queue) startCheck(l *lane, now time.Time) {
	if l.checks < maxChecks && (l.doubt > tried || l.checks == 0) && !now.Before(l.recheck) {
		l.checks++
		if l.doubt > tried {
			l.recheck = now.Add(q.timeout)
		}
		go q.recoverLane(l, l.key, l.doubt)
	}
}

// recoverLane finds out whether the server of a lane answers on a new connection. If it does, the client gets rid of
// dead connections, what is sending is given up, and sending goes on.
func (q *Queue) recoverLane(l *lane, key string, why doubt) {
	server, took, err := q.check(l.server, key, why)
	replaces := q.checked(l, why, server, err)
	if replaces {
		err = q.replaceDead(server, why, took)
	}
	q.conclude(l, replaces, err)
}

// check asks the server of a lane or a key on a new connection, and returns how long the answer took. Without a
// doubt it asks only if the client has no connection. Otherwise, or if it cannot tell which server it is, server is
// nil.
func (q *Queue) check(known *redis.Client, key string, why doubt) (server *redis.Client, took time.Duration, err error) {
	err = q.withServer(known, key, func(ctx context.Context, s *redis.Client) (err error) {
		if why > tried || s.PoolStats().TotalConns == 0 {
			server = s
			took, err = q.dialAndPing(ctx, s)
		}
		return err
	})
	return server, took, err
}

// checked ends a check. It reports whether this one is to replace dead connections: only one at a time does.
func (q *Queue) checked(l *lane, why doubt, server *redis.Client, err error) (replaces bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.checks--
	if err == nil && server != nil {
		l.recheck = time.Now().Add(batchTime * q.timeout)
	}
	replaces = err == nil && why > tried && l.doubt > tried && !l.replacing
	l.replacing = l.replacing || replaces
	return replaces
}

// conclude has sending go on if dead connections were replaced. If the server refuses connections, it ends all calls.
func (q *Queue) conclude(l *lane, replaced bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.replacing = l.replacing && !replaced
	switch {
	case err != nil && !isLate(err):
		l.recheck, l.doubt = time.Time{}, max(l.doubt, cut)
		for l.calls.Len() > 0 {
			l.calls.Front().Value.(*Call).end(err)
		}
	case err == nil && replaced && l.doubt > tried:
		l.doubt, l.senders = tried, &senders{lane: l}
		if l.next != nil {
			q.start(l)
		}
	}
}

// replaceDead sees to it that the client has a connection that works. If the open ones may be dead, it asks all that
// are idle, and one more. If the server is slow, they have twice as long as the new connection took.
func (q *Queue) replaceDead(server *redis.Client, why doubt, took time.Duration) error {
	switch {
	case server == nil:
		return nil
	case why == mute:
		return q.firstPong(server.WithTimeout(max(q.timeout, 2*took)), 1+int(server.PoolStats().IdleConns))
	}
	return q.firstPong(server, 1)
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

// firstPong pings a server n times at once, on a connection each, and returns when the first has answered. The
// others go on: a client that is canceled while it opens a connection keeps that as an idle one. As many as may be
// needed are repeated, and open new connections. The others only close what is dead: they would take the first
// new ones from the calls.
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
