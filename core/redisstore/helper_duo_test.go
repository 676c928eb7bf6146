package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// A duo is Redis, with a process that repeats refusals, and memorystore, which is
// asked every time, on one clock.
type duo struct {
	*testing.T
	server *miniredis.Miniredis
	rdb    *redis.Client
	store  *redisstore.Store
	memory core.Store
	sent   atomic.Int64 // commands

	mu    sync.Mutex
	relay hook // of each command, if set
}

// inBubble connects without the network, which is outside a bubble.
func inBubble(m *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:   closed, // a name would be looked up
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
}

func inDuo(t *testing.T, test func(w *duo)) {
	bubble(t, func(t *testing.T) {
		m := newMini(t)
		m.ClockTTL(true)
		defer m.Close()
		w := &duo{T: t, server: m, rdb: inBubble(m), memory: memorystore.New(nil)}
		defer w.rdb.Close()
		w.rdb.AddHook(hook(w.process))
		w.store = redisstore.New(w.rdb, &redisstore.Options{Timeout: patient, NoFunctions: true})
		if _, err := core.Must(core.New(w.store, kinds[0])).Peek(t.Context(), "nobody", action); err != nil { // the script is known from here on
			t.Fatal(err)
		}
		w.sent.Store(0)
		test(w)
	})
}

func (w *duo) process(cmd redis.Cmder, next func() error) error {
	w.sent.Add(1)
	w.mu.Lock()
	relay := w.relay
	w.mu.Unlock()
	if relay == nil {
		return next()
	}
	return relay(cmd, next)
}

func (w *duo) around(relay hook) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.relay = relay
}

// limiter is one on a store.
func (w *duo) limiter(s core.Store, limits []core.Limit, options ...core.Option) *core.Limiter {
	w.Helper()
	return core.Must(core.Must(core.New(s, limits...)).With(options...))
}

// both asks both stores the same, and holds the one to the other.
func (w *duo) both(limits []core.Limit, options []core.Option) func(ask func(l *core.Limiter) (core.Decision, error)) core.Decision {
	a, b := w.limiter(w.store, limits, options...), w.limiter(w.memory, limits, options...)
	return func(ask func(l *core.Limiter) (core.Decision, error)) core.Decision {
		w.Helper()
		got, err1 := ask(a)
		want, err2 := ask(b)
		if g, m := fmt.Sprintf("%+v, %v", anyones(got), err1), fmt.Sprintf("%+v, %v", anyones(want), err2); g != m {
			w.Fatalf("%v, %+v, %s:\nredis  %s\nmemory %s", limits, options, got.Source, g, m)
		}
		return got
	}
}

// anyones is the decision less who made it and what can be given back.
func anyones(d core.Decision) core.Decision {
	d = bare(d)
	d.Source = core.SourceNone
	return d
}

func (w *duo) allow(l *core.Limiter) (core.Decision, error) {
	return l.Allow(w.Context(), user, action)
}

// exhaust asks until refused.
func (w *duo) exhaust(l *core.Limiter) core.Decision {
	w.Helper()
	for {
		if d := allow(w, l); !d.Allowed {
			return d
		}
	}
}

var hammered = core.BanPolicy{Refusals: 3, Within: time.Minute, Bans: []time.Duration{4 * time.Second, 20 * time.Second}}

// spent is a limiter of two a minute, of which nothing is left.
func spent(w *duo, s core.Store) *core.Limiter {
	w.Helper()
	l := w.limiter(s, []core.Limit{core.FixedWindow(2, time.Minute)})
	w.exhaust(l)
	return l
}
