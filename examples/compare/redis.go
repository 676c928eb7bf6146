package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// server is the Redis of a run. The run's keys have a prefix of their own and are removed
// again; if the run is ended early, they expire within a minute.
type server struct {
	rdb    *redis.Client
	prefix string
	store  *redisstore.Store
}

func connect(ctx context.Context, addr string) (*server, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		return nil, fmt.Errorf("the Redis at %s does not answer: %w", addr, err)
	}
	prefix := fmt.Sprintf("cmp%04x", uint16(time.Now().UnixNano())) // as long as the default one
	return &server{rdb, prefix, redisstore.New(rdb, &redisstore.Options{
		Prefix:  prefix,
		Timeout: 10 * time.Second, // 10,000 actions in one call are no ordinary call
	})}, nil
}

func (s *server) close() { _ = s.rdb.Close() }

// measure finds what every limit of every quota takes: the median of so many decisions
// that pass, one after another, on keys whose quota is half used up; and the size of a key
// whose quota is all used up. The limits take turns, as in process.
func (s *server) measure(ctx context.Context, quotas []int, costs [][]cost, decisions int) error {
	var all []*turns
	for i, quota := range quotas {
		for j := range contenders {
			c := &contenders[j]
			if !c.takes(quota) {
				continue
			}
			l, err := core.New(s.store, c.limit(quota))
			if err != nil {
				return err
			}
			if costs[i][j].redisBytes, err = s.size(ctx, l, quota); err != nil {
				return fmt.Errorf("%s: %w", l.Limits()[0], err)
			}
			all = append(all, &turns{limiter: l, cost: &costs[i][j], name: c.name, quota: quota})
		}
	}
	for range decisions {
		for _, t := range all {
			if err := t.take(ctx); err != nil {
				return fmt.Errorf("%s: %w", t.limiter.Limits()[0], err)
			}
		}
	}
	for _, t := range all {
		t.cost.micros = median(t.took)
		if err := t.limiter.Reset(ctx, t.user(), "reply"); err != nil {
			return err
		}
	}
	return nil
}

// turns are the decisions of one limit, on one user after another.
type turns struct {
	limiter *core.Limiter
	cost    *cost
	name    string
	quota   int
	users   int
	left    int // decisions that the present user's quota still has
	took    []float64
}

// user is one that no other limit has, since a Funnel and a Throttle would share it.
func (t *turns) user() string { return fmt.Sprintf("%s%d.%d", t.name, t.quota, t.users) }

// take makes one decision.
func (t *turns) take(ctx context.Context) error {
	if t.left == 0 {
		if err := t.limiter.Reset(ctx, t.user(), "reply"); err != nil {
			return err
		}
		t.users++
		if err := fill(ctx, t.limiter, t.user(), t.quota/2); err != nil {
			return err
		}
		t.left = t.quota - t.quota/2
	}
	t.left--
	start := time.Now()
	_, err := t.limiter.Allow(ctx, t.user(), "reply")
	t.took = append(t.took, float64(time.Since(start).Nanoseconds())/1000)
	return err
}

// size is what Redis says of a key with a used-up quota, for a user and action with names of
// ordinary length. It is the only key of the run at that time.
func (s *server) size(ctx context.Context, l *core.Limiter, quota int) (float64, error) {
	if err := fill(ctx, l, "alice", quota); err != nil {
		return 0, err
	}
	bytes := int64(0)
	keys := s.rdb.Scan(ctx, 0, s.prefix+":*", 1000).Iterator()
	for keys.Next(ctx) {
		n, err := s.rdb.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	if err := keys.Err(); err != nil {
		return 0, err
	}
	return float64(bytes), l.Reset(ctx, "alice", "reply")
}
