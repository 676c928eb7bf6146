package migrate

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

func TestFiveRepliesAMinuteOnRedis(t *testing.T) {
	server, now := miniredis.RunT(t), time.Now()
	server.SetTime(now)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	store := redisstore.New(rdb, &redisstore.Options{Timeout: time.Minute, NoRefusalCache: true})
	replies := core.Must(core.New(store, core.SlidingWindow(5, time.Minute)))

	for _, step := range []struct {
		later time.Duration
		pass  int
	}{{0, 5}, {59 * time.Second, 0}, {time.Second, 5}} {
		now = now.Add(step.later)
		server.SetTime(now)
		server.FastForward(step.later)
		for i := range 6 {
			d, err := replies.Allow(t.Context(), "alice", "reply")
			if err != nil || d.Allowed != (i < step.pass) {
				t.Fatalf("%s later, reply %d: %+v, %v", step.later, i+1, d, err)
			}
		}
	}
}
