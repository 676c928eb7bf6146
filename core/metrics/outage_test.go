package metrics_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

// leaving is a store whose caller leaves before it answers.
type leaving struct{ core.Store }

type leave struct{}

func (s leaving) Take(ctx context.Context, _ core.Charge) (core.Decision, *core.Record, error) {
	ctx.Value(leave{}).(context.CancelFunc)()
	return core.Decision{}, nil, ctx.Err()
}

func TestAnOutageWithAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := metrics.New(nil), newFaulty()
		s.took = 3 * time.Millisecond
		l := core.Must(core.New(m.Watch(core.Fallback(s, memorystore.New(nil))), core.FixedWindow(4, time.Hour)))
		allow := func(n int) {
			t.Helper()
			times(n, func() {
				if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
					t.Fatal(err)
				}
			})
		}
		down := func(want bool, when string) {
			t.Helper()
			if m.Snapshot().Down != want {
				t.Errorf("%s: down is %v", when, !want)
			}
		}
		allow(2)
		down(false, "before the outage")
		s.down.Store(true)
		allow(2)
		down(false, "after two failures")
		allow(3)
		down(true, "after three failures")
		s.down.Store(false)
		time.Sleep(time.Second)
		allow(3)
		down(false, "after the first answer")
		expect(t, m, "a fixed:1h allowed fallback 4", "a fixed:1h allowed store 4", "a fixed:1h limited fallback 1", "a fixed:1h limited store 1")
		if got := m.Snapshot().Store; got.Count != 5 || got.Sum != 15*time.Millisecond || got.Buckets[4].Count != 0 || got.Buckets[5].Count != 5 {
			t.Errorf("the store's five answers of 3 ms are %+v", got)
		}
		if s := m.Snapshot(); s.MemoryKeys != 1 || s.MemoryKeysMax != 1<<20 {
			t.Errorf("the fallback has %d of %d keys", s.MemoryKeys, s.MemoryKeysMax)
		}
	})
}

// A store is not down for ever because nobody has asked it since it failed.
func TestAnIdleStoreIsUpAgain(t *testing.T) {
	for name, wrap := range map[string]func(core.Store) core.Store{
		"bare":     func(s core.Store) core.Store { return s },
		"Fallback": func(s core.Store) core.Store { return core.Fallback(s, memorystore.New(nil)) },
		"FailOpen": core.FailOpen,
		"Shadow":   core.Shadow,
		"behind a decorator": func(s core.Store) core.Store {
			return core.Observe(core.Fallback(core.FailOpen(s), memorystore.New(nil)), func(context.Context, core.Observation) {})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s := metrics.New(nil), newFaulty()
				s.down.Store(true)
				l := core.Must(core.New(m.Watch(wrap(s)), core.FixedWindow(4, time.Hour)))
				for range 10 { // sparse calls
					times(3, func() { _, _ = l.Allow(t.Context(), "u", "a") })
					time.Sleep(time.Minute - time.Nanosecond)
					if !m.Snapshot().Down {
						t.Fatal("it is not down just before a minute is over")
					}
				}
				time.Sleep(time.Nanosecond)
				if m.Snapshot().Down {
					t.Error("it is down a minute after anybody asked it")
				}
				s.down.Store(false)
				_, _ = l.Allow(t.Context(), "u", "a")
				if m.Snapshot().Down {
					t.Error("it is down after an answer")
				}
			})
		})
	}
}
