package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9"
)

// send sends what queues until nothing does. Who is answered may come again at once, so
// the others run first: batches that are fuller cost less for each.
func (s *Store) send() {
	deepen(0)
	calls, b := s.take()
	for len(calls) > 0 {
		s.exchange(b, calls)
		s.deliver(b, calls)
		runtime.Gosched()
		calls, b = s.take()
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

// deliver tells those who are answered.
func (s *Store) deliver(b *batch, calls []*call) {
	b.cancel()
	s.queue.mu.Lock()
	for _, c := range calls {
		s.queue.unlink(c)
	}
	s.queue.mu.Unlock()
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
	if c := calls[0]; c.args != nil {
		c.reply, c.err = s.sendScript(ctx, c.args, c.keyAt, c.source)
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
	args := make([]any, 0, 3+n+len(calls))
	args = append(args, "evalsha", takeScript.Hash(), n)
	for _, c := range calls {
		for _, k := range c.keys {
			args = append(args, k)
		}
	}
	for _, c := range calls {
		args = append(args, c.spec)
	}
	return s.sendScript(ctx, args, 3, takeSource)
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

func newCommand(ctx context.Context, args ...any) command {
	cmd := command{redis.NewCmd(ctx, args...)}
	cmd.SetStepCount(1) // or a Cluster's client asks its nodes for it, by COMMAND
	return cmd
}

// NoRetry tells the client.
func (command) NoRetry() bool { return true }

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
