package redisstore_test

import (
	"bytes"
	"fmt"
	"log/slog"
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

// Redis dies under load and comes back: no call fails or takes longer than the
// time-out, the limits hold in the process meanwhile, and then Redis is used again.
func TestRedisDiesAndComesBack(t *testing.T) {
	noLeak(t)
	log := logged(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	const timeout, quota, callers = 50 * time.Millisecond, 20, 16
	lim := core.Must(core.New(core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil)), core.SlidingWindow(quota, time.Hour)))
	within(t, "the server is used", func() bool {
		d, err := lim.Peek(t.Context(), user, action)
		return err == nil && d.Source == core.SourceStore
	})
	var phase, stop atomic.Int64
	var passed [3]atomic.Int64 // by phase, in process
	var sources [3][3]atomic.Int64
	var slowest atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := 0; stop.Load() == 0; i++ {
				p := phase.Load()
				start := time.Now()
				d, err := lim.Allow(t.Context(), fmt.Sprint("user in phase ", p), action)
				took := time.Since(start)
				for s := slowest.Load(); int64(took) > s && !slowest.CompareAndSwap(s, int64(took)); s = slowest.Load() {
				}
				if err != nil {
					t.Error(err)
					return
				}
				sources[p][d.Source].Add(1)
				if d.Allowed && d.Source == core.SourceFallback {
					passed[p].Add(1)
				}
				if p != 1 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	within(t, "the server serves", func() bool { return sources[0][core.SourceStore].Load() > 50*callers })
	server.Kill()
	phase.Store(1)
	within(t, "the fallback serves", func() bool { return sources[1][core.SourceFallback].Load() > 5*callers })
	server.Run()
	phase.Store(2)
	within(t, "the server serves again", func() bool { return sources[2][core.SourceStore].Load() > 50*callers })
	stop.Store(1)
	wg.Wait()
	if d := time.Duration(slowest.Load()); d > timeout+slack {
		t.Errorf("a call took %s", d)
	}
	if n := passed[1].Load(); n != quota {
		t.Errorf("%d passed while Redis was down, not %d", n, quota)
	}
	if n := strings.Count(log.String(), "its fallback decides"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
	for _, s := range []string{"user in phase", action, "tailcut:"} {
		if strings.Contains(log.String(), s) {
			t.Errorf("the log names the user:\n%s", log)
		}
	}
}

// A program that starts without Redis starts, serves by its fallback and says so once.
func TestStartsWithoutRedis(t *testing.T) {
	noLeak(t)
	log := logged(t)
	server := redistest.Start(t)
	server.Kill()
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	lim := core.Must(core.New(core.Fallback(redisstore.New(rdb, nil), memorystore.New(nil)), core.SlidingWindow(5, time.Hour)))
	var passed atomic.Int64
	together(8, func(int) {
		d, err := lim.Allow(t.Context(), user, action)
		if err != nil || d.Source != core.SourceFallback {
			t.Errorf("%+v, %v", d, err)
		}
		if d.Allowed {
			passed.Add(1)
		}
	})
	if n := passed.Load(); n != 5 {
		t.Errorf("%d passed, not 5", n)
	}
	if n := strings.Count(log.String(), "its fallback decides"); n != 1 || strings.Contains(log.String(), user) {
		t.Errorf("said %d times:\n%s", n, log)
	}
	server.Run()
	within(t, "the server is used", func() bool {
		d, err := lim.Peek(t.Context(), user, action)
		return err == nil && d.Source == core.SourceStore && d.Remaining == 5
	})
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// A key that holds nonsense is one user's trouble: others are decided in Redis.
func TestNonsenseInAKeyIsNoOutage(t *testing.T) {
	log := logged(t)
	server := redistest.Start(t)
	store := reliable(t, server.Addr)
	lim := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), core.FixedWindow(100, time.Hour)))
	server.Do("SET", store.Key("poisoned", action, lim.Limits()[0]), "nonsense")
	for i := range 10 {
		if d, err := lim.Allow(t.Context(), "poisoned", action); err != nil || d.Source != core.SourceFallback {
			t.Errorf("the poisoned key: %+v, %v", d, err)
		}
		if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Source != core.SourceStore || d.Remaining != 99-i {
			t.Errorf("another: %+v, %v", d, err)
		}
	}
	for range 10 { // in a row
		_, _ = lim.Allow(t.Context(), "poisoned", action)
	}
	if d, err := lim.Allow(t.Context(), user, action); err != nil || d.Source != core.SourceStore {
		t.Errorf("another: %+v, %v", d, err)
	}
	if n := strings.Count(log.String(), "not a state"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}

// A bare store fails closed.
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
