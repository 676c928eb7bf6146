package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
)

// send sends batches until no call queues. It yields first: callers that were just
// answered can join the next batch.
func (s *Store) send() {
	deepen(0)
	calls, b := s.take()
	for len(calls) > 0 {
		answered := s.exchange(b, calls)
		s.queue.mu.Lock()
		s.queue.back(answered)
		s.queue.mu.Unlock()
		s.deliver(b, calls)
		runtime.Gosched()
		calls, b = s.take()
	}
}

// sendOwn sends the caller's own call, without another goroutine, which a busy processor
// may take long to start. The caller leaves when the answer comes or the time-out ends, though
// its context ends before. Calls that come meanwhile queue for a goroutine.
func (s *Store) sendOwn(ctx context.Context, c *call) error {
	b := s.newBatch()
	b.deadline = b.deadline.Add((1 - batchTime) * s.timeout)
	late := min(s.timeout/lateAfter, lateAtMost)
	alarm := time.AfterFunc(late, func() {
		time.AfterFunc(s.timeout-late, func() { b.cancel(context.DeadlineExceeded) })
		s.explore(b, c.keys[0])
	})
	calls := [1]*call{c}
	answered := s.exchange(b, calls[:])
	alarm.Stop()
	b.cancel(nil)
	q := s.queue
	q.mu.Lock()
	q.back(answered)
	if len(q.calls) > 0 {
		go s.send()
	} else {
		q.sending--
	}
	q.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return explain(ctx, c.err)
}

// deepen gives a new goroutine at once the stack that the client's calls need. To let it
// grow with those calls on it takes longer than all else that is done here.
//
//go:noinline
func deepen(i int) byte {
	var room [8 << 10]byte
	return room[i]
}

// deliver tells the callers.
func (s *Store) deliver(b *batch, calls []*call) {
	b.cancel(nil)
	for _, c := range calls {
		c.answer()
	}
}

// sendAlone sends one call.
func (s *Store) sendAlone(c *call) {
	deepen(0)
	c.batch = s.newBatch()
	calls := []*call{c}
	if c.state.CompareAndSwap(callWaits, callSent) {
		s.exchange(c.batch, calls)
	}
	s.queue.mu.Lock()
	s.queue.alone--
	s.queue.mu.Unlock()
	s.deliver(c.batch, calls)
}

// exchange sends calls in one command, gives each its part of what comes back, and reports
// whether anything did. A panic, of a hook of the client's, is an error of these calls: here
// it would end the process.
func (s *Store) exchange(b *batch, calls []*call) (answered bool) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		s.sayPanic(v)
		for _, c := range calls {
			if c.reply == nil && c.err == nil {
				c.err = fmt.Errorf("panic: %v", v)
			}
		}
	}()
	if c := calls[0]; c.args != nil {
		c.reply, c.err = s.sendScript(b, c.args, c.keyAt, c.source)
		return c.err == nil
	}
	reply, err := s.run(b, calls)
	if len(calls) > 1 && redis.HasErrorPrefix(err, "CROSSSLOT") {
		// One node of a cluster, or what stands for one, behind a plain client.
		// Nothing was run.
		s.scattered.Store(true)
		for i := range calls {
			reply, err := s.run(b, calls[i:i+1])
			hand(reply, err, calls[i:i+1])
		}
		return true
	}
	hand(reply, err, calls)
	return err == nil || isReply(err)
}

// sayPanic says now and then what a panic of the client's costs.
func (s *Store) sayPanic(v any) {
	now := time.Now().UnixNano()
	if at := s.panicked.Load(); now-at > int64(time.Minute) && s.panicked.CompareAndSwap(at, now) {
		slog.Default().Error("redisstore: the Redis client or a hook of it panicked. A connection that was being opened is lost to the client's pool, and after PoolSize of them every call fails: make the client anew",
			"code", "redis-panic", "panic", v)
	}
}

// run runs the script for charges. Of equal ones in a row it names the first, and says how
// often that comes again.
func (s *Store) run(ctx context.Context, calls []*call) (any, error) {
	args := make([]any, 3, 3+len(calls)*(1+len(calls[0].keys)))
	for i, c := range calls {
		if i > 0 && c.equals(calls[i-1]) {
			continue
		}
		for _, k := range c.keys {
			args = append(args, k)
		}
	}
	args[0], args[1], args[2] = "evalsha", takeScript.Hash(), len(args)-3
	var repeats []byte
	number, again := 0, 0
	for i, c := range calls {
		if i == 0 || !c.equals(calls[i-1]) {
			args = append(args, c.spec)
			number, again = number+1, 0
			continue
		}
		again++
		if i+1 == len(calls) || !c.equals(calls[i+1]) {
			repeats = fmt.Appendf(repeats, "*%d:%d", number, again)
		}
	}
	if repeats != nil {
		args = append(args, repeats)
	}
	return s.sendScript(ctx, args, 3, takeSource)
}

// equals reports whether two calls ask the same of the script.
func (c *call) equals(other *call) bool {
	return c.spec == other.spec && slices.Equal(c.keys, other.keys)
}

// sendScript runs a script by its digest, or by its source if the server does not know
// it yet, which means that nothing was run.
func (s *Store) sendScript(ctx context.Context, args []any, keyAt int8, source string) (any, error) {
	reply, err := s.process(ctx, args, keyAt)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", source
		reply, err = s.process(ctx, args, keyAt)
	}
	return reply, err
}

// process sends a command once; keyAt is where in it its first key is.
func (s *Store) process(ctx context.Context, args []any, keyAt int8) (any, error) {
	cmd := newCommand(ctx, args...)
	cmd.SetFirstKeyPos(keyAt)
	var err error
	if s.troubled() {
		err = s.knock(ctx, args[keyAt].(string))
	}
	if err == nil {
		err = s.rdb.Process(ctx, cmd)
	}
	if err == nil {
		s.checkPolicy()
		return cmd.Val(), cmd.Err()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var opErr *net.OpError
	if errors.As(err, &opErr) && opErr.Op == "dial" {
		s.trouble.Store(int64(time.Since(s.base)) + 1)
	}
	// A Cluster's client looks for the new master of a dead one when it sends a command
	// again, which these forbid, and else once a minute. Asked often, it looks five times
	// a second.
	if c, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.ReloadState(ctx)
	}
	return nil, err
}

// isReply is whether an error is Redis's own answer.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// command is a Redis command that the client sends at most once: a charge that was
// sent and not answered may have been taken.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, args ...any) command {
	cmd := command{redis.NewCmd(ctx, args...)}
	cmd.SetStepCount(1) // or a Cluster's client asks its nodes for it, by COMMAND
	return cmd
}

// NoRetry tells the client.
func (command) NoRetry() bool { return true }

// scriptError is an error of Redis's that the script has met.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError marks it as one of Redis's, as the client's own are.
func (scriptError) RedisError() {}

// plainError is the text of an error that Redis has told the script. Redis 6.2 puts the
// place in the script before it, and a newline behind.
func plainError(text string) scriptError {
	if strings.HasPrefix(text, "@user_script") {
		if _, own, ok := strings.Cut(text, ": -"); ok {
			text = strings.TrimSpace(own)
		}
	}
	return scriptError(text)
}

// explain tells the caller's own leaving, the time-out, and what is wrong in Redis from
// other failures.
func explain(ctx context.Context, err error) error {
	var late net.Error
	end, ends := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrReply):
		return ErrReply
	case err == ErrTimeout && ends && !time.Now().Before(end):
		return context.DeadlineExceeded // both end at once
	case err == ErrTimeout, errors.Is(err, context.DeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return ErrTimeout
	case strings.Contains(err.Error(), "WRONGTYPE"), strings.Contains(err.Error(), "TAILCUTSTATE"):
		return ErrState
	case redis.HasErrorPrefix(err, "TRYAGAIN"), redis.HasErrorPrefix(err, "CLUSTERDOWN Hash slot not served"):
		return slotFailure{failure{err}}
	}
	return failure{err}
}

// failure is an error of the client or of Redis, less what it may say of the command's
// arguments: they hold the user.
type failure struct{ error }

func (f failure) Error() string {
	text, _, _ := strings.Cut(f.error.Error(), ", with args beginning with")
	return "redisstore: " + text
}

func (f failure) Unwrap() error { return f.error }

// slotFailure is the failure of one slot of a Cluster, which is moved or has no master: it
// says nothing of how the node fares with other users.
type slotFailure struct{ failure }

func (slotFailure) Is(target error) bool { return target == core.ErrKey }
