package batch

// A probe finds out whether the client can connect.

import "time"

// If a client cannot connect, it tries for longer than the timeout before it returns an error,
// and after PoolSize failures it tries only once a second. So if a call is late and the client
// has no connection, the queue opens one itself. If that fails, the callers get the error at
// once. For dialFailedFor, the queue then tries before every command, so that the client's
// failures do not add up.
const (
	dialFailedFor = 5 * time.Second
	maxProbes     = 8 // at a time
)

func (q *Queue) noteDialFailed() {
	now := time.Now()
	q.dialFailedAt.Store(&now)
}

// dialFailed reports whether a connection could not be opened a short time ago.
func (q *Queue) dialFailed() bool {
	at := q.dialFailedAt.Load()
	return at != nil && time.Since(*at) < dialFailedFor
}

// probe opens and closes a connection to a batch's server, if the client has none. It returns
// the error if that fails.
func (q *Queue) probe(b *batch) error {
	server := q.server(b, b.calls[0].Keys[0])
	if server == nil || server.PoolStats().TotalConns > 0 {
		return nil
	}
	defer q.probes.Add(-1)
	if q.probes.Add(1) > maxProbes {
		return nil
	}
	o := server.Options()
	conn, err := o.Dialer(b, o.Network, o.Addr)
	if err != nil {
		q.noteDialFailed()
		return err
	}
	return conn.Close()
}

// probeLate ends the calls of a batch if the client cannot connect.
func (q *Queue) probeLate(b *batch) {
	defer func() { _ = recover() }() // the program's dialer may panic
	err := q.probe(b)
	if err == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range b.calls {
		c.end(err)
	}
}
