package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Charges are combined: while some are under way others queue, and when one comes
// back, or another charge comes a millisecond after the last left, those that queue go
// out together in one run of the script. A charge that finds nothing under way goes at
// once, and only those that queue have a timer, for a server that is far away, so combining
// costs an idle process nothing. It is for a single server; the nodes of a Cluster or Ring
// answer each for itself, so there every charge, and everywhere every other command, goes
// alone.
//
// Every caller waits by its own clock, not by the client's socket, which alone keeps
// Options.Timeout. That is the same for all, so one timer, set for whoever came first,
// does for all.
const (
	fewFlights  = 2                // under way at a time: more would only make them smaller
	manyFlights = 32               // with a server that is far away, or hangs
	pace        = time.Millisecond // between flights above the few
	lingers     = 8                // of which part of the time-out those who queue wait, if nobody comes

	maxCalls  = 8192 // that queue, or go alone: what a server that hangs can cost
	maxWeight = 512  // of a flight, in simple charges: how long a run may hold up others

	// What a flight may take, in time-outs, though its callers have left by then: a client
	// that heeds deadlines ends a connection with its first flight, and to open one takes
	// three round trips more. If that were never to be done within one time-out there would
	// never be a connection.
	flightTime = 5
)

// A call is a charge for the script, or a command of its own.
type call struct {
	keys []string
	*order

	line   []any
	keyAt  int8   // where in line the key is
	source string // of the script, if line runs one by its digest

	reply  any
	err    error
	state  atomic.Int32
	flight *flight    // once sent
	done   chan error // of one

	deadline     time.Time
	older, newer *call // of those without an answer
}

// The states of a call: who is first, the one who sends or answers or the one who leaves.
const (
	callWaits = iota
	callSent
	callAnswered
	callLeft
)

// A flight is calls that are sent together, and the context that they are sent with.
// When all their callers have left, what was not sent yet, for want of a connection, is
// not sent any more. By its deadline they have, so it needs no timer of its own.
type flight struct {
	context.Context
	cancel   context.CancelFunc
	deadline time.Time
	here     atomic.Int32 // callers who wait
}

// newFlight is a flight in which its maker waits.
func (s *Store) newFlight() *flight {
	f := &flight{deadline: time.Now().Add(flightTime * s.timeout)}
	f.Context, f.cancel = context.WithCancel(context.Background())
	f.here.Store(1)
	return f
}

// Deadline is for the client's socket.
func (f *flight) Deadline() (time.Time, bool) { return f.deadline, true }

// leave is the last word of one who waits.
func (f *flight) leave() {
	if f.here.Add(-1) == 0 {
		f.cancel()
	}
}

// leave is a caller's last word, or the time-out's, unless there is an answer. Who
// leaves before the call is sent is not charged.
func (c *call) leave() bool {
	if c.state.CompareAndSwap(callWaits, callLeft) {
		return true
	}
	left := c.state.CompareAndSwap(callSent, callLeft)
	if left {
		c.flight.leave()
	}
	return left
}

// answer tells the caller, if he is there. Then the call is his again.
func (c *call) answer() {
	if err := c.err; c.state.CompareAndSwap(callSent, callAnswered) {
		c.done <- err
	}
}

// A line is where calls queue, and the list of all that have no answer yet.
type line struct {
	mu       sync.Mutex
	calls    []*call
	most     int       // calls that queue or go alone
	flying   int       // flights of calls that queued
	alone    int       // calls that went alone
	departed time.Time // the last flight
	awaited  bool      // lingered will be called
	tidied   time.Time

	timeout        time.Duration
	oldest, newest *call       // of those without an answer
	timer          *time.Timer // for the oldest, or one before it
	watched        bool        // the timer runs
}

// do sends a call and waits for its reply, within the time-out.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.done == nil {
		c.done = make(chan error, 1)
	}
	if err := s.join(c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		if err == nil || err == ErrTimeout {
			return err
		}
		return explain(ctx, err)
	case <-ctx.Done():
		if c.leave() {
			s.line.mu.Lock()
			s.line.unlink(c)
			s.line.mu.Unlock()
		}
		return ctx.Err()
	}
}

// watch tells those whose time is over.
func (q *line) watch() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for c := q.oldest; c != nil && !now.Before(c.deadline); c = q.oldest {
		q.unlink(c)
		if c.leave() {
			c.done <- ErrTimeout
		}
	}
	if q.watched = q.oldest != nil; q.watched {
		q.timer.Reset(q.oldest.deadline.Sub(now))
	}
}

// link adds a call to those without an answer.
func (q *line) link(c *call, now time.Time) {
	c.deadline = now.Add(q.timeout)
	c.older, q.newest = q.newest, c
	if c.older != nil {
		c.older.newer = c
	} else {
		q.oldest = c
	}
	switch {
	case q.watched:
		return
	case q.timer == nil:
		q.timer = time.AfterFunc(q.timeout, q.watch)
	default:
		q.timer.Reset(q.timeout)
	}
	q.watched = true
}

// unlink takes a call from them, if it is there.
func (q *line) unlink(c *call) {
	switch {
	case c.older != nil:
		c.older.newer = c.newer
	case q.oldest == c:
		q.oldest = c.newer
	default:
		return
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		q.newest = c.older
	}
	c.older, c.newer = nil, nil
}

// join queues a call and sees to it that somebody sends it.
func (s *Store) join(c *call) error {
	q := s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls)+q.alone >= q.most && (time.Since(q.tidied) < pace || !q.tidy()) {
		return ErrBusy
	}
	now := time.Now()
	q.link(c, now)
	if c.line != nil || s.scattered.Load() {
		q.alone++
		go s.flyAlone(c)
		return nil
	}
	q.calls = append(q.calls, c)
	if q.flying < fewFlights || q.flying < manyFlights && now.Sub(q.departed) > pace {
		s.depart(now)
	} else if !q.awaited {
		s.linger(q.timeout / lingers)
	}
	return nil
}

// depart has another flight leave.
func (s *Store) depart(now time.Time) {
	s.line.flying++
	s.line.departed = now
	go s.fly()
}

// linger sees to it that those who queue do not wait for an answer from far away.
func (s *Store) linger(d time.Duration) {
	s.line.awaited = true
	time.AfterFunc(d, s.lingered)
}

func (s *Store) lingered() {
	q := s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	now, wait := time.Now(), q.timeout/lingers
	if q.awaited = len(q.calls) > 0; !q.awaited {
		return
	}
	if early := wait - now.Sub(q.departed); early > 0 {
		wait = early
	} else {
		for n := len(q.calls); n > 0 && q.flying < manyFlights; n -= maxWeight {
			s.depart(now)
		}
	}
	s.linger(wait)
}

// tidy drops those who have left, and reports whether there is room now. It looks at
// everybody, so it is not for everybody who comes.
func (q *line) tidy() bool {
	kept := q.calls[:0]
	for _, c := range q.calls {
		if c.state.Load() == callWaits {
			kept = append(kept, c)
		}
	}
	clear(q.calls[len(kept):])
	q.calls, q.tidied = kept, time.Now()
	return len(kept)+q.alone < q.most
}

// board takes the calls that are to go out together. With none the flying is over.
func (s *Store) board() (batch []*call, f *flight) {
	q := s.line
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) > 0 {
		f = s.newFlight() // which is not over when the first has left
		defer f.leave()
	}
	n, weight := 0, 0
	for _, c := range q.calls {
		if len(batch) > 0 && weight+c.weight > maxWeight {
			break
		}
		n++
		c.flight = f
		f.here.Add(1)
		if c.state.CompareAndSwap(callWaits, callSent) {
			batch, weight = append(batch, c), weight+c.weight
		} else {
			f.here.Add(-1)
		}
	}
	rest := copy(q.calls, q.calls[n:])
	clear(q.calls[rest:])
	q.calls = q.calls[:rest]
	if len(batch) == 0 {
		q.flying--
	} else {
		q.departed = time.Now()
	}
	return batch, f
}

// fly sends what queues until nothing does. Who is answered may come again at once, so
// the others run first: flights that are fuller cost less for each.
func (s *Store) fly() {
	deepen(0)
	batch, f := s.board()
	for len(batch) > 0 {
		s.exchange(f, batch)
		s.land(f, batch)
		runtime.Gosched()
		batch, f = s.board()
	}
}

// deepen gives a new goroutine the stack that the client's calls need, and at once: to let it
// grow with those calls on it takes longer than all else that is done here.
//
//go:noinline
func deepen(i int) byte {
	var room [8 << 10]byte
	return room[i]
}

// land tells those who are answered.
func (s *Store) land(f *flight, calls []*call) {
	f.cancel()
	s.line.mu.Lock()
	for _, c := range calls {
		s.line.unlink(c)
	}
	s.line.mu.Unlock()
	for _, c := range calls {
		c.answer()
	}
}

// flyAlone sends one call.
func (s *Store) flyAlone(c *call) {
	deepen(0)
	c.flight = s.newFlight()
	calls := []*call{c}
	if c.state.CompareAndSwap(callWaits, callSent) {
		s.exchange(c.flight, calls)
	}
	s.line.mu.Lock()
	s.line.alone--
	s.line.mu.Unlock()
	s.land(c.flight, calls)
}

// exchange sends calls in one command and gives each its part of what comes back. A
// panic, of a hook of the client's, is an error of theirs: here it would end the process.
func (s *Store) exchange(ctx context.Context, calls []*call) {
	defer func() {
		v := recover()
		for _, c := range calls {
			if v != nil && c.reply == nil && c.err == nil {
				c.err = fmt.Errorf("panic: %v", v)
			}
		}
	}()
	if c := calls[0]; c.line != nil {
		c.reply, c.err = s.sendScript(ctx, c.line, c.keyAt, c.source)
		return
	}
	reply, err := s.run(ctx, calls)
	if len(calls) > 1 && redis.HasErrorPrefix(err, "CROSSSLOT") {
		// One node of a cluster, or what stands for one, behind a plain client.
		// Nothing was run.
		s.scattered.Store(true)
		for i := range calls {
			reply, err := s.run(ctx, calls[i:i+1])
			hand(reply, err, calls[i:i+1])
		}
		return
	}
	hand(reply, err, calls)
}

// run runs the script for charges.
func (s *Store) run(ctx context.Context, calls []*call) (any, error) {
	n := 0
	for _, c := range calls {
		n += len(c.keys)
	}
	line := make([]any, 0, 3+n+len(calls))
	line = append(line, "evalsha", takeScript.Hash(), n)
	for _, c := range calls {
		for _, k := range c.keys {
			line = append(line, k)
		}
	}
	for _, c := range calls {
		line = append(line, c.spec)
	}
	return s.sendScript(ctx, line, 3, takeSource)
}

// sendScript runs a script by its digest, or by its source if the server does not know
// it yet, which means that nothing was run.
func (s *Store) sendScript(ctx context.Context, line []any, keyAt int8, source string) (any, error) {
	reply, err := s.send(ctx, line, keyAt)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		line[0], line[1] = "eval", source
		reply, err = s.send(ctx, line, keyAt)
	}
	return reply, err
}

// send sends a command once; keyAt is where in it its first key is.
func (s *Store) send(ctx context.Context, line []any, keyAt int8) (any, error) {
	cmd := newCommand(ctx, line...)
	cmd.SetFirstKeyPos(keyAt)
	if err := s.rdb.Process(ctx, cmd); err != nil {
		// A Cluster's client looks for the new master of a dead one when it sends a
		// command again, which these forbid, and else once a minute. Asked often, it
		// looks five times a second.
		if c, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			c.ReloadState(ctx)
		}
		return nil, err
	}
	s.checkPolicy()
	return cmd.Val(), cmd.Err()
}

// command is a Redis command that the client sends at most once: a charge that was
// sent and not answered may have been taken.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, line ...any) command {
	cmd := command{redis.NewCmd(ctx, line...)}
	cmd.SetStepCount(1) // or a Cluster's client asks its nodes for it, by COMMAND
	return cmd
}

// NoRetry tells the client.
func (command) NoRetry() bool { return true }

// hand gives each charge its part of the script's reply: its numbers, or ! and why
// there are none.
func hand(reply any, err error, calls []*call) {
	values, ok := reply.([]any)
	for _, c := range calls {
		text, failed := "", false
		if len(values) > 0 {
			text, _ = values[0].(string)
			text, failed = strings.CutPrefix(text, "!")
		}
		switch {
		case err != nil:
			c.err = err
		case ok && failed:
			c.err, values = scriptError(text), values[1:]
		case !ok || len(values) < c.size:
			c.err, ok = ErrReply, false // and nothing after it can be told apart
		default:
			c.reply, values = values[:c.size:c.size], values[c.size:]
		}
	}
	if len(values) > 0 {
		for _, c := range calls {
			c.reply, c.err = nil, errors.Join(c.err, ErrReply)
		}
	}
}

// scriptError is an error of Redis's that the script has met.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError marks it as one of Redis's, as the client's own are.
func (scriptError) RedisError() {}

// explain tells the caller's own leaving, the time-out, and what is wrong in Redis
// from other failures.
func explain(ctx context.Context, err error) error {
	var late net.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrReply):
		return ErrReply
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return ErrTimeout
	case strings.Contains(err.Error(), "WRONGTYPE"), strings.Contains(err.Error(), "TAILCUTSTATE"):
		return ErrState
	}
	return failure{err}
}

// failure is an error of the client or of Redis, less what it may say of the
// command's arguments: they hold the user.
type failure struct{ error }

func (f failure) Error() string {
	text, _, _ := strings.Cut(f.error.Error(), ", with args beginning with")
	return "redisstore: " + text
}

func (f failure) Unwrap() error { return f.error }
