package redisstore

// A caller that sends its own call.

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// If the client heeds deadlines and nothing is under way, the caller sends its call itself:
// another goroutine would take 30 of 70 us. The caller returns with the answer or at the timeout,
// even if its context ends before. Other calls queue meanwhile, and a goroutine sends them.

// heedsDeadlines reports whether a caller who sends its own call returns at its deadline. All
// that the client runs in the caller's goroutine must heed it. The Dialer need not: the client
// dials in another goroutine.
func heedsDeadlines(o *redis.Options) bool {
	return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0 && // if negative, it sets no deadlines
		o.Limiter == nil && o.OnConnect == nil &&
		o.CredentialsProvider == nil && o.CredentialsProviderContext == nil && o.StreamingCredentialsProvider == nil
}

// direct returns a batch if the caller may send the call itself. The client must heed
// deadlines, since the caller cannot leave before. Nothing may be under way, and the last batch
// must have been answered, so that the client has a connection. The caller's own deadline may not
// be earlier: the client closes a connection at a deadline.
func (s *Store) direct(ctx context.Context, c *call) *batch {
	if !s.heedsDeadlines || c.args != nil || s.sharded.Load() {
		return nil
	}
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) > q.alone || len(q.calls) > 0 || q.unanswered || q.answered.IsZero() {
		return nil
	}
	now := time.Now()
	if end, ok := ctx.Deadline(); ok && end.Sub(now) < s.timeout {
		return nil
	}
	c.since = now
	b := newBatch(now.Add(s.timeout), c)
	b.direct = true
	q.add(b)
	q.sending++
	q.started, q.answered = now, now
	s.startWatch()
	return b
}

// sendDirect sends the caller's own call in its goroutine.
func (s *Store) sendDirect(ctx context.Context, b *batch, c *call) error {
	answered := s.exchange(b)
	q := s.queue
	q.mu.Lock()
	q.returned(b, answered)
	if len(q.calls) > 0 {
		go s.send()
	} else {
		q.sending--
	}
	q.mu.Unlock()
	b.cancel(context.Canceled)
	if c.err == nil {
		return nil
	}
	return s.explain(ctx, c, c.err)
}
