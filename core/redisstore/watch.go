package redisstore

// The timer of all calls.

import (
	"context"
	"time"
)

// One timer serves all calls. A timer for each call would take a twentieth of the client's time
// if there are many calls. If they come one at a time, it would wake another thread each time.

// lateAtMost is after how long a call is late, however long the timeout.
const lateAtMost = 10 * time.Millisecond

// late is after how long a call is late.
func (s *Store) late() time.Duration { return min(s.timeout/lateAfter, lateAtMost) }

// startWatch sets the timer, unless it is set. The caller holds the queue's lock.
func (s *Store) startWatch() {
	if !s.queue.watched {
		s.queue.watched = true
		time.AfterFunc(s.late(), s.watch)
	}
}

// watch ends the calls whose timeout is over, and probes the server if a batch is late.
func (s *Store) watch() {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watched = len(q.calls)+len(q.batches) > 0; !q.watched {
		return
	}
	now, next := time.Now(), s.late()
	for _, c := range q.calls {
		left := s.timeout - now.Sub(c.since)
		if left > 0 {
			next = min(next, left)
			break
		}
		c.expire()
	}
	for _, b := range q.batches {
		next = min(next, s.watchBatch(b, now))
	}
	time.AfterFunc(next, s.watch)
}

// watchBatch does the work of watch for a batch, and returns in how long to do it again.
func (s *Store) watchBatch(b *batch, now time.Time) time.Duration {
	if left := s.late() - now.Sub(b.calls[0].since); left > 0 {
		return left
	}
	if !b.late {
		b.late = true
		go s.probeBatch(b, b.calls[0].key())
	}
	for _, c := range b.calls {
		left := s.timeout - now.Sub(c.since)
		if left > 0 {
			return left
		}
		if b.direct {
			b.cancel(context.DeadlineExceeded)
		} else {
			c.expire()
		}
	}
	return s.late()
}
