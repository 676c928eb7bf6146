package batch

// Sending a batch, and giving each call its reply.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Exchange sends charges to Redis in one command, and sets the Reply or the Err of each. Those
// that have neither get the error that it returns. It sends a charge again only if Redis has not
// run it.
type Exchange func(send Send, calls []*Call) error

// A Command sends a call that is not a charge.
type Command func(send Send) (reply []any, err error)

// A Send sends a command once. keyAt is the index of its first key. If the command has none, keyAt
// is 0, and the command goes to the server that has the keys of the calls. A reply that is not an
// array is returned as an array of one.
type Send func(args []any, keyAt int8) (reply []any, err error)

// How long a batch may take, in timeouts. Its callers leave after one. At the batch's deadline the
// client closes the connection.
const batchTime = 3

// A batch is the calls of one command, and their context. It is canceled when none of its callers
// waits: if the batch still waits for a connection, it is then not sent. Its deadline is for the
// client's socket, and cancels nothing. A context of package context would allocate six times.
type batch struct {
	lane       *lane
	generation int     // of its sender
	calls      []*Call // the oldest first
	weight     int     // of all calls
	waiting    int     // of the calls
	sent       time.Time
	deadline   time.Time
	done       chan struct{} // closed when none waits
}

func (b *batch) Deadline() (time.Time, bool) { return b.deadline, true }

func (b *batch) Done() <-chan struct{} { return b.done }

func (b *batch) Err() error {
	select {
	case <-b.done:
		return context.Canceled
	default:
		return nil
	}
}

func (*batch) Value(any) any { return nil }

// start starts a goroutine that sends, if one more may.
func (q *Queue) start(l *lane) {
	if l.ready == 0 && l.sending < l.most() {
		l.sending++
		go q.send(l, l.generation)
	}
}

// sendDirect sends the caller's own call in its goroutine.
func (q *Queue) sendDirect(own *batch) {
	q.sendBatch(own)
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := own.lane; l.next != nil {
		go q.send(l, own.generation)
	} else {
		l.leave(own.generation)
	}
}

// send sends batches until no call queues. It yields between them: callers that were just
// answered can join the next batch. Most have not run yet when one yield ends.
func (q *Queue) send(l *lane, generation int) {
	for b := q.next(l, generation); b != nil; b = q.next(l, generation) {
		q.sendBatch(b)
		runtime.Gosched()
		runtime.Gosched()
	}
}

// next takes the next batch, when the client has a connection for it and it is its turn. If no
// call queues, or the sender was given up, it returns nil, and the sender ends.
func (q *Queue) next(l *lane, generation int) *batch {
	var err error
	if first := q.first(l, generation); first != nil {
		err = q.ensureConnection(first.Keys[0])
	}
	q.queueUp(l, generation, err)
	for {
		b, wait := q.turn(l, generation)
		if wait <= 0 {
			return b
		}
		time.Sleep(wait)
	}
}

// first returns the first call that queues, if the sender goes on.
func (q *Queue) first(l *lane, generation int) *Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.sends(generation) {
		return nil
	}
	return l.next.Value.(*Call)
}

// queueUp has a sender wait for its turn. err says why the client has no connection for it.
func (q *Queue) queueUp(l *lane, generation int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil && generation == l.generation {
		l.doubt = max(l.doubt, doubtOf(err))
		for l.next != nil && !isLate(err) { // if that only took too long, a call waits for its own timeout
			l.next.Value.(*Call).end(err)
		}
	}
	l.ready++
}

// turn takes the next batch, or returns how long the sender has to wait. Both are zero if it ends.
func (q *Queue) turn(l *lane, generation int) (b *batch, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	l.shed(now)
	goesOn := l.sends(generation)
	if wait = l.resume.Sub(now); goesOn && wait > 0 {
		return nil, wait
	}
	if l.ready--; goesOn {
		return l.take(now, batchTime*q.timeout), 0
	}
	l.leave(generation)
	if l.sends(l.generation) { // it was given up, and while it was ready no other one has started
		q.start(l)
	}
	return nil, 0
}

// sends reports whether a sender goes on.
func (l *lane) sends(generation int) bool {
	return l.next != nil && l.doubt <= tried && generation == l.generation
}

// leave notes that a sender ends. One that was given up is not counted any more.
func (l *lane) leave(generation int) {
	if generation == l.generation {
		l.sending--
	}
}

// sendBatch sends a batch and wakes its callers.
func (q *Queue) sendBatch(b *batch) {
	err := q.try(b, b.calls)
	if redis.HasErrorPrefix(err, "CROSSSLOT") {
		// The server behind a plain client is part of a cluster. Nothing was run.
		q.sharded.Store(true)
		for i := 0; len(b.calls) > 1 && i < len(b.calls); i++ {
			if err := q.try(b, b.calls[i:i+1]); err != nil {
				b.calls[i].Err = err
			}
		}
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil && !isReply(err) {
		b.lane.unanswered(b, err)
	} else if b.generation == b.lane.generation {
		b.lane.learn(b, now)
	}
	for _, c := range b.calls {
		if c.Reply == nil && c.Err == nil {
			c.Err = err
		}
		c.end(c.Err)
	}
}

// try exchanges calls of a batch in one command.
func (q *Queue) try(b *batch, calls []*Call) (err error) {
	defer q.guard(&err)
	send := func(args []any, keyAt int8) ([]any, error) { return q.process(b, args, keyAt) }
	if c := calls[0]; c.Command != nil {
		c.Reply, err = c.Command(send)
		return err
	}
	return q.exchange(send, calls)
}

// isReply reports whether an error is Redis's reply.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// process sends a command of a batch once.
func (q *Queue) process(b *batch, args []any, keyAt int8) ([]any, error) {
	var client processor = q.rdb
	if keyAt == 0 {
		if server := q.server(b, b.calls[0].Keys[0]); server != nil {
			client = server
		}
	}
	reply, err := sendTo(b, client)(args, keyAt)
	if err == nil {
		q.reached.Store(true)
	}
	return reply, err
}

// A processor is a client.
type processor interface {
	Process(context.Context, redis.Cmder) error
}

// sendTo returns what sends commands by a client.
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

// command is a Redis command that the client does not retry: if a charge was sent and not
// answered, it may have been taken. A Cluster's client still repeats it after MOVED, ASK and
// READONLY. Then nothing was written: a server's role does not change while a script runs.
type command struct{ *redis.Cmd }

// NoRetry turns the client's retries off.
func (command) NoRetry() bool { return true }

// guard turns a panic of the client or one of its hooks into an error: otherwise it would end the
// process. It logs one a minute. It is deferred.
func (q *Queue) guard(err *error) {
	v := recover()
	if v == nil {
		return
	}
	*err = fmt.Errorf("panic: %v", v)
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.panicLogged) > time.Minute {
		q.panicLogged = time.Now()
		slog.Default().Error("redisstore: the Redis client or one of its hooks panicked; if it was opening a connection, its pool has lost a place, and after PoolSize such panics every call fails: fix the cause and make a new client",
			"code", "redis-panic", "panic", v)
	}
}
