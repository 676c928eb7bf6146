package core

// The queues of Wait: they decide which waiting callers ask the store.

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/notice"
)

// waitQueues are the queues of a limiter and those derived from it. Each queue has its own lock, so
// that a long one delays only its own callers.
type waitQueues struct {
	mu     sync.Mutex
	byKey  map[any]*waitQueue // by queueKey
	warned notice.Once        // of a wait without end
}

func newWaitQueues() *waitQueues { return &waitQueues{byKey: map[any]*waitQueue{}} }

// A waitQueue is the callers of this process that wait for the same subjects.
type waitQueue struct {
	key     any
	callers int // those who have the queue; guarded by waitQueues.mu

	mu      sync.Mutex    // guards the fields below, and of its tickets place and called
	tickets list.List     // in the order of arrival
	units   int64         // of all tickets
	unasked *list.Element // the first ticket that has not been called for the room
	answer
}

// An answer is what the store has told the first caller, for the others.
type answer struct {
	room     int64     // more units may be asked for together
	turn     time.Time // the first one's turn comes at this time, or later; zero if not known
	reserved bool      // the first one has reserved its turn, so the others queue behind it
}

// A ticket is a caller's place in a queue.
type ticket struct {
	cost     int64 // units
	begun    time.Time
	patience time.Duration // from begun
	rule     *machine.Rule // tells how long after a reserved turn the next one comes

	q      *waitQueue
	place  *list.Element // in the queue; nil: it has left
	calls  chan call
	called bool // the caller has been called, and has not resumed to wait
}

// A call tells a waiting caller to act: it is the first now, or its turn comes too late, or there
// may be room for it.
type call struct {
	first bool
	late  time.Time // its turn
}

func (a *waitQueues) join(key any, t *ticket) {
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
	t.q, t.place = q, q.tickets.PushBack(t)
	q.units += t.cost
	if q.unasked == nil {
		q.unasked = t.place
	}
	q.call()
	q.callLate(t, q.units)
}

func (a *waitQueues) leave(t *ticket) {
	t.q.leave(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.q.callers--; t.q.callers == 0 {
		delete(a.byKey, t.q.key)
	}
}

// leave takes the ticket out of the queue if it is still there.
func (q *waitQueue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.place == nil {
		return
	}
	if t.place == q.tickets.Front() {
		q.turn = time.Time{}
	}
	if t.place == q.unasked {
		q.unasked = t.place.Next()
	}
	q.tickets.Remove(t.place)
	t.place = nil
	q.units -= t.cost
	q.call()
}

// resume puts a called caller back to waiting: others have taken the room.
func (q *waitQueue) resume(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.called = false
	q.room, q.unasked = 0, q.tickets.Front()
	q.call()
}

// tell passes the answer that the first caller got to the queue. The room that the answer shows is
// shared with the callers that are asking at present, so that together they ask for no more than
// there is.
func (q *waitQueue) tell(a answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer, q.unasked = a, q.tickets.Front()
	q.call()
	units := int64(0)
	for e := q.tickets.Front(); e != nil && !a.turn.IsZero(); e = e.Next() {
		t := e.Value.(*ticket)
		units += t.cost
		q.callLate(t, units)
	}
}

// call calls the first caller, and those for whom there may be room, each once.
func (q *waitQueue) call() {
	if e := q.tickets.Front(); e != nil {
		e.Value.(*ticket).call(call{first: true})
	}
	for ; q.unasked != nil; q.unasked = q.unasked.Next() {
		t := q.unasked.Value.(*ticket)
		if t.cost > q.room {
			return
		}
		q.room -= t.cost
		t.call(call{})
	}
}

// callLate calls the caller of a ticket whose turn comes too late. units are those of all tickets
// up to this one. For example, if the reserved turn has 2 units and the ticket behind it 3, the
// ticket's turn comes by the time of 3 units after the reserved one.
func (q *waitQueue) callLate(t *ticket, units int64) {
	turn := q.turn
	if q.reserved {
		first := q.tickets.Front().Value.(*ticket)
		turn = turn.Add(micros(min(t.rule.Time(units-first.cost).Ceil(), math.MaxInt64/int64(time.Microsecond))))
	}
	if !q.turn.IsZero() && turn.Sub(t.begun) >= t.patience {
		t.call(call{late: turn})
	}
}

func (t *ticket) call(c call) {
	if !t.called {
		t.called = true
		t.calls <- c
	}
}
