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

// An Exchange sends charges to Redis in one command. It sets the Reply or the Err of each charge.
// If it sets neither for a charge, that charge gets the error that Exchange returns. It sends a
// charge again only if Redis has not run it. If it returns an [Apart], each charge is sent again in
// a separate command.
type Exchange func(send Send, calls []*Call) error

// Apart is a reply of Redis that refuses several keys in one command, and would allow each alone.
// Nothing has run.
type Apart struct{ Reply error }

func (a Apart) Error() string { return a.Reply.Error() }

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
	senders  *senders // its sender is one of these
	calls    []*Call  // the oldest first
	weight   int      // of all calls
	waiting  int      // of the calls
	sent     time.Time
	deadline time.Time
	done     chan struct{} // closed when none waits
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

// senders are the goroutines and callers that send the calls of a lane. When its connections have turned out to be
// dead, they may hang. Then they are given up, and the lane gets others.
type senders struct {
	lane    *lane
	running int
	ready   int // of these: those that wait for their turn
}

// current reports whether they are not given up.
func (s *senders) current() bool { return s == s.lane.senders }

// goOn reports whether they send one more batch.
func (s *senders) goOn() bool {
	return s.current() && s.lane.calls.first != nil && !s.lane.health.down()
}

// start starts a goroutine that sends, if one more may.
func (l *lane) start() {
	most := l.pacing.most()
	if l.health.state == trial {
		most = 1
	}
	if s := l.senders; s.ready == 0 && s.running < most {
		s.running++
		go l.q.send(s)
	}
}

// sendDirect sends the caller's own call in its goroutine.
func (q *Queue) sendDirect(own *batch) {
	q.sendBatch(own)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := own.senders; s.goOn() {
		go q.send(s)
	} else {
		s.running--
	}
}

// send sends batches until no call queues. It yields between them: callers that were just
// answered can join the next batch. Most have not run yet when one yield ends.
func (q *Queue) send(s *senders) {
	for b := q.next(s); b != nil; b = q.next(s) {
		q.sendBatch(b)
		runtime.Gosched()
		runtime.Gosched()
	}
}

// next takes the next batch, when the client has a connection for it and it is its turn. If no
// call queues, or the sender was given up, it returns nil, and the sender ends.
func (q *Queue) next(s *senders) *batch {
	var err error
	if first := q.first(s); first != nil {
		err = q.ensureConnection(first.Keys[0])
	}
	q.queueUp(s, err)
	for {
		b, wait := q.turn(s)
		if wait <= 0 {
			return b
		}
		time.Sleep(wait)
	}
}

// first returns the first call that queues, if the sender goes on.
func (q *Queue) first(s *senders) *Call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.goOn() {
		return nil
	}
	return s.lane.calls.first
}

// queueUp has a sender wait for its turn. err says why the client has no connection for it.
func (q *Queue) queueUp(s *senders, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := s.lane; err != nil && s.current() {
		l.health.worsen(stateAfter(err))
		for l.calls.first != nil && !isLate(err) { // if that only took too long, a call waits for its own timeout
			l.calls.first.end(err)
		}
	}
	s.ready++
}

// turn takes the next batch, or returns how long the sender has to wait. Both are zero if it ends.
func (q *Queue) turn(s *senders) (b *batch, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, now := s.lane, time.Now()
	l.shed(now)
	goesOn := s.goOn()
	if wait = l.pacing.resume.Sub(now); goesOn && wait > 0 {
		return nil, wait
	}
	if s.ready--; goesOn {
		return l.take(now, batchTime*q.timeout), 0
	}
	s.running--
	return nil, 0
}

// sendBatch sends a batch and wakes its callers. If the server refuses several keys in one command,
// the calls of the batch and all later calls are sent alone.
func (q *Queue) sendBatch(b *batch) {
	apart := len(b.calls) > 1 && q.sharded.Load()
	var err error
	if !apart {
		err = q.try(b, b.calls)
		if refused, ok := err.(Apart); ok {
			q.SendApart()
			err, apart = refused.Reply, len(b.calls) > 1
		}
	}
	if apart {
		q.separate(b)
		return
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := b.senders.lane; err != nil && !isReply(err) {
		l.unanswered(b, err)
	} else if b.senders.current() {
		l.pacing.learn(b, now)
		l.health.answers(now)
	}
	for _, c := range b.calls {
		if c.Reply == nil && c.Err == nil {
			c.Err = err
		}
		c.end(c.Err)
	}
}

// SendApart makes each call be sent alone from now on.
func (q *Queue) SendApart() { q.sharded.Store(true) }

// separate moves the calls of a batch that Redis has not run to the lane of calls that are sent
// alone. If there was an answer, it came from a proxy, and says nothing about the server's health.
func (q *Queue) separate(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := b.senders.lane
	to := q.lane(route{from.server, true})
	for _, c := range b.calls {
		if c.lane == nil { // its caller has left
			continue
		}
		from.calls.remove(c)
		c.lane, c.batch = to, nil
		to.calls.add(c)
		to.start()
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
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v", v)
		if q.panicked.Due() {
			slog.Default().Error("redisstore: the Redis client or one of its hooks panicked; if it was opening a connection, its pool has lost a place, and after PoolSize such panics every call fails: fix the cause and make a new client",
				"code", "redis-panic", "panic", v)
		}
	}
}
