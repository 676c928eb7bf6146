package redisstore

// Opening connections before the first request.

import (
	"context"
	"time"
)

// Connect opens connections to Redis: two, or if it is far away one for each millisecond of its
// response time, at most PoolSize and 32. Call it before the program serves. Otherwise the first calls
// open them, in up to six round trips, and may time out meanwhile. If Connect returns an error, the
// program can serve all the same.
func (s *Store) Connect(ctx context.Context) error {
	start := time.Now()
	if err := s.batches.Connect(ctx); err != nil {
		return s.explain(ctx, start, err)
	}
	return nil
}
