package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Part returns the address of the server that has the user's states, on a Cluster or a Ring.
// Otherwise it is empty. If one server fails, [core.Fallback], [core.FailOpen] and
// [core.Shadow] stop asking only that server.
func (s *Store) Part(user string) string {
	if _, single := s.rdb.(*redis.Client); single || s.answered.Load() == 0 {
		return "" // before the first answer a Cluster's client would have to ask Redis
	}
	var few [128]byte
	if node := s.node(context.Background(), string(s.appendUser(few[:0], user))); node != nil {
		return node.Options().Addr
	}
	return ""
}

// node returns the client of the server that has a key, or nil if it is not known.
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
