package batch

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

// mayBeDirect reports whether the caller may send its call itself. The client must heed
// deadlines, since the caller cannot leave before. Nothing may be under way, and the last batch
// must have been answered, so that the client has a connection. The caller's own deadline may
// not be earlier: the client closes a connection at a deadline.
func (q *Queue) mayBeDirect(ctx context.Context, l *lane, now time.Time) bool {
	if !q.heeds || l.alone || l.sending > 0 || !q.reached.Load() || l.answered.IsZero() {
		return false
	}
	end, ends := ctx.Deadline()
	return !ends || end.Sub(now) >= q.timeout
}

// sendDirect sends the caller's own call in its goroutine.
func (q *Queue) sendDirect(own *batch) {
	q.sendBatch(own)
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := own.lane; l.queued > 0 {
		go q.send(l)
	} else {
		l.sending--
	}
}
