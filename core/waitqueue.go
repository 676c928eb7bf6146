package core

import (
	"sync"
	"time"
)

// waiting has the queues of a limiter.
type waiting struct {
	mu     sync.Mutex
	queues map[[2]string]*waitQueue
}

// A waitQueue is the callers of this process that wait for one user and action.
type waitQueue struct {
	of      *waiting
	waiters []*waiter // in the order of arrival
	room    int64     // units that waiters besides the first can be granted
	granted int64     // units that were granted and are being charged

	next     time.Time // the first one's turn comes at this time, or later; zero if not known yet
	reserved bool      // the first one has reserved its turn
}

func (a *waiting) join(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := [2]string{w.user, w.action}
	q := a.queues[key]
	if q == nil {
		if a.queues == nil {
			a.queues = map[[2]string]*waitQueue{}
		}
		q = &waitQueue{of: a}
		a.queues[key] = q
	}
	w.q, q.waiters = q, append(q.waiters, w)
}

// leave takes the waiter out of the queue, and lets the next one ask if it was the first.
func (w *waiter) leave() {
	a := w.q.of
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.left {
		return
	}
	w.left = true
	q := w.q
	for i, other := range q.waiters {
		if other == w {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			if i == 0 && len(q.waiters) > 0 {
				q.waiters[0].rouse()
			}
			break
		}
	}
	if len(q.waiters) == 0 {
		delete(a.queues, [2]string{w.user, w.action})
	}
}

// announce says when the first one's turn comes, and rouses those whose own turn comes too late.
func (q *waitQueue) announce(next time.Time, reserved bool) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.next, q.reserved, q.room = next, reserved, 0
	turn := next
	for _, w := range q.waiters[min(1, len(q.waiters)):] {
		if turn = w.after(turn); w.late(turn) {
			w.rouse()
		}
	}
}

// after is the earliest turn of a waiter behind one whose turn is at turn.
func (w *waiter) after(turn time.Time) time.Time {
	if !w.q.reserved {
		return turn
	}
	return turn.Add(micros(w.limiter.limits[0].rule.Time(w.cost).Whole))
}

// late reports whether that turn comes too late for the waiter.
func (w *waiter) late(turn time.Time) bool { return turn.Sub(w.begun) >= w.patience }

// open grants the room that the first one's answer has left, in the order of arrival, and reports
// whether there is any. So no more waiters ask than can pass.
func (q *waitQueue) open(remaining int) bool {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.room = max(0, int64(remaining)-q.granted)
	if q.room == 0 {
		return false
	}
	q.next = time.Time{}
	units := int64(0)
	for _, w := range q.waiters {
		if w.granted {
			continue
		}
		if units += w.cost; units > q.room {
			break
		}
		w.rouse()
	}
	return true
}

// withdraw forgets the turn that the waiter has announced, unless the next one asks already.
func (w *waiter) withdraw() {
	w.q.of.mu.Lock()
	defer w.q.of.mu.Unlock()
	if !w.left {
		w.q.next = time.Time{}
	}
}

func (w *waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// A position is a waiter's place in its queue.
type position struct {
	first   bool
	granted bool      // there is room for it and for those before it
	turn    time.Time // the earliest instant at which it can have its turn, or zero if not known yet
}

// position returns the waiter's position, and takes the room that it is granted.
func (w *waiter) position() position {
	a, q := w.q.of, w.q
	a.mu.Lock()
	defer a.mu.Unlock()
	at, units := position{turn: q.next}, int64(0)
	for i, other := range q.waiters {
		if i > 0 && !at.turn.IsZero() {
			at.turn = other.after(at.turn)
		}
		if !other.granted {
			units += other.cost
		}
		if other != w {
			continue
		}
		if at.first = i == 0; !at.first && units <= q.room {
			at.granted, w.granted = true, true
			q.room -= w.cost
			q.granted += w.cost
		}
		return at
	}
	return position{first: true}
}
