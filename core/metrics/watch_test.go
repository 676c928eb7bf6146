package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

// Whatever a limit records of a refusal, to watch it changes no decision.
func TestWatchChangesNoDecision(t *testing.T) {
	for _, limit := range []core.Limit{
		core.SlidingWindow(3, time.Minute), core.SlidingWindow(3, time.Minute).CountRefused(), core.MovingWindow(3, time.Minute),
		core.FixedWindow(3, time.Minute), core.ElasticWindow(3, time.Minute), core.TokenBucket(3, core.Every(time.Minute)),
		core.TokenBucket(3, core.Every(time.Minute)).Initial(1), core.Funnel(3, core.Every(20*time.Second)),
		core.Funnel(3, core.Every(20*time.Second)).PerUser(),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, refusals, counted := metrics.New(nil), 0, 0
				m.OnDecision(func(_ context.Context, d metrics.Decision) {
					if !d.Passes {
						refusals++
					}
				})
				bare := core.Must(core.New(memorystore.New(nil), limit))
				watched := core.Must(core.New(m.Watch(memorystore.New(nil)), limit))
				for i := range 300 {
					cost := 1 + i%7/6
					want, _ := bare.AllowN(t.Context(), "u", "a", cost)
					if got, err := watched.AllowN(t.Context(), "u", "a", cost); err != nil || got != want {
						t.Fatalf("call %d: it is %+v (%v), want %+v", i, got, err, want)
					}
					if !want.Allowed {
						counted++
					}
					time.Sleep(time.Duration(i%5) * 7 * time.Second)
				}
				if refusals != counted || counted == 0 {
					t.Errorf("%d refusals are shown of %d", refusals, counted)
				}
			})
		})
	}
}

// OnDecision adds: the functions before stay, and are called first. They get the caller's context and a store's
// error, also for a limiter that was made before.
func TestOnDecisionAddsAFunction(t *testing.T) {
	type caller struct{}
	m, seen, store := metrics.New(nil), "", newFaulty()
	l := core.Must(core.New(m.Watch(store), core.Funnel(1, core.Every(time.Hour))))
	for _, name := range []string{"a", "b"} {
		m.OnDecision(func(ctx context.Context, d metrics.Decision) {
			seen += fmt.Sprint(name, ctx.Value(caller{}), d.Err, " ")
		})
	}
	ctx := context.WithValue(t.Context(), caller{}, "-alice-")
	for _, down := range []bool{false, true} {
		store.down.Store(down)
		if _, err := l.Allow(ctx, "u", "a"); (err != nil) != down {
			t.Error(err)
		}
	}
	if want := "a-alice-<nil> b-alice-<nil> a-alice-" + errDown.Error() + " b-alice-" + errDown.Error() + " "; seen != want {
		t.Errorf("the functions see %q, want %q", seen, want)
	}
}

func TestCountsAreExactUnderLoad(t *testing.T) {
	m := metrics.New(nil)
	l := core.Must(core.New(m.Watch(memorystore.New(nil)), core.Funnel(1000, core.Every(time.Hour))))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			times(500, func() { _, _ = l.Allow(t.Context(), "u", "a") })
			for i := range 50 {
				_, _ = l.Allow(t.Context(), "v", fmt.Sprint("b", i))
			}
		})
	}
	group.Wait()
	s := m.Snapshot()
	if got := fmt.Sprint(s.Decisions[:2]); got != "[{a funnel:1000:1/1h allowed store 1000} {a funnel:1000:1/1h limited store 3000}]" {
		t.Error(got)
	}
	if len(s.Decisions) != 52 || s.Decisions[51].Count != 8 {
		t.Error(s.Decisions)
	}
}

func TestOneMemorystoreIsCountedOnce(t *testing.T) {
	m, memory := metrics.New(nil), memorystore.New(&memorystore.Options{MaxKeys: 10})
	store := m.Watch(memory)
	m.Watch(core.Divide(memory, 2))
	l := core.Must(core.New(store, core.FixedWindow(9, time.Hour)))
	_, _ = l.Allow(t.Context(), "u", "a")
	if s := m.Snapshot(); s.MemoryKeys != 1 || s.MemoryKeysMax != 10 {
		t.Errorf("it has %d of %d keys", s.MemoryKeys, s.MemoryKeysMax)
	}
}

// uncomparable is a memorystore that is no key of a map.
type uncomparable struct {
	*memorystore.Store
	_ []int
}

func TestAStoreNeedNotBeComparable(t *testing.T) {
	m := metrics.New(nil)
	store := m.Watch(uncomparable{Store: memorystore.New(&memorystore.Options{MaxKeys: 10})})
	_, _ = core.Must(core.New(store, core.FixedWindow(9, time.Hour))).Allow(t.Context(), "u", "a")
	if s := m.Snapshot(); s.MemoryKeys != 1 || s.MemoryKeysMax != 10 {
		t.Errorf("it has %d of %d keys", s.MemoryKeys, s.MemoryKeysMax)
	}
}

func TestWatchKeepsWhatAStoreCanDo(t *testing.T) {
	memory := memorystore.New(&memorystore.Options{MaxKeys: 1})
	store := metrics.New(nil).Watch(memory)
	if _, err := core.New(store, core.FixedWindow(9, time.Hour), core.FixedWindow(9, time.Minute)); err == nil {
		t.Error("the store is not asked whether it can serve two limits")
	}
	l := core.Must(core.Must(core.New(store, core.FixedWindow(1, time.Hour))).With(core.Refundable{}))
	d, err := l.Allow(t.Context(), "u", "a")
	if err := errors.Join(err, l.Refund(t.Context(), d)); err != nil {
		t.Fatal(err)
	}
	if d, err = l.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
		t.Error("it was not given back")
	}
	if err := l.Reset(t.Context(), "u", "a"); err != nil {
		t.Fatal(err)
	}
	if d, err = l.Allow(t.Context(), "u", "a"); err != nil || !d.Allowed {
		t.Error("it was not reset")
	}
}

func TestMisusePanicsAtOnce(t *testing.T) {
	for name, bad := range map[string]func(){
		"no store":              func() { metrics.New(nil).Watch(nil) },
		"a nil memorystore":     func() { metrics.New(nil).Watch((*memorystore.Store)(nil)) },
		"a watched store":       func() { metrics.New(nil).Watch(metrics.New(nil).Watch(memorystore.New(nil))) },
		"one as the fallback":   func() { m := metrics.New(nil); m.Watch(core.Fallback(newFaulty(), m.Watch(memorystore.New(nil)))) },
		"a nil function":        func() { metrics.New(nil).OnDecision(nil) },
		"too many pairs":        func() { metrics.New(&metrics.Options{MaxPairs: 100_001}) },
		"less than none at all": func() { metrics.New(&metrics.Options{MaxPairs: -1}) },
		"a window of seconds":   func() { metrics.New(&metrics.Options{RefusedWindow: 30 * time.Second}) },
		"a window of a month":   func() { metrics.New(&metrics.Options{RefusedWindow: 31 * 24 * time.Hour}) },
		"a short key":           func() { metrics.New(&metrics.Options{HashKey: []byte("secret")}) },
		"too many users":        func() { metrics.New(&metrics.Options{ExportRefused: 101}) },
		"less than no users":    func() { metrics.New(&metrics.Options{ExportRefused: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "metrics: ") {
					t.Errorf("it says %q", s)
				}
			}()
			bad()
		})
	}
}
