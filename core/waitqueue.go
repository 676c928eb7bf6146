package core

// The queues of Wait decide which waiting callers ask the store.

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/notice"
)

// waitQueues has the queues of a limiter and of those derived from it. Each queue has its own lock,
// so that a long queue delays only its own callers.
type waitQueues struct {
	mu     sync.Mutex
	byKey  map[any]*waitQueue // by queueKey
	warned notice.Once        // a long wait without a deadline was logged
}

func newWaitQueues() *waitQueues { return &waitQueues{byKey: map[any]*waitQueue{}} }

// A waitQueue has the callers of this process that wait for the same subjects.
type waitQueue struct {
	key     any
	callers int // how many callers have not left; guarded by waitQueues.mu

	mu      sync.Mutex    // guards the fields below, and place and awake of its tickets
	tickets list.List     // in the order of arrival
	units   int64         // the sum of the costs of all tickets
	unasked *list.Element // the first ticket that was not woken yet for the present room
	answer
}

// An answer is what the store has told the first caller, for the other callers of the queue.
type answer struct {
	room     int64     // how many more units the other callers may ask for together
	turn     time.Time // the earliest time of the first caller's turn; zero if not known
	reserved bool      // the first caller has reserved its turn, so the other callers queue behind it
}

// A ticket is a caller's place in a queue.
type ticket struct {
	cost     int64 // units
	begun    time.Time
	patience time.Duration // how long the caller waits, from begun
	rule     *machine.Rule // tells the time between two reserved turns

	q       *waitQueue
	place   *list.Element // in the queue; nil after the ticket has left
	wakeups chan wakeup
	awake   bool // the caller was woken, and does not wait again yet
}

// A wakeup tells a waiting caller to ask the store, for one of three reasons: the caller is the first
// one now, its turn comes too late, or there may be room for it.
type wakeup struct {
	first bool
	late  time.Time // the turn that comes too late, or zero
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
	q.wakeReady()
	q.wakeLate(t, q.units)
}

func (a *waitQueues) leave(t *ticket) {
	t.q.leave(t)
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.q.callers--; t.q.callers == 0 {
		delete(a.byKey, t.q.key)
	}
}

// leave takes the ticket out of the queue, unless it has left before.
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
	q.wakeReady()
}

// resume lets a woken caller wait again, because other callers have taken the room.
func (q *waitQueue) resume(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.awake = false
	q.room, q.unasked = 0, q.tickets.Front()
	q.wakeReady()
}

// tell gives the queue the answer that the first caller has got. The callers that ask for room at
// present share the room of the answer. So together they do not ask for more than there is.
func (q *waitQueue) tell(a answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answer, q.unasked = a, q.tickets.Front()
	q.wakeReady()
	units := int64(0)
	for e := q.tickets.Front(); e != nil && !a.turn.IsZero(); e = e.Next() {
		t := e.Value.(*ticket)
		units += t.cost
		q.wakeLate(t, units)
	}
}

// wakeReady wakes the first caller, and the callers for whom there may be room. Each caller is woken
// once.
func (q *waitQueue) wakeReady() {
	if e := q.tickets.Front(); e != nil {
		e.Value.(*ticket).wake(wakeup{first: true})
	}
	for ; q.unasked != nil; q.unasked = q.unasked.Next() {
		t := q.unasked.Value.(*ticket)
		if t.cost > q.room {
			return
		}
		q.room -= t.cost
		t.wake(wakeup{})
	}
}

// wakeLate wakes the caller of a ticket if its turn comes too late. units is the sum of the costs
// of all tickets up to this one. For example, if the reserved turn costs 2 units and the next
// ticket 3, the next turn comes later than the reserved one by the time that 3 units take at the
// rate.
func (q *waitQueue) wakeLate(t *ticket, units int64) {
	turn := q.turn
	if q.reserved {
		first := q.tickets.Front().Value.(*ticket)
		turn = turn.Add(micros(min(t.rule.Time(units-first.cost).Ceil(), math.MaxInt64/int64(time.Microsecond))))
	}
	if !q.turn.IsZero() && turn.Sub(t.begun) >= t.patience {
		t.wake(wakeup{late: turn})
	}
}

func (t *ticket) wake(w wakeup) {
	if !t.awake {
		t.awake = true
		t.wakeups <- w
	}
}
