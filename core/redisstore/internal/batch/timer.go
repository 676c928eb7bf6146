package batch

// The timer of all calls.

import (
	"container/list"
	"context"
	"time"
)

// One timer serves all calls. A timer for each call would take a twentieth of the client's time
// if there are many calls. If they come one at a time, it would wake another thread each time.

// late returns after how long a call is late.
func (q *Queue) late() time.Duration { return min(q.timeout/8, 10*time.Millisecond) }

// startTicking sets the timer, unless it is set.
func (q *Queue) startTicking() {
	if !q.ticking {
		q.ticking = true
		time.AfterFunc(q.late(), q.tick)
	}
}

// tick does what is due for calls that wait.
func (q *Queue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticking = false
	now, next := time.Now(), q.late()
	for _, l := range q.lanes {
		if l.calls.Len() > 0 {
			q.ticking = true
			next = min(next, q.look(&l.calls, now))
			q.startMore(l, now)
		}
	}
	if q.ticking {
		time.AfterFunc(next, q.tick)
	}
}

// look ends the calls whose timeout is over, and starts a probe for each batch that is late. It
// returns in how long to look again.
func (q *Queue) look(calls *list.List, now time.Time) time.Duration {
	next := q.late()
	var after *list.Element
	for e := calls.Front(); e != nil; e = after {
		after = e.Next()
		c := e.Value.(*Call)
		age := now.Sub(c.since)
		switch {
		case age >= q.timeout:
			c.end(context.DeadlineExceeded)
			continue
		case age < q.late():
			return min(next, q.late()-age)
		case c.batch != nil && !c.batch.late:
			c.batch.late = true
			go q.probeLate(c.batch)
		}
		next = min(next, q.timeout-age)
	}
	return next
}

// startMore starts more batches if calls have queued for long, since the server is far away.
func (q *Queue) startMore(l *lane, now time.Time) {
	if now.Sub(l.started) < q.timeout/8 {
		return
	}
	for n := l.queued; n > 0 && l.more(now, q.timeout); n -= maxWeight {
		l.start(now)
		go q.send(l)
	}
}
