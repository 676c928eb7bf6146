package batch

// Sending a batch, and giving each call its reply.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Exchange sends calls to Redis in one command, and sets the Reply or the Err of each. The
// calls that have neither get the error that it returns. It sends a call again only if Redis has
// not run it. All calls are of some weight, or there is one.
type Exchange func(send Send, calls []*Call) error

// A Send sends a command once. keyAt is the index of its first key. If the command has none, keyAt
// is 0, and the command goes to the server that has the keys of the calls. A reply that is not an
// array is returned as an array of one.
type Send func(args []any, keyAt int8) (reply []any, err error)

// How long a batch may take, in timeouts. Its callers leave after one. At the batch's deadline the
// client closes the connection, and opening one takes three round trips, which may be more
// than one timeout.
const batchTime = 5

// send sends batches until no call queues. It yields between them: callers that were just
// answered can join the next batch. Most have not run yet when one yield ends.
func (q *Queue) send(l *lane) {
	for b := q.next(l); b != nil; b = q.next(l) {
		q.sendBatch(b)
		runtime.Gosched()
		runtime.Gosched()
	}
}

// next takes the next batch. If there is none it returns nil, and the sender ends.
func (q *Queue) next(l *lane) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.queued > 0 {
		l.started = time.Now()
		return l.take(l.started.Add(batchTime * q.timeout))
	}
	if l.sending--; l.sending == 0 && l.alone {
		delete(q.lanes, l.route)
	}
	return nil
}

// sendBatch sends a batch and wakes its callers.
func (q *Queue) sendBatch(b *batch) {
	answered := q.run(b)
	q.mu.Lock()
	defer q.mu.Unlock()
	if b.lane.answered = (time.Time{}); answered {
		b.lane.answered = time.Now()
	}
	for _, c := range b.calls {
		c.end(c.Err)
	}
}

// run exchanges a batch, and reports whether Redis answered. If a hook of the client panics, the
// calls get an error: otherwise the panic would end the process.
func (q *Queue) run(b *batch) (answered bool) {
	defer func() {
		if v := recover(); v != nil {
			q.logPanic(v)
			fail(b.calls, fmt.Errorf("panic: %v", v))
		}
	}()
	send := func(args []any, keyAt int8) ([]any, error) { return q.process(b, args, keyAt) }
	err := q.exchange(send, b.calls)
	if err == nil {
		return true
	}
	if len(b.calls) > 1 && redis.HasErrorPrefix(err, "CROSSSLOT") {
		// The server behind a plain client is part of a cluster. Nothing was run.
		q.sharded.Store(true)
		for i := range b.calls {
			fail(b.calls[i:i+1], q.exchange(send, b.calls[i:i+1]))
		}
		return true
	}
	fail(b.calls, err)
	var reply redis.Error
	return errors.As(err, &reply)
}

// fail gives an error to the calls that have no reply.
func fail(calls []*Call, err error) {
	for _, c := range calls {
		if c.Reply == nil && c.Err == nil {
			c.Err = err
		}
	}
}

// process sends a command once.
func (q *Queue) process(b *batch, args []any, keyAt int8) ([]any, error) {
	if !b.direct && q.dialFailed() { // a caller cannot leave a probe that it makes itself
		if err := q.probe(b); err != nil {
			return nil, err
		}
	}
	cmd := command{redis.NewCmd(b, args...)}
	cmd.SetFirstKeyPos(keyAt)
	cmd.SetStepCount(1) // otherwise a Cluster's client sends COMMAND to its nodes
	var client interface {
		Process(context.Context, redis.Cmder) error
	} = q.rdb
	if keyAt == 0 {
		if server := q.server(b, b.calls[0].Keys[0]); server != nil {
			client = server
		}
	}
	if err := client.Process(b, cmd); err != nil {
		var opErr *net.OpError
		if errors.As(err, &opErr) && opErr.Op == "dial" && b.Err() == nil {
			q.noteDialFailed()
		}
		return nil, err
	}
	q.reached.Store(true)
	if values, ok := cmd.Val().([]any); ok {
		return values, nil
	}
	return []any{cmd.Val()}, nil
}

// command is a Redis command that the client does not retry: if a charge was sent and not
// answered, it may have been taken. A Cluster's client still repeats it after MOVED, ASK and
// READONLY. Then nothing was written: a server's role does not change while a script runs.
type command struct{ *redis.Cmd }

// NoRetry turns the client's retries off.
func (command) NoRetry() bool { return true }

// logPanic logs a panic of the client, at most once a minute.
func (q *Queue) logPanic(v any) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.panicLogged) > time.Minute {
		q.panicLogged = time.Now()
		slog.Default().Error("redisstore: the Redis client or one of its hooks panicked; if it was opening a connection, its pool has lost a place, and after PoolSize such panics every call fails: fix the cause and make a new client",
			"code", "redis-panic", "panic", v)
	}
}
