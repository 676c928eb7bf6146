package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Part is the address of the server that has the user's states, on a Cluster or a Ring;
// else it is empty. With it [core.Fallback] and the like give up on one server and not on
// all.
func (s *Store) Part(user string) string {
	if _, single := s.rdb.(*redis.Client); single || s.answered.Load() == 0 {
		return "" // a Cluster's client that has not been answered would have to ask where
	}
	var few [128]byte
	if node := s.node(context.Background(), string(s.appendUser(few[:0], user))); node != nil {
		return node.Options().Addr
	}
	return ""
}

// node is the client of the server that has a key, nil if it is not known.
func (s *Store) node(ctx context.Context, key string) (node *redis.Client) {
	var err error
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return rdb
	case interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	}:
		node, err = rdb.MasterForKey(ctx, key)
	case interface {
		GetShardClientForKey(string) (*redis.Client, error)
	}:
		node, err = rdb.GetShardClientForKey(key)
	}
	if err != nil {
		return nil
	}
	return node
}

// A client that cannot connect tries for longer than the time-out before it says so, and
// when it has failed PoolSize times it tries once a second only. So if a call is late and
// the client has no connection, the store opens one itself, to see whether it can. If it
// cannot, callers hear why at once. For a while it then does so before every command, so
// that the client need not fail.
const (
	troubleFor = 5 * time.Second
	maxKnocks  = 8 // at a time
)

func (s *Store) troubled() bool {
	at := s.trouble.Load()
	return at != 0 && time.Since(s.base) < time.Duration(at)+troubleFor
}

// knock reports why the client of a key's server cannot connect, if it has no connection.
func (s *Store) knock(ctx context.Context, key string) error {
	node := s.node(ctx, key)
	if node == nil || node.PoolStats().TotalConns > 0 {
		return nil
	}
	defer s.knocks.Add(-1)
	if s.knocks.Add(1) > maxKnocks {
		return nil
	}
	o := node.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		s.trouble.Store(int64(time.Since(s.base)) + 1)
		return err
	}
	return conn.Close()
}

// lookAfter has a call that is late end at once if the client cannot connect.
func (s *Store) lookAfter(c *call) {
	if c.state.Load() != callSent || c.batch.late.Swap(true) {
		return
	}
	var key string
	if c.args != nil {
		key = c.args[c.keyAt].(string)
	} else {
		key = c.keys[0]
	}
	go s.explore(c.batch, key)
}

// explore ends a batch if the client cannot connect.
func (s *Store) explore(b *batch, key string) {
	defer func() { _ = recover() }() // of a dialer of the user's
	if err := s.knock(b, key); err != nil {
		b.cancel(err)
	}
}
