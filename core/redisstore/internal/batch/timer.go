package batch

// The timer of all calls.

import (
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

// tick ends the calls whose timeout is over. If a call is late, a probe finds out whether the
// client can connect.
func (q *Queue) tick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticking = false
	now, next := time.Now(), q.late()
	for _, l := range q.lanes {
		var oldest *Call
		var age time.Duration
		for l.calls.Len() > 0 {
			oldest = l.calls.Front().Value.(*Call)
			if age = now.Sub(oldest.since); age < q.timeout {
				break
			}
			oldest.end(context.DeadlineExceeded)
		}
		if l.calls.Len() == 0 {
			continue
		}
		q.ticking = true
		if age < q.late() {
			next = min(next, q.late()-age)
			continue
		}
		next = min(next, q.timeout-age)
		if soon := l.probeNext.Sub(now); soon > 0 {
			next = min(next, soon)
			continue
		}
		next = min(next, q.late())
		if !l.probing {
			l.probing = true
			go q.probeLate(l, oldest.Keys[0])
		}
	}
	if q.ticking {
		time.AfterFunc(next, q.tick)
	}
}
