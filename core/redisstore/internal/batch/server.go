package batch

// Which server a call is for, and what the client knows of it.

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Server returns the address of the server that has a key, on a Cluster or a Ring. It is empty
// otherwise, and before the first answer.
func (q *Queue) Server(key string) string {
	if server := q.known(key); server != nil && !q.single {
		return server.Options().Addr
	}
	return ""
}

// known returns the client of the server that has a key, or nil if it is not known. Before the
// first answer a Cluster's client would have to ask Redis.
func (q *Queue) known(key string) *redis.Client {
	if !q.single && !q.reached.Load() {
		return nil
	}
	return q.server(context.Background(), key)
}

// server returns the client of the server that has a key, or nil if the client cannot tell.
func (q *Queue) server(ctx context.Context, key string) (server *redis.Client) {
	var err error
	switch rdb := q.rdb.(type) {
	case *redis.Client:
		return rdb
	case interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	}:
		server, err = rdb.MasterForKey(ctx, key)
	case interface {
		GetShardClientForKey(string) (*redis.Client, error)
	}:
		server, err = rdb.GetShardClientForKey(key)
	}
	if err != nil {
		return nil
	}
	return server
}

// connections returns how many a client can use.
func connections(server *redis.Client) int {
	o := server.Options()
	if o.MaxActiveConns > 0 {
		return min(o.PoolSize, o.MaxActiveConns)
	}
	return o.PoolSize
}

// askForMasters has a Cluster's client look for new masters, at most five times a second. By
// itself it does so when it retries a command, which these commands forbid, or once a minute.
func (q *Queue) askForMasters() {
	if c, ok := q.rdb.(interface{ ReloadState(context.Context) }); ok {
		c.ReloadState(context.Background())
	}
}
