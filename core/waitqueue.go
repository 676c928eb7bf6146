package core

// The queues of Wait: they decide which waiting callers ask the store.

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// waitQueues are the queues of a limiter and those derived from it. Each queue has its own lock, so
// that a long one delays only its own callers.
type waitQueues struct {
	mu     sync.Mutex
	byKey  map[any]*waitQueue // by queueKey
	warned atomic.Bool        // whether the log tells of a wait without end
}

// A queueKey tells queues apart by their callers' subjects. Callers of a limiter without a ban policy do
// not wait behind a banned user.
type queueKey struct {
	queues       *waitQueues
	user, action string
	policy       *machine.BanRule
	and          any // the queueKey of the further subjects, or nil
}

func keyOf(subjects []Subject) any {
	if len(subjects) == 0 {
		return nil
	}
	s := &subjects[0]
	k := queueKey{queues: s.limiter.waitQueues, user: s.user, action: s.action, and: keyOf(subjects[1:])}
	if ban := s.limiter.ban(); ban != nil {
		k.policy = ban[0].rule.Ban
	}
	return k
}

// A waitQueue is the callers of this process that wait for the same subjects.
type waitQueue struct {
	key     any
	callers int // those who have the queue; guarded by waitQueues.mu

	mu      sync.Mutex    // guards the fields below, and of its waiters place and called
	waiters list.List     // in the order of arrival
	units   int64         // of all waiters
	room    int64         // more units may be asked for together
	unasked *list.Element // the first waiter that has not been called for the room

	next     time.Time // the first one's turn comes at this time, or later; zero if not known
	reserved bool      // the first one has reserved its turn, so the others queue behind it
}

// A call tells a waiter that it is the first, that its turn comes too late, or that there may be
// room for it.
type call struct {
	first bool
	late  time.Time // its turn
}

func (a *waitQueues) join(w *waiter) {
	key := keyOf(w.subjects)
	a.mu.Lock()
	q := a.byKey[key]
	if q == nil {
		q = &waitQueue{key: key}
		a.byKey[key] = q
	}
	q.callers++
	a.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	w.q, w.place = q, q.waiters.PushBack(w)
	q.units += w.cost
	if q.unasked == nil {
		q.unasked = w.place
	}
	q.call()
	q.callLate(w, q.units)
}

func (a *waitQueues) leave(w *waiter) {
	w.q.leave(w)
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.q.callers--; w.q.callers == 0 {
		delete(a.byKey, w.q.key)
	}
}

// leave takes the waiter out of the queue if it is still there.
func (q *waitQueue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.place == nil {
		return
	}
	if w.place == q.waiters.Front() {
		q.next = time.Time{}
	}
	if w.place == q.unasked {
		q.unasked = w.place.Next()
	}
	q.waiters.Remove(w.place)
	w.place = nil
	q.units -= w.cost
	q.call()
}

// resume puts a called waiter back to waiting: others have taken the room.
func (q *waitQueue) resume(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.called = false
	q.room, q.unasked = 0, q.waiters.Front()
	q.call()
}

// learn takes what the first one's answer says: the room that it has left, and the first one's turn. The
// room is also counted for waiters that are asking, so the others together ask for less than there is.
func (q *waitQueue) learn(room int64, next time.Time, reserved bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room, q.unasked, q.next, q.reserved = room, q.waiters.Front(), next, reserved
	q.call()
	units := int64(0)
	for e := q.waiters.Front(); e != nil && !next.IsZero(); e = e.Next() {
		w := e.Value.(*waiter)
		units += w.cost
		q.callLate(w, units)
	}
}

// call calls the first waiter, and those for whom there may be room, each once.
func (q *waitQueue) call() {
	if e := q.waiters.Front(); e != nil {
		e.Value.(*waiter).call(call{first: true})
	}
	for ; q.unasked != nil; q.unasked = q.unasked.Next() {
		w := q.unasked.Value.(*waiter)
		if w.cost > q.room {
			return
		}
		q.room -= w.cost
		w.call(call{})
	}
}

// callLate calls a waiter whose turn comes too late. units are those of the waiters up to this one.
func (q *waitQueue) callLate(w *waiter, units int64) {
	turn := q.next
	if q.reserved {
		first := q.waiters.Front().Value.(*waiter)
		turn = turn.Add(micros(w.subjects[0].limiter.limits[0].rule.Time(units - first.cost).Ceil()))
	}
	if !q.next.IsZero() && turn.Sub(w.begun) >= w.patience {
		w.call(call{late: turn})
	}
}

func (w *waiter) call(c call) {
	if !w.called {
		w.called = true
		w.calls <- c
	}
}
