package batch

// Whether a server answers, and how the queue finds out.

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// A state says whether batches are sent to a server. If a call has no answer, its connection or the
// server may be dead. Only these functions change the state of a lane:
//
//	queueUp     to cut or mute, if no connection can be opened
//	unanswered  to cut or mute, if a batch has no answer
//	conclude    to trial, if a check has an answer on a new connection; to cut, if the server
//	            refused that connection
//	answers     to up, if a batch has an answer
//
// A check opens its own connection. The client is too slow for that: if it cannot connect, it tries
// for longer than the timeout before it returns an error, and after PoolSize failures it tries only
// once a second. If the server refuses connections, the callers get the error at once.
//
// If the new connection has an answer and the old ones had none, the check pings all idle
// connections at once, so that the client closes all dead ones together. After the first pong one
// batch is sent as a trial.
type state int

const (
	up    state = iota
	trial       // one batch may be under way, until it has an answer
	cut         // down: a connection was closed, or could not be opened
	mute        // down: a batch had no answer in time
)

// down reports whether no batch is sent.
func (s state) down() bool { return s > trial }

const (
	maxChecks  = 4                      // how many checks may be under way, because a Dialer may hang
	maxRecheck = 100 * time.Millisecond // the longest time from a closed connection to the next check
)

// health is the state of a server, and the checks that find out whether it answers.
type health struct {
	state
	answered time.Time // when the last answer came

	checks    int       // how many checks are under way
	recheck   time.Time // when the next check may begin
	replacing bool      // a check is replacing dead connections
}

// worsen sets a state, unless the present state is as bad or worse.
func (h *health) worsen(to state) { h.state = max(h.state, to) }

// answers notes that a server has answered.
func (h *health) answers(now time.Time) { h.state, h.answered, h.recheck = up, now, time.Time{} }

// unanswered notes that a batch has no answer. If the error says nothing about the server,
// unanswered does nothing. It also does nothing in these cases:
//
//   - b is nil, because the call was in no batch.
//   - The lane has abandoned the senders of the batch.
//   - The batch only took too long, and the server has given an answer since the batch was sent.
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
// server, stateAfter returns up, which worsen ignores.
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

// startCheck starts a check, unless too many are under way or the last one was a short time ago.
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

// recoverLane checks whether the server of a lane answers on a new connection. If the lane was down
// and the server answers, recoverLane replaces dead connections, abandons the senders, which may
// hang, and starts new ones. began is the state in which the check began.
func (q *Queue) recoverLane(l *lane, key string, began state) {
	server, took, err := q.check(l.server, key, began)
	replaces := q.checked(l, began, server, err)
	if replaces {
		err = q.replaceDead(server, began, took)
	}
	q.conclude(l, replaces, err)
}

// check pings a server on a new connection, and returns how long the answer took. If known is nil,
// check pings the server that has the key. If began is up, check pings only if the client has no
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

// checked notes that a check has ended. It reports whether this check should replace dead
// connections. Only one check does that at a time.
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

// replaceDead returns when the client has a connection that works. If the open connections may be
// dead, replaceDead pings on all idle connections and on a new one. A ping may then wait for its
// reply as long as the timeout. If the server is slow, it may wait twice as long as the check took.
func (q *Queue) replaceDead(server *redis.Client, began state, took time.Duration) error {
	switch {
	case server == nil:
		return nil
	case began == mute:
		return q.firstPong(server.WithTimeout(max(q.timeout, 2*took)), 1+int(server.PoolStats().IdleConns))
	}
	return q.firstPong(server, 1)
}

// conclude ends a check. If dead connections were replaced, it starts to send again. If the server
// refuses connections, it ends all calls.
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
