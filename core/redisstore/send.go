package redisstore

// The goroutines that send batches and give each call its reply.

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// send sends batches until no call queues. It yields between them: callers that were just
// answered can join the next batch. Most have not run yet when one yield ends.
func (s *Store) send() {
	growStack(0)
	for b := s.nextBatch(); b != nil; b = s.nextBatch() {
		answered := s.exchange(b)
		s.queue.mu.Lock()
		s.queue.returned(b, answered)
		s.queue.mu.Unlock()
		b.deliver()
		runtime.Gosched()
		runtime.Gosched()
	}
}

// growStack grows a new goroutine's stack to what the client's calls need. Growing it during
// those calls takes longer than all other work here.
//
//go:noinline
func growStack(i int) byte {
	var room [8 << 10]byte
	return room[i]
}

// deliver wakes the callers.
func (b *batch) deliver() {
	b.cancel(context.Canceled)
	for _, c := range b.calls {
		c.answer()
	}
}

// sendAlone sends one call.
func (s *Store) sendAlone(b *batch, server *redis.Client) {
	growStack(0)
	if b.calls[0].state.CompareAndSwap(callWaits, callSent) {
		s.exchange(b)
	}
	q := s.queue
	q.mu.Lock()
	q.remove(b)
	q.alone--
	if q.aloneTo[server]--; q.aloneTo[server] == 0 {
		delete(q.aloneTo, server)
	}
	q.mu.Unlock()
	b.deliver()
}

// exchange sends a batch in one command, gives each call its part of the reply, and reports
// whether there was a reply. If a hook of the client panics, these calls get an error:
// otherwise the panic would end the process.
func (s *Store) exchange(b *batch) (answered bool) {
	calls := b.calls
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		s.logPanic(v)
		for _, c := range calls {
			if c.reply == nil && c.values == nil && c.err == nil {
				c.err = fmt.Errorf("panic: %v", v)
			}
		}
	}()
	if c := calls[0]; c.args != nil {
		if c.program != nil {
			c.reply, c.err = s.runProgram(b, c.program, c.args)
		} else {
			c.reply, c.err = s.process(b, c.args, c.keyAt)
		}
		return c.err == nil
	}
	reply, err := s.run(b, calls)
	if len(calls) > 1 && redis.HasErrorPrefix(err, "CROSSSLOT") {
		// The server behind a plain client is part of a cluster. Nothing was run.
		s.sharded.Store(true)
		for i := range calls {
			reply, err := s.run(b, calls[i:i+1])
			distribute(reply, err, calls[i:i+1])
		}
		return true
	}
	distribute(reply, err, calls)
	return err == nil || isReply(err)
}

// logPanic logs a panic of the client, at most once a minute.
func (s *Store) logPanic(v any) {
	now := time.Now().UnixNano()
	if at := s.panicLogged.Load(); now-at > int64(time.Minute) && s.panicLogged.CompareAndSwap(at, now) {
		slog.Default().Error("redisstore: the Redis client or one of its hooks panicked; if it was opening a connection, its pool has lost a place, and after PoolSize such panics every call fails: fix the cause and make a new client",
			"code", "redis-panic", "panic", v)
	}
}
