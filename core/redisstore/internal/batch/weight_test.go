package batch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A batch is bounded by its work, and a call that is above the bound is sent by itself.
func TestWeight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{let: make(chan struct{})}
		c := &callers{t: t, q: New(client(t, redis.Options{PoolSize: 1}), timeout, s.exchange)}
		for i, weight := range []int{1, maxWeight / 2, maxWeight / 2, 1, 2 * maxWeight, maxWeight, 1} {
			c.call(t.Context(), fmt.Sprint(i), weight)
		}
		close(s.let)
		c.wait()
		if got := fmt.Sprint(s.sizes); got != "[1 2 1 1 1 1]" {
			t.Errorf("the batches have %s calls", got)
		}
	})
}

// A Dialer that hangs, and does not heed its context, is called by few checks at a time.
func TestFewChecksAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var checks atomic.Int32
		release := make(chan struct{})
		o := redis.Options{Addr: "127.0.0.1:1", PoolSize: 1, DialTimeout: time.Hour, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if end, ends := ctx.Deadline(); ends && time.Until(end) <= openTime*time.Second {
				checks.Add(1) // the client has DialTimeout
			}
			<-release
			return nil, errors.New("released")
		}}
		rdb := redis.NewClient(&o)
		q := New(rdb, time.Second, nil)
		for range 100 {
			if _, err := q.Do(t.Context(), &Call{Keys: []string{"k"}, Weight: 1}); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		if n := checks.Load(); n < 1 || n > maxChecks {
			t.Errorf("%d checks", n)
		}
		close(release)
		_ = rdb.Close()
		time.Sleep(time.Hour) // the client tries for a while
	})
}
