package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// ErrRefused is the error of [Limiter.Wait] for an action that does not get its turn
// before the deadline. The decision beside it says when it could.
var ErrRefused = errors.New("core: the action does not get its turn before the deadline")

// Wait blocks until the action may pass, and returns the decision. If its turn does not
// come before ctx's deadline, Wait returns at once with [ErrRefused] and the refusal.
// Without a deadline it waits for up to a year.
//
// The callers of one process that wait for the same user and action take turns in the
// order of arrival, and the first of them asks the store. If its answer says that there is more
// room, the next ones ask too. A caller whose deadline is before the first one's turn asks once.
// If the limiter has exactly one limit, a bucket or funnel, the caller reserves its turn there,
// and other processes queue behind it. Any other limiter waits for RetryAfter and asks again; an
// ElasticWindow, a CountRefused and a BanPolicy count each time. If ctx is canceled before the turn, the
// turn is given back, unless a turn of another process depends on it. The error is ctx's.
func (l *Limiter) Wait(ctx context.Context, user, action string) (Decision, error) {
	return l.WaitN(ctx, user, action, 1)
}

// WaitN is [Limiter.Wait] for an action that costs n units; see [Limiter.AllowN].
func (l *Limiter) WaitN(ctx context.Context, user, action string, n int) (d Decision, err error) {
	if err := l.check(ctx, user, action); err != nil {
		return Decision{}, err
	}
	if _, rehearsal := find[*shadow](l.store); rehearsal || n < 1 || int64(n) > l.smallest {
		d, err := l.AllowN(ctx, user, action, n)
		if err == nil && !d.Allowed {
			err = ErrRefused
		}
		return d, err
	}
	w := waiter{limiter: l, user: user, action: action, cost: int64(n), begun: time.Now(), patience: maxPeriod, wake: make(chan struct{}, 1)}
	if p, ok := ctx.(interface{ Patience() time.Duration }); ok { // the context of package gate
		w.patience = min(w.patience, p.Patience())
	}
	if end, ok := ctx.Deadline(); ok {
		w.patience = min(w.patience, time.Until(end))
	}
	w.q = l.waiting.join(&w)
	defer w.leave()
	if s, ok := find[waitWatcher](l.store); ok {
		watched, end := s.Waiting(ctx, action, l.limits)
		ctx = watched
		defer func() { end(d, err) }()
	}
	return w.wait(ctx)
}

// A waitWatcher is a store that counts calls of Wait, as that of package metrics does. Wait
// asks the store with the context that Waiting returns, and calls end with its own results.
type waitWatcher interface {
	Waiting(ctx context.Context, action string, limits []Limit) (watched context.Context, end func(Decision, error))
}

// A waiter is a call of Wait.
type waiter struct {
	limiter      *Limiter
	user, action string
	cost         int64
	begun        time.Time
	patience     time.Duration // from begun
	q            *waitQueue
	wake         chan struct{} // signals that the waiter's position or turn may have changed
	granted      bool          // it asks, though it is not the first
	left         bool
}

// wait waits to be the first of the queue or to be granted room, and then for the store to let
// the action pass.
func (w *waiter) wait(ctx context.Context) (Decision, error) {
	var over <-chan time.Time
	for {
		if err := ctx.Err(); err != nil {
			return w.end(ctx, err)
		}
		at := w.position()
		switch {
		case at.first:
			return w.ask(ctx)
		case at.granted:
			if d, err := w.charge(ctx); err != nil || d.Allowed {
				return d, err
			}
			continue
		case !at.turn.IsZero() && w.late(at.turn):
			d, err := w.take(ctx, machine.Charge) // it counts as an attempt
			if err != nil || d.Allowed {
				return d, err
			}
			return refusal(d, time.Until(at.turn)), ErrRefused
		}
		if over == nil {
			over = time.After(w.patience)
		}
		select {
		case <-w.wake:
		case <-over:
			return w.end(ctx, context.DeadlineExceeded)
		case <-ctx.Done():
			return w.end(ctx, ctx.Err())
		}
	}
}

// handover is how long before its turn a waiter lets the next one ask. It hides the delay of
// a distant store. It is short, so that waiters who leave together have reserved little.
const handover = 10 * time.Millisecond

// ask asks the store until the action passes.
func (w *waiter) ask(ctx context.Context) (Decision, error) {
	l, first := w.limiter, time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return w.end(ctx, err)
		}
		patience := w.patience - time.Since(w.begun)
		c := Charge{User: w.user, Action: w.action, Limits: l.limits, Ask: machine.Ask{Cost: w.cost}, Receipt: true}
		if l.reserves() {
			c.Ahead = max(0, patience.Microseconds()-1) // a turn at the deadline is too late
		}
		d, err := l.store.Take(ctx, c)
		if err != nil {
			return d, err
		}
		pause := d.RetryAfter
		switch {
		case !d.Allowed && pause >= patience:
			return d, ErrRefused
		case !d.Allowed: // other processes compete for the turn: ask ever more rarely, but in time
			pause = max(pause, min(time.Since(first)/16, patience/2))
		case d.receipt == nil:
			w.q.open(d)
			return d, nil
		default:
			pause = d.receipt.turn()
		}
		if !d.Allowed || pause > 0 || !w.q.open(d) {
			w.q.announce(time.Now().Add(pause))
		}
		if d.Allowed {
			return w.turn(ctx, d, pause)
		}
		if err := sleep(ctx, pause); err != nil {
			w.withdraw()
			return w.end(ctx, err)
		}
	}
}

// turn waits for a turn that is reserved.
func (w *waiter) turn(ctx context.Context, d Decision, pause time.Duration) (Decision, error) {
	at := time.Now().Add(pause)
	err := sleep(ctx, pause-handover)
	if err == nil {
		w.leave()
		err = sleep(ctx, time.Until(at))
	}
	if err != nil { // the next caller asks after this
		w.withdraw()
		_ = w.limiter.Refund(context.WithoutCancel(ctx), d)
		return w.end(ctx, err)
	}
	if !w.limiter.refundable {
		d.receipt = nil
	}
	d.ResetAfter -= pause
	return d, nil
}

// charge asks the store for a waiter that was granted room. If the store refuses the action, others
// have taken the room.
func (w *waiter) charge(ctx context.Context) (d Decision, err error) {
	defer func() {
		q := w.q
		q.of.mu.Lock()
		defer q.of.mu.Unlock()
		w.granted = false
		q.granted -= w.cost
		if err == nil && !d.Allowed {
			q.room = 0
		}
	}()
	return w.take(ctx, machine.Charge)
}

// end is what a waiter returns whose time is over before its turn. If its context has not ended,
// it takes the room that there is.
func (w *waiter) end(ctx context.Context, err error) (Decision, error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return Decision{}, err
	}
	d, err := w.take(context.WithoutCancel(ctx), machine.Peek)
	if err != nil {
		return d, err
	}
	end, ok := ctx.Deadline()
	if d.Allowed && ctx.Err() == nil && (!ok || time.Now().Before(end)) {
		if d, err = w.take(ctx, machine.Charge); err != nil || d.Allowed {
			return d, err
		}
	}
	return refusal(d, 0), ErrRefused
}

// take asks the store for the action without a turn.
func (w *waiter) take(ctx context.Context, mode machine.Mode) (Decision, error) {
	l := w.limiter
	return l.store.Take(ctx, Charge{User: w.user, Action: w.action, Limits: l.limits, Ask: machine.Ask{Mode: mode, Cost: w.cost}, Receipt: l.refundable})
}

// refusal is the decision for a waiter whose turn does not come in time.
func refusal(d Decision, after time.Duration) Decision {
	if d.Allowed {
		d.Allowed, d.Reason = false, ReasonLimited
	}
	d.RetryAfter = max(d.RetryAfter, after)
	return d
}

// reserves reports whether a turn can be reserved: by one bucket or funnel. Several limits
// cannot be charged ahead of time without admitting too much.
func (l *Limiter) reserves() bool {
	e := enforced(l.limits)
	return len(e) == 1 && e[0].rule.Metered()
}

// waiting has the queues of a limiter.
type waiting struct {
	mu     sync.Mutex
	queues map[[2]string]*waitQueue
}

// A waitQueue is the callers of this process that wait for one user and action.
type waitQueue struct {
	of      *waiting
	waiters []*waiter // in the order of arrival
	next    time.Time // when the first one's turn comes; zero if not known yet
	room    int64     // units that waiters besides the first can be granted
	granted int64     // units that were granted and are being charged
}

func (a *waiting) join(w *waiter) *waitQueue {
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
	q.waiters = append(q.waiters, w)
	return q
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

// announce says when the first one's turn comes. If that was not known, it rouses those whose own
// turn comes too late.
func (q *waitQueue) announce(next time.Time) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	known := !q.next.IsZero()
	q.next, q.room = next, 0
	if known {
		return
	}
	turn := next
	for _, w := range q.waiters[min(1, len(q.waiters)):] {
		if turn = w.after(turn); w.late(turn) {
			w.rouse()
		}
	}
}

// after is the earliest turn of a waiter behind one whose turn is at turn.
func (w *waiter) after(turn time.Time) time.Time {
	if !w.limiter.reserves() {
		return turn
	}
	return turn.Add(micros(w.limiter.limits[0].rule.Time(w.cost).Whole))
}

// late reports whether that turn comes too late for the waiter.
func (w *waiter) late(turn time.Time) bool { return turn.Sub(w.begun) >= w.patience }

// open grants the room that an answer has left, in the order of arrival, and reports whether there
// is any. So no more waiters ask than can pass: a refusal would count as an attempt.
func (q *waitQueue) open(d Decision) bool {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.room = max(0, int64(d.Remaining)-q.granted)
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

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
