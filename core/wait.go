package core

// Wait blocks a caller until its action may pass:
//
//  1. WaitAll makes a waiter, which joins the queue of its subjects: see waitqueue.go.
//  2. wait waits until the queue wakes the waiter, or its time ends.
//  3. lead is for the first waiter of the queue. It asks the store until the action passes, and
//     tells the queue each answer. So the queue knows which other waiters to wake. A waiter that is
//     woken asks the store, and waits again if the action does not pass.
//  4. awaitTurn waits until the turn that the first waiter has reserved.
//  5. askLast is for a waiter whose turn does not come in time. It asks a last time.

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/tailcut/tailcut/core/machine"
)

// longestWait is the longest time for which Wait and WaitAll block.
const longestWait = maxPeriod

// ErrRefused is the error of [Limiter.Wait] if the action gets no turn before the deadline, or can
// never pass. The decision that Wait returns with this error has a RetryAfter. If the action can
// never pass, RetryAfter is [Never], and Wait returns an error that matches ErrRefused and says
// why.
var ErrRefused = errors.New("core: the action gets no turn before the deadline")

// noTurn returns the error of Wait for a refusal.
func noTurn(d *Decision) error {
	switch {
	case d.RetryAfter != Never:
		return ErrRefused
	case d.Reason == ReasonNothing:
		return textError{"core: the action gets no turn at any time: its limit is Nothing()", ErrRefused}
	}
	return textError{"core: the action gets no turn at any time: it costs more than the quota of a limit", ErrRefused}
}

// Wait blocks until the action may pass, and returns the decision. Wait blocks for at most 365
// days, also if ctx has no deadline. As soon as Wait knows that the turn does not come before the
// deadline, it returns [ErrRefused] and the refusal. If ctx is canceled, or has ended before the
// call, Wait returns the error of ctx.
//
//   - Turns: callers of one limiter that wait for the same user and action take turns in the order
//     of arrival. The first of them asks the store. If the answer shows more room, the next callers
//     ask too. If the answer shows that a caller's turn will come after the caller's deadline, the
//     caller leaves the queue, asks the store once, and returns that answer.
//   - Reservations: if the limiter has exactly one enforced limit, and this is a bucket or funnel,
//     the first caller reserves its turn in the store, and other processes queue behind it. So a
//     caller learns at once if its turn comes too late. If ctx is canceled before the turn, the
//     turn is given back, unless a later turn depends on it.
//   - Slots: if a slot of [InFlight] is released, Wait notices this at once if this limiter, or one
//     derived from it, took the slot. Wait notices other free slots within about 250 ms.
//   - If no turn is reserved, the first caller waits for RetryAfter and asks again. It pauses for
//     longer if other processes have taken its turn for a long time.
//   - Bans: a banned caller waits until the ban ends, also if the ban begins during the wait. A ban
//     that begins after a turn was reserved does not take away the turn.
//   - Waiting does not count as an attempt. An ElasticWindow, a SlidingWindow with CountRefused and
//     a BanPolicy count a refusal only if Wait returns it before ctx ends.
//   - If the store fails, all callers that wait for the same user and action stop waiting for a
//     turn, and ask the store at once.
//   - The deadline does not cut short a call of the store that has begun, and the answer counts. So
//     Wait may return after the deadline, by about the store's timeout.
func (l *Limiter) Wait(ctx context.Context, user, action string) (Decision, error) {
	return l.WaitN(ctx, user, action, 1)
}

// WaitN is [Limiter.Wait] for an action that costs n units: see [Limiter.AllowN].
func (l *Limiter) WaitN(ctx context.Context, user, action string, n int) (Decision, error) {
	return WaitAll(ctx, longestWait, Subject{l, user, action, n})
}

// WaitAll is [Limiter.Wait] for one or more subjects: it blocks until [All] allows the actions. It
// blocks for at most the duration most, and for at most 365 days. If the turn does not come in that
// time, the error is [ErrRefused]. Callers that wait for the same subjects in the same order take
// turns. With several subjects no turn is reserved.
func WaitAll(ctx context.Context, most time.Duration, subjects ...Subject) (d Decision, err error) {
	if err := checkSubjects(ctx, subjects); err != nil {
		return Decision{}, err
	}
	home := subjects[0].limiter
	w := newWaiter(subjects, min(most, longestWait)+time.Microsecond) // a turn exactly at the end is in time
	end, ends := ctx.Deadline()
	w.endless = most >= longestWait && !ends
	if _, dry := find[*shadow](home.store); dry || w.never || w.cost == 0 {
		err := decide(ctx, machine.Ask{}, subjects, &d)
		if err == nil && !d.Allowed {
			err = noTurn(&d)
		}
		return d, err
	}
	if ends {
		w.patience = min(w.patience, time.Until(end))
	}
	home.waitQueues.join(keyOf(subjects), &w.ticket)
	defer home.waitQueues.leave(&w.ticket)
	if s, ok := find[WaitWatcher](home.store); ok {
		watched, end := s.Waiting(ctx, jointCharge(subjects, machine.Ask{}))
		ctx = watched
		defer func() { end(d, err) }()
	}
	return w.wait(ctx)
}

// A queueKey names a queue: callers with the same subjects are in one queue. The pointer to the
// limits is a part of the key. So a limiter with a ban policy and the same limiter without one have
// separate queues, and nobody waits behind a banned caller of the other limiter.
type queueKey struct {
	limits       *Limit // the first one
	user, action string
	and          any // the queueKey of the further subjects, or nil
}

func keyOf(subjects []Subject) any {
	if len(subjects) == 0 {
		return nil
	}
	s := &subjects[0]
	return queueKey{&s.limiter.limits[0], s.user, s.action, keyOf(subjects[1:])}
}

// A waiter is a call of Wait. The cost of its ticket is the highest cost of its subjects.
type waiter struct {
	ticket
	subjects []Subject
	never    bool          // a cost can never pass
	reserves bool          // a turn can be reserved: the one enforced limit is a bucket or funnel
	records  bool          // a limit or a ban policy records refusals
	endless  bool          // neither the context nor the caller bounds the wait
	freed    chan struct{} // has a token if a slot was released after the waiter began to ask
}

func newWaiter(subjects []Subject, patience time.Duration) *waiter {
	home := subjects[0].limiter
	first := &home.limits[0].rule
	w := &waiter{
		ticket:   ticket{begun: time.Now(), patience: patience, rule: first, wakeups: make(chan wakeup, 1)},
		subjects: slices.Clone(subjects), freed: make(chan struct{}, 1),
		// Several limits that are charged ahead of time would admit too much.
		reserves: len(subjects) == 1 && len(enforced(home.limits)) == 1 && first.Reserves(),
	}
	for i := range subjects {
		s := &subjects[i]
		w.cost = max(w.cost, int64(s.cost))
		w.never = w.never || s.never()
		w.records = w.records || slices.ContainsFunc(s.limiter.limits, func(x Limit) bool { return x.rule.RecordsRefusals() })
	}
	return w
}

// wait waits until the queue wakes the waiter, and then asks the store.
func (w *waiter) wait(ctx context.Context) (Decision, error) {
	for {
		var c wakeup
		select {
		case c = <-w.wakeups:
		case <-time.After(w.timeLeft()):
			return w.end(ctx, context.DeadlineExceeded)
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			return w.end(ctx, err)
		}
		if c.first {
			return w.lead(ctx)
		}
		if !c.late.IsZero() {
			return w.askLast(ctx, time.Until(c.late))
		}
		if d, err := w.attempt(ctx, 0); err != nil || d.Allowed {
			return d, err
		}
		w.q.resume(&w.ticket)
	}
}

// lead asks the store again and again, for the first waiter of the queue, until the action passes.
func (w *waiter) lead(ctx context.Context) (Decision, error) {
	for i := range w.subjects {
		if s := &w.subjects[i]; s.limiter.slotWaiters != nil {
			slot := slotWaiter{s.action, w.freed}
			s.limiter.slotWaiters.watch(s.user, slot)
			defer s.limiter.slotWaiters.unwatch(s.user, slot)
		}
	}
	for first := time.Now(); ; {
		ahead := int64(0)
		if w.reserves { // a turn must come a microsecond before the time ends
			ahead = max(0, w.timeLeft().Microseconds()-1)
		}
		d, err := w.attempt(ctx, ahead)
		if err != nil {
			if !errors.Is(err, ErrRefused) && ctx.Err() == nil {
				w.q.tell(answer{room: math.MaxInt64}) // all other waiters ask now, and learn that the store fails
			}
			return d, err
		}
		if d.Allowed {
			return w.awaitTurn(ctx, d)
		}
		// Other processes may take the turn. So ask more and more rarely, but in time.
		pause := max(d.RetryAfter, min(time.Since(first)/rarer, w.timeLeft()/2))
		turn, freed := time.Now().Add(d.RetryAfter), (chan struct{})(nil)
		w.warn(d)
		if d.Reason == ReasonInFlight { // a slot may be released at any moment
			turn, freed, pause = time.Time{}, w.freed, min(d.RetryAfter, slotEvery, w.timeLeft())
		}
		w.q.tell(answer{turn: turn})
		if err := cmp.Or(sleep(ctx, pause, freed), ctx.Err()); err != nil {
			return w.end(ctx, err)
		}
	}
}

// rarer slows down a waiter whose turn other processes take again and again. The waiter pauses for
// at least a 16th of the time for which it has asked: after a minute for about 4 s, and after an
// hour for about 4 minutes. But it does not lengthen a pause beyond half of its time left. So many
// processes that wait for a busy limit do not load the store.
const rarer = 16

// slotEvery is how often the first waiter asks for a slot that another process may have released.
const slotEvery = 250 * time.Millisecond

// handover is how long before its turn a waiter lets the next one ask. This hides the delay of a
// distant store. handover is short, so that little is reserved if the waiters leave together.
const handover = 10 * time.Millisecond

// awaitTurn waits until the turn comes that the first waiter has reserved. If nothing was reserved,
// the action has passed already.
func (w *waiter) awaitTurn(ctx context.Context, d Decision) (Decision, error) {
	var pause time.Duration
	if r := d.receipt; r != nil && w.reserves {
		pause = micros(r.Limits[0].rule.Delay(r.Readings[0].Rest, machine.Span{}))
	}
	if pause > 0 {
		at := time.Now().Add(pause)
		w.warn(Decision{RetryAfter: pause})
		w.q.tell(answer{turn: at, reserved: true})
		err := sleep(ctx, pause-handover, nil)
		if err == nil {
			w.q.leave(&w.ticket)
			err = sleep(ctx, time.Until(at), nil)
		} else {
			w.q.tell(answer{}) // new callers must not wait behind this turn
		}
		if err != nil { // the next caller asks only after the turn was given back
			d.receipt.giveBack(ctx)
			return w.end(ctx, err)
		}
	} else {
		w.q.tell(answer{room: int64(d.Remaining)})
	}
	if w.reserves && !w.subjects[0].limiter.refundable {
		d.receipt = nil
	}
	d.ResetAfter -= pause
	return d, nil
}

// warn logs, once for a limiter and those derived from it, that a caller without a deadline waits
// for a turn that is more than an hour away.
func (w *waiter) warn(d Decision) {
	const far = time.Hour
	if w.endless && d.RetryAfter > far && d.Reason != ReasonInFlight && w.subjects[0].limiter.waitQueues.warned.Due() {
		slog.Default().Warn("core: Wait waits for more than an hour, because its context has no deadline; give it one with context.WithTimeout, or call WaitAll",
			"code", "long-wait", "wait", d.RetryAfter)
	}
}

// attempt asks the store for the action. It may reserve a turn up to ahead microseconds in advance.
// If the action cannot pass in time, attempt records the refusal, if a limit records refusals, and
// the error matches ErrRefused. While the action can pass later, no refusal is recorded.
func (w *waiter) attempt(ctx context.Context, ahead int64) (Decision, error) {
	var d Decision
	ask := machine.Ask{Ahead: ahead}
	if w.records {
		ask.Mode = machine.ModePatient
	}
	err := w.ask(ctx, ask, &d)
	switch {
	case err != nil || d.Allowed || d.RetryAfter < w.timeLeft():
		return d, err
	case d.Reason == ReasonInFlight && w.timeLeft() > 0: // a slot may be released in time
		return d, nil
	case w.records && ctx.Err() == nil:
		return w.askLast(ctx, 0)
	}
	return d, noTurn(&d)
}

// ask asks the store. If the deadline of ctx passes during the call, the store has another fairTime
// to answer, and the answer counts. Without this time, the store could charge a caller that has
// left. If ctx is canceled, the call ends at once.
func (w *waiter) ask(ctx context.Context, ask machine.Ask, d *Decision) error {
	end, ends := ctx.Deadline()
	if !ends {
		return decide(ctx, ask, w.subjects, d)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	call, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.Add(fairTime))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			cancel()
		}
	})()
	return decide(call, ask, w.subjects, d)
}

// timeLeft returns how long the waiter can still wait.
func (w *waiter) timeLeft() time.Duration { return w.patience - time.Since(w.begun) }

// end ends the call of a waiter whose context or time has ended before its turn.
func (w *waiter) end(ctx context.Context, err error) (Decision, error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return Decision{}, err
	}
	return w.askLast(ctx, time.Microsecond) // it is not known when its turn comes
}

// askLast asks a last time, and ends the call of a waiter whose turn comes too late. If the context
// has not ended, the action passes if there is room. Otherwise the refusal may be recorded. If the
// context has ended, askLast only reads the state, and the action does not pass. The RetryAfter of
// a refusal is at least the argument after.
func (w *waiter) askLast(ctx context.Context, after time.Duration) (Decision, error) {
	w.q.leave(&w.ticket)
	ask := machine.Ask{}
	if end, ends := ctx.Deadline(); ctx.Err() != nil || ends && !time.Now().Before(end) {
		ctx, ask.Mode = context.WithoutCancel(ctx), machine.ModePeek
	}
	var d Decision
	err := w.ask(ctx, ask, &d)
	switch {
	case err != nil || d.Allowed && ask.Mode == machine.ModeCharge:
		return d, err
	case d.Allowed:
		d.Allowed, d.Reason = false, ReasonLimited
	}
	d.RetryAfter = max(d.RetryAfter, after)
	return d, noTurn(&d)
}

// sleep pauses for d, or until wake has a token. If ctx ends first, it returns the error of ctx.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
