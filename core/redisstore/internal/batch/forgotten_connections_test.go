package batch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tailcut/tailcut/core"
)

// queueStore is a store whose decisions are calls of a queue.
type queueStore struct {
	q     *Queue
	alone bool
}

func (s queueStore) Take(ctx context.Context, c core.Charge) (d core.Decision, r *core.Record, err error) {
	call := &Call{Keys: []string{c.User}, Weight: 1}
	if s.alone {
		call.Weight = 0
	}
	_, err = s.q.Do(ctx, call)
	return core.Decision{Allowed: true, Source: core.SourceStore}, nil, err
}

func (queueStore) Reset(context.Context, string, string, []core.Limit) error { return nil }

// The network forgets all open connections, in silence, as a NAT or a load balancer does, and new ones work.
// Within half a second Redis decides again, whatever the pool, and however far away.
// TAILCUT_FAR=1 runs all cells.
func TestConnectionsThatTheNetworkForgets(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	defer slog.SetDefault(before)
	cells := map[int][]int{1: {4}, 40: {50}} // pool sizes by round trip
	if os.Getenv("TAILCUT_FAR") != "" {
		for _, roundTrip := range []int{1, 10, 25, 40} {
			cells[roundTrip] = []int{1, 2, 4, 10, 32, 50}
		}
	}
	for roundTrip, poolSizes := range cells {
		for _, poolSize := range poolSizes {
			for _, c := range []struct{ idle, heeds, deaf, alone bool }{
				{heeds: true},
				{heeds: true, deaf: true},
				{idle: true, heeds: true},
				{idle: true, heeds: true, deaf: true},
				{heeds: true, alone: true},
				{idle: true, heeds: true, alone: true, deaf: true},
				{idle: true},
				{},
			} {
				if !c.heeds && poolSize <= manyBatches {
					continue // all of its connections may be under way, and it holds them for its ReadTimeout
				}
				t.Run(fmt.Sprintf("%d ms, PoolSize %d, %+v", roundTrip, poolSize, c), func(t *testing.T) {
					const soon = 500 * time.Millisecond
					var first, last time.Duration
					// One of some hundred runs has taken longer; such a one is repeated.
					for try := 0; try == 0 || try == 1 && first > soon; try++ {
						s := &farServer{roundTrip: time.Duration(roundTrip) * time.Millisecond, perCall: 4 * time.Microsecond}
						first, last = s.forgetUnderLoad(t, &redis.Options{PoolSize: poolSize, ContextTimeoutEnabled: c.heeds}, c.idle, c.deaf, c.alone)
						t.Logf("Redis decides again after %s; the last call without an answer is after %s", first, last)
					}
					if first > soon {
						t.Error("that is too long")
					}
				})
			}
		}
	}
}

// forgetUnderLoad has callers ask, and the network forget its connections after two seconds. If idle, the
// whole pool is open and nobody asks for a while before. It returns after how long a call had an answer again, and when the last one had none.
func (s *farServer) forgetUnderLoad(t *testing.T, o *redis.Options, idle, deaf, alone bool) (first, last time.Duration) {
	for range 2 { // the client keeps timers in a sync.Pool, and those of another bubble cannot be used
		runtime.GC()
	}
	bubble(t, func(t *testing.T) {
		s.turn = make(chan struct{}, 1)
		o.Addr, o.Dialer = "127.0.0.1:1", s.dial
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		rdb := redis.NewClient(o)
		q := New(rdb, 50*time.Millisecond, func(send Send, calls []*Call) error {
			reply, err := send([]any{"take", len(calls)}, 0)
			for _, c := range calls {
				c.Reply = reply
			}
			return err
		})
		if err := q.Connect(t.Context(), func(string, Send) error { return nil }); err != nil {
			t.Error(err)
		}
		if idle { // every connection is open
			if err := q.firstPong(rdb, o.PoolSize); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		limiter := core.Must(core.New(core.FailOpen(queueStore{q, alone}), core.FixedWindow(1000, time.Hour)))
		var mu sync.Mutex
		var forgotten time.Time
		var callers sync.WaitGroup
		start := time.Now()
		call := func(who int) {
			begun := time.Now()
			d, err := limiter.Allow(t.Context(), fmt.Sprint(who), "reply")
			mu.Lock()
			defer mu.Unlock()
			switch since := time.Since(forgotten); {
			case err != nil:
				t.Error(err)
			case forgotten.IsZero():
			case d.Source != core.SourceStore:
				last = since
			case first == 0 && begun.After(forgotten):
				first = since
			}
		}
		for i := range 60 {
			callers.Go(func() {
				if idle {
					time.Sleep(2 * time.Second)
				}
				for time.Since(start) < 5*time.Second {
					call(i)
					time.Sleep(rand.N(4 * time.Millisecond))
				}
			})
		}
		time.Sleep(2*time.Second - time.Millisecond)
		s.forget(deaf)
		mu.Lock()
		forgotten = time.Now()
		mu.Unlock()
		callers.Wait()
		_ = rdb.Close()
		s.turn <- struct{}{} // a check of the server may dial still
		for _, c := range s.ends {
			_ = c.Close()
		}
		<-s.turn
		time.Sleep(time.Minute)
	})
	return first, last
}
