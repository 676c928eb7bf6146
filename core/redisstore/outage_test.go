package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// logged is the default log from here to the end of the test.
func logged(t testing.TB) *safeBuffer {
	b, before := new(safeBuffer), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(b, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return b
}

// A stall of little more than the timeout is one failure, however many calls it makes
// fail, and Redis decides as soon as it is over.
func TestAStallIsOneFailure(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		t.Run(fmt.Sprintf("ContextTimeoutEnabled %t", heeds), func(t *testing.T) {
			const timeout = 500 * time.Millisecond
			log := logged(t)
			server := redistest.Start(t)
			store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: heeds}), &redisstore.Options{Timeout: timeout})
			lim := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), core.FixedWindow(1e9, time.Hour)))
			var byRedis, otherwise atomic.Int64
			var callers sync.WaitGroup
			over := make(chan struct{})
			for range 20 {
				callers.Go(func() {
					for {
						select {
						case <-over:
							return
						case <-time.After(time.Millisecond):
						}
						d, err := lim.Allow(t.Context(), user, action)
						switch {
						case err != nil || !d.Allowed:
							t.Errorf("%+v, %v", d, err)
						case d.Source == core.SourceStore:
							byRedis.Add(1)
						default:
							otherwise.Add(1)
						}
					}
				})
			}
			more := func() func() bool {
				n := byRedis.Load() + 100
				return func() bool { return byRedis.Load() >= n }
			}
			within(t, "Redis decides", more())
			server.Pause()
			time.Sleep(timeout * 7 / 5)
			server.Resume()
			within(t, "Redis decides again", more())
			close(over)
			callers.Wait()
			if otherwise.Load() < 3 {
				t.Errorf("%d calls failed", otherwise.Load())
			}
			if strings.Contains(log.String(), "its fallback decides") {
				t.Errorf("one stall has opened the breaker:\n%s", log)
			}
		})
	}
}

// A bare Store fails closed.
func TestBareStoreFails(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	lim := core.Must(core.New(redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), nil), kinds[0]))
	d, err := lim.Allow(t.Context(), user, action)
	discreet(t, err)
	if d != (core.Decision{}) {
		t.Errorf("%+v", d)
	}
	discreet(t, lim.Reset(t.Context(), user, action))
}

// A client that does not heed deadlines holds the connections of lost replies for long. Others
// are used soon after the network has recovered.
func TestLostRepliesAreAShortOutage(t *testing.T) {
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, ReadTimeout: patient})
	lim := core.Must(core.New(redisstore.New(rdb, nil), core.FixedWindow(1e9, time.Hour)))
	decides := func() bool {
		_, err := lim.Allow(t.Context(), user, action)
		return err == nil
	}
	within(t, "Redis decides", decides)
	proxy.Spoil(func([]string, []byte) ([]byte, bool) { return nil, false })
	for range 2 {
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				if decides() {
					t.Error("a reply was not lost")
				}
			})
		}
		callers.Wait()
	}
	proxy.Spoil(nil)
	recovered := time.Now()
	within(t, "Redis decides again", decides)
	if d := time.Since(recovered); d > soon {
		t.Errorf("that took %s", d)
	}
}

// The client's failures to connect add up over its life, and after PoolSize of them it tries only
// once a second. The store's own probes keep them few: one in most outages. There may be more in an outage: senders
// that open connections when the server ends fail together, and a busy machine has more of them. So the median
// counts.
func TestFailuresToConnectAreFew(t *testing.T) {
	server := redistest.Start(t)
	const outages, poolSize, dialTimeout, retries = 5, 4, time.Hour, 5
	var attempts atomic.Int64 // of the client
	rdb := connect(t, &redis.Options{
		Addr: server.Addr, PoolSize: poolSize, DialTimeout: dialTimeout, DialerRetries: retries,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if end, ends := ctx.Deadline(); err != nil && ends && time.Until(end) > dialTimeout/2 {
				attempts.Add(1)
			}
			return conn, err
		},
	})
	store := core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil))
	l := startLoad(t, 60, &target{who: user, limit: plenty, lim: core.Must(core.New(store, plenty))})
	var took []time.Duration
	var failures []int64 // in each outage
	late := 0
	for range outages {
		within(t, "Redis decides", func() bool { return l.well(100) })
		before := attempts.Load()
		server.Kill()
		time.Sleep(600*time.Millisecond + rand.N(400*time.Millisecond))
		server.Run()
		back := time.Now()
		l.restart()
		within(t, "Redis decides again", func() bool { return l.well(1) })
		if took = append(took, time.Since(back)); time.Since(back) > 500*time.Millisecond {
			late++
		}
		failures = append(failures, (attempts.Load()-before)/retries)
	}
	l.halt()
	slices.Sort(took)
	slices.Sort(failures)
	t.Logf("Redis decides again after %s, at most %s, %d of %d times after half a second; the client's failures in each outage: %d", took[len(took)/2], took[len(took)-1], late, outages, failures)
	if n := failures[len(failures)/2]; n > 2 {
		t.Errorf("in most outages the client failed to connect %d times", n)
	}
}

func TestStoppedServer(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	const timeout = 50 * time.Millisecond
	store := redisstore.New(rdb, nil)
	l := core.MovingWindow(1000, time.Hour)
	lim := core.Must(core.New(store, l))
	within(t, "the client is connected", func() bool {
		_, err := lim.Peek(t.Context(), user, action)
		return err == nil
	})
	server.Pause()
	resumed := false
	defer func() {
		if !resumed {
			server.Resume()
		}
	}()
	const callers = 60
	together(callers, func(int) {
		start := time.Now()
		d, err := lim.Allow(t.Context(), user, action)
		if took := time.Since(start); took > timeout+slack {
			t.Errorf("it took %s", took)
		}
		if !errors.Is(err, redisstore.ErrTimeout) || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
	server.Resume()
	resumed = true
	within(t, "it works again", func() bool {
		_, err := lim.Peek(t.Context(), user, action)
		return err == nil
	})
	// What was sent has been taken by now, and nothing of it twice.
	idle(t, store)
	if n := charged(t, reliable(t, server.Addr), user, l); n > callers {
		t.Errorf("%d are charged of %d", n, callers)
	}
}
