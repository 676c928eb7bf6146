package migrate

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

func redisRateBefore(ctx context.Context, rdb *redis.Client, project string) (bool, error) {
	res, err := redis_rate.NewLimiter(rdb).Allow(ctx, project, redis_rate.PerSecond(10))
	if err != nil {
		return false, err
	}
	return res.Allowed > 0, nil
}

// Made once, at start-up: store is redisstore.New(rdb, nil), or a Fallback around it.
func requestLimiter(store core.Store) (*core.Limiter, error) {
	return core.New(store, core.Funnel(10, core.Per(10, time.Second)))
}

func redisRateAfter(ctx context.Context, requests *core.Limiter, project string) (bool, error) {
	d, err := requests.Allow(ctx, project, "request")
	if err != nil {
		return false, err
	}
	return d.Allowed, nil
}

func TestRedisRateLimitsAlike(t *testing.T) {
	server := miniredis.RunT(t)
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	requests, err := requestLimiter(redisstore.New(rdb, &redisstore.Options{Timeout: time.Minute, NoRefusalCache: true}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		later time.Duration
		want  int
	}{{0, 10}, {250 * time.Millisecond, 2}} {
		now = now.Add(tt.later)
		before, after := 0, 0
		for range 15 {
			// redis_rate's fractions are floats: on a clock that stands still it refuses
			// the tenth.
			now = now.Add(10 * time.Microsecond)
			server.SetTime(now)
			passed, err := redisRateBefore(t.Context(), rdb, "project:123")
			if err != nil {
				t.Fatal(err)
			}
			if passed {
				before++
			}
			if passed, err = redisRateAfter(t.Context(), requests, "project:123"); err != nil {
				t.Fatal(err)
			}
			if passed {
				after++
			}
		}
		if before != tt.want || after != tt.want {
			t.Errorf("%s later %d pass before and %d after, want %d", tt.later, before, after, tt.want)
		}
	}
}
