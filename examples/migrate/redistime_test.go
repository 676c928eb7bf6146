package migrate

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

func TestFiveRepliesAMinuteOnRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		defer server.Close()
		server.ClockTTL(true) // keys expire by the bubble's clock
		rdb := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:6379", // a name would be looked up
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer rdb.Close()
		replies := core.Must(core.New(redisstore.New(rdb, nil), core.SlidingWindow(5, time.Minute)))

		for _, step := range []struct {
			later time.Duration
			pass  int
		}{{0, 5}, {59 * time.Second, 0}, {time.Second, 5}} {
			time.Sleep(step.later) // takes no time
			for i := range 6 {
				d, err := replies.Allow(t.Context(), "alice", "reply")
				if err != nil || d.Allowed != (i < step.pass) {
					t.Fatalf("%s later, reply %d: %+v, %v", step.later, i+1, d, err)
				}
			}
		}
	})
}
