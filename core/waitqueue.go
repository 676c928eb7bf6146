package core

// The queues of Wait: they decide which waiting callers ask the store.

import (
	"slices"
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
	room    int64     // waiters may ask together if their units, counted from the first, are at most this

	next     time.Time // the first one's turn comes at this time, or later; zero if not known
	reserved bool      // the first one has reserved its turn, so the others queue behind it
}

// A call tells a waiter that it is the first, that its turn comes too late, or that there may be
// room for it.
type call struct {
	first bool
	late  time.Time // its turn
}

func (a *waiting) join(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := [2]string{w.user, w.action}
	if a.queues == nil {
		a.queues = map[[2]string]*waitQueue{}
	}
	if a.queues[key] == nil {
		a.queues[key] = &waitQueue{of: a}
	}
	w.q = a.queues[key]
	w.q.waiters = append(w.q.waiters, w)
	w.q.call()
}

// leave takes the waiter out of the queue if it is still there.
func (q *waitQueue) leave(w *waiter) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if i == 0 {
		q.next = time.Time{}
	}
	if w.called {
		q.room -= w.cost
	}
	if len(q.waiters) == 0 {
		delete(q.of.queues, [2]string{w.user, w.action})
	}
	q.call()
}

// resume puts a called waiter back to waiting: others have taken the room.
func (q *waitQueue) resume(w *waiter) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	w.called, q.room = false, 0
	q.call()
}

// learn takes what the first one's answer says: the room that it has left, and the first one's turn. While
// the first is in the queue its units count too, so the others together ask for less than there is.
func (q *waitQueue) learn(room int64, next time.Time, reserved bool) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.room, q.next, q.reserved = room, next, reserved
	q.call()
}

// call calls the waiters that have something to do, each once. No more of them ask than can pass.
func (q *waitQueue) call() {
	turn, units := q.next, int64(0)
	for i, w := range q.waiters {
		if units += w.cost; i > 0 && q.reserved {
			turn = turn.Add(micros(w.limiter.limits[0].rule.Time(w.cost).Whole))
		}
		var c call
		switch {
		case w.called:
			continue
		case i == 0:
			c.first = true
		case units <= q.room:
		case q.next.IsZero():
			return
		case turn.Sub(w.begun) < w.patience:
			continue
		default:
			c.late = turn
		}
		w.called = true
		w.calls <- c
	}
}
