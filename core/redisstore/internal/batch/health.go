package batch

// Whether a server answers, and finding out.

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// A state says whether batches are sent to a server. If a call has no answer, its connection may be dead, or the
// server. This is all that changes the state of a lane:
//
//	queueUp     no connection can be opened: cut or mute
//	unanswered  what was sent has no answer: cut or mute
//	conclude    a check: if a new connection answers, trial; if it is refused, cut
//	answers     what was sent has an answer: up
//
// A check opens a connection by itself: if a client cannot connect, it tries for longer than the timeout before
// it returns an error. Its failures add up too: after PoolSize of them it tries only once a second. If no
// connection can be opened, the callers get the error at once. If the new connection answers and the old ones
// did not, the check asks all idle ones at once, so that the dead ones go together. With the first that
// answers, a batch tries again.
type state int

const (
	up    state = iota
	trial       // one batch may be under way, until there is an answer
	cut         // down: a connection was closed, or could not be opened
	mute        // down: what was sent had no answer in time
)

// down reports whether nothing is sent.
func (s state) down() bool { return s > trial }

const (
	maxChecks  = 4                      // under way at a time, since a Dialer may hang
	maxRecheck = 100 * time.Millisecond // from a connection that was closed to the next check, at most
)

// health is whether the server of a lane answers, and the checks that find out.
type health struct {
	state
	answered time.Time // when the last answer came

	checks    int       // under way
	recheck   time.Time // the next one does not begin earlier
	replacing bool      // one of them replaces dead connections
}

// worsen notes that a server is down. Of two reasons it keeps the worse.
func (h *health) worsen(to state) { h.state = max(h.state, to) }

// answers notes that a server has answered.
func (h *health) answers(now time.Time) { h.state, h.answered, h.recheck = up, now, time.Time{} }

// unanswered takes the error of a batch that has no answer, or of a call that was in none.
func (l *lane) unanswered(b *batch, err error) {
	h, s := &l.health, stateAfter(err)
	if b == nil || !b.senders.current() || s == mute && h.answered.After(b.sent) {
		return
	}
	h.worsen(s)
	if soon := time.Now().Add(min(l.q.timeout, maxRecheck)); s == cut && soon.Before(h.recheck) {
		h.recheck = soon
	}
}

// stateAfter returns the state of a server after an error. If the error says nothing about the
// server, that is up, which makes no state worse.
func stateAfter(err error) state {
	var op *net.OpError
	switch {
	case isLate(err):
		return mute
	case errors.Is(err, io.EOF), errors.As(err, &op):
		return cut
	}
	return up
}

// isLate reports whether an error says that there was no answer in time.
func isLate(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// startCheck starts a check, unless there was one lately.
func (l *lane) startCheck(now time.Time) {
	h := &l.health
	if h.checks < maxChecks && (h.down() || h.checks == 0) && !now.Before(h.recheck) {
		h.checks++
		if h.down() {
			h.recheck = now.Add(l.q.timeout)
		}
		go l.q.recoverLane(l, l.calls.key, h.state)
	}
}

// recoverLane finds out whether the server of a lane answers on a new connection. If it does, dead connections are
// replaced, the senders that may hang are abandoned, and new ones send the calls that queue. began is the state in which the check began.
func (q *Queue) recoverLane(l *lane, key string, began state) {
	server, took, err := q.check(l.server, key, began)
	replaces := q.checked(l, began, server, err)
	if replaces {
		err = q.replaceDead(server, began, took)
	}
	q.conclude(l, replaces, err)
}

// check pings a server on a new connection, and returns how long the answer took. The server is
// known, or else it is the one that has key. If began is up, check pings only if the client has no
// connection. If check did not ping, or cannot tell which server has the key, server is nil.
func (q *Queue) check(known *redis.Client, key string, began state) (server *redis.Client, took time.Duration, err error) {
	err = q.withServer(known, key, func(ctx context.Context, s *redis.Client) (err error) {
		if began.down() || s.PoolStats().TotalConns == 0 {
			server = s
			took, err = q.dialAndPing(ctx, s)
		}
		return err
	})
	return server, took, err
}

// checked ends a check. It reports whether this one is to replace dead connections: only one at a time does.
func (q *Queue) checked(l *lane, began state, server *redis.Client, err error) (replaces bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &l.health
	h.checks--
	if err == nil && server != nil {
		h.recheck = time.Now().Add(batchTime * q.timeout)
	}
	replaces = err == nil && began.down() && h.down() && !h.replacing
	h.replacing = h.replacing || replaces
	return replaces
}

// replaceDead sees to it that the client has a connection that works. If the open ones may be dead, it asks all that
// are idle, and one more. If the server is slow, they have twice as long as the new connection took.
func (q *Queue) replaceDead(server *redis.Client, began state, took time.Duration) error {
	switch {
	case server == nil:
		return nil
	case began == mute:
		return q.firstPong(server.WithTimeout(max(q.timeout, 2*took)), 1+int(server.PoolStats().IdleConns))
	}
	return q.firstPong(server, 1)
}

// conclude has sending go on if dead connections were replaced. If the server refuses connections, it ends all calls.
func (q *Queue) conclude(l *lane, replaced bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &l.health
	h.replacing = h.replacing && !replaced
	switch {
	case err != nil && !isLate(err):
		h.recheck = time.Time{}
		h.worsen(cut)
		for l.calls.oldest != nil {
			l.calls.oldest.end(err)
		}
	case err == nil && replaced && h.down():
		h.state, l.senders = trial, &senders{lane: l}
		if l.calls.first != nil {
			l.start()
		}
	}
}
