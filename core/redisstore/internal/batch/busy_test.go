package batch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

type redisError string

func (e redisError) Error() string { return string(e) }

func (redisError) RedisError() {}

// While the program uses all connections otherwise, more batches would only wait for one.
func TestNoMoreBatchesIfThePoolIsExhausted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rdb := client(t, redis.Options{PoolSize: 5})
		for range 5 {
			conn := rdb.Conn()
			defer conn.Close()
			if err := conn.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		c := &callers{t: t, q: New(rdb, 200*time.Millisecond, func(Send, []*Call) error {
			t.Error("a batch is sent")
			return nil
		})}
		for i := range 20 {
			c.call(t.Context(), fmt.Sprint(i), 1)
			if _, sending := c.q.Load(); sending < 1 || sending > fewBatches {
				t.Errorf("%d goroutines wait for a connection", sending)
			}
			time.Sleep(2 * time.Millisecond)
		}
		c.wait()
		for i := range 20 {
			if err := c.answer(fmt.Sprint(i)); err != context.DeadlineExceeded {
				t.Errorf("%v", err)
			}
		}
	})
}

// A lane has a bound. A caller who leaves makes room at once.
func TestBusy(t *testing.T) {
	for _, weight := range []int{0, 1} {
		bubble(t, func(t *testing.T) {
			s := &server{let: make(chan struct{})}
			q := New(client(t, redis.Options{}), timeout, s.exchange)
			if q.maxCalls != maxCalls {
				t.Errorf("the bound is %d", q.maxCalls)
			}
			q.maxCalls = 4
			c := &callers{t: t, q: q}
			ctx, leave := context.WithCancel(t.Context())
			c.call(ctx, "sent", weight)
			c.call(ctx, "sent too", weight)
			c.call(ctx, "a", weight)
			c.call(ctx, "b", weight)
			c.call(ctx, "c", weight)
			if err := c.answer("c"); err != ErrBusy {
				t.Errorf("%v", err)
			}
			leave()
			c.wg.Wait()
			for _, key := range []string{"sent", "a"} {
				if err := c.answer(key); err != context.Canceled {
					t.Errorf("%s: %v", key, err)
				}
			}
			close(s.let)
			c.call(t.Context(), "d", weight)
			c.wait()
			if err := c.answer("d"); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
}

// However many calls wait for a server that hangs, those to another have room.
func TestBusyIsOneServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1", "two": "127.0.0.1:2"}, Dialer: connects, HeartbeatFrequency: time.Hour})
		defer ring.Close()
		let := make(chan struct{})
		var q *Queue
		q = New(ring, timeout, func(_ Send, calls []*Call) error {
			if q.Server(calls[0].Keys[0]) == "127.0.0.1:1" {
				<-let
			}
			calls[0].Reply = []any{true}
			return nil
		})
		if part := q.Server("anybody's"); part != "" {
			t.Errorf("%q before the first answer", part)
		}
		q.reached.Store(true)
		keys := map[string]string{} // one of each server
		for i := 0; len(keys) < 2; i++ {
			keys[q.Server(fmt.Sprint(i))] = fmt.Sprint(i)
		}
		const most = 100
		q.maxCalls = most
		ctx, leave := context.WithCancel(t.Context())
		var busy atomic.Int64
		var wg sync.WaitGroup
		for i := range 2 * most {
			wg.Go(func() {
				if _, err := q.Do(ctx, &Call{Keys: []string{keys["127.0.0.1:1"]}, Weight: i % 2}); err == ErrBusy {
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		if n, _ := q.Load(); n > most {
			t.Errorf("%d wait", n)
		}
		if _, err := q.Do(t.Context(), &Call{Keys: []string{keys["127.0.0.1:2"]}, Weight: 1}); err != nil {
			t.Errorf("the other server's: %v", err)
		}
		leave()
		wg.Wait()
		close(let)
		if _, err := q.Do(t.Context(), &Call{Keys: []string{keys["127.0.0.1:1"]}, Weight: 1}); err != nil {
			t.Errorf("later: %v", err)
		}
		if busy.Load() != most {
			t.Errorf("%d were told that it is busy", busy.Load())
		}
	})
}
