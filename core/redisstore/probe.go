package redisstore

// A probe finds out whether the client can connect.

import (
	"context"
	"time"
)

// If a client cannot connect, it tries for longer than the timeout before it returns an error,
// and after PoolSize failures it tries only once a second. So if a call is late and the client
// has no connection, the store opens one itself. If that fails, the callers get the error at
// once. For dialFailedFor, the store then tries before every command, so that the client's
// failures do not add up.
const (
	dialFailedFor = 5 * time.Second
	maxProbes     = 8 // at a time
)

// dialFailed reports whether a connection could not be opened a short time ago.
func (s *Store) dialFailed() bool {
	at := s.dialFailedAt.Load()
	return at != 0 && time.Since(s.base) < time.Duration(at)+dialFailedFor
}

// probe opens and closes a connection to a key's server, if the client has none. It returns
// the error if that fails.
func (s *Store) probe(ctx context.Context, key string) error {
	node := s.node(ctx, key)
	if node == nil || node.PoolStats().TotalConns > 0 {
		return nil
	}
	defer s.probes.Add(-1)
	if s.probes.Add(1) > maxProbes {
		return nil
	}
	o := node.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		s.dialFailedAt.Store(int64(time.Since(s.base)) + 1)
		return err
	}
	return conn.Close()
}

// probeBatch ends a batch if the client cannot connect.
func (s *Store) probeBatch(b *batch, key string) {
	defer func() { _ = recover() }() // the program's dialer may panic
	if err := s.probe(b, key); err != nil {
		b.cancel(err)
	}
}
