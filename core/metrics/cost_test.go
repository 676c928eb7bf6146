package metrics_test

import (
	"math"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

// BenchmarkPlain tells what Watch costs a decision in process: the least of many short runs,
// taken in turns, of the same work with it and without.
func BenchmarkPlain(b *testing.B) {
	funnel := core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))
	for name, limit := range map[string]core.Limit{
		"Funnel": funnel, "FunnelPerUser": funnel.PerUser(), "FixedWindow": core.FixedWindow(1_000_000_000, time.Hour),
	} {
		b.Run(name, func(b *testing.B) { compare(b, limit) })
	}
}

func compare(b *testing.B, limit core.Limit) {
	plain := core.Must(core.New(memorystore.New(nil), limit))
	watched := core.Must(core.New(metrics.New(nil).Watch(memorystore.New(nil)), limit))
	ctx := b.Context()
	run := func(l *core.Limiter) float64 {
		const calls = 5000
		begun := time.Now()
		for range calls {
			if d, err := l.Allow(ctx, "alice", "reply"); err != nil || !d.Allowed {
				b.Fatal(d, err)
			}
		}
		return float64(time.Since(begun)) / calls
	}
	without, with := math.Inf(1), math.Inf(1)
	for range b.N {
		without, with = min(without, run(plain)), min(with, run(watched))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(without, "ns-without")
	b.ReportMetric(with, "ns-with")
	b.ReportMetric(with-without, "ns-more")
}

func TestWatchDoesNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit core.Limit
	}{
		{"an allowed action of a funnel", core.Funnel(1_000_000_000, core.Every(time.Second))},
		{"an action of a funnel of all actions", core.Funnel(1_000_000_000, core.Every(time.Second)).PerUser()},
		{"a refused action of a funnel", core.Funnel(1, core.Every(time.Hour))},
		{"an action of a window", core.FixedWindow(1_000_000_000, time.Hour)},
		{"a refused action of a window", core.FixedWindow(1, time.Hour)},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := core.Must(core.New(metrics.New(nil).Watch(memorystore.New(nil)), c.limit))
			ctx := t.Context()
			if n := testing.AllocsPerRun(100, func() { _, _ = l.Allow(ctx, "u", "a") }); n > 0 {
				t.Errorf("it allocates %v times", n)
			}
		})
	}
}

// A store that refuses all keeps the store's own memory out of the figure.
func TestANewActionIsCheap(t *testing.T) {
	const actions = 10_000
	limit := core.FixedWindow(5, time.Minute)
	store := metrics.New(&metrics.Options{MaxPairs: actions}).Watch(foreign{})
	l := core.Must(core.New(store, limit))
	ctx := t.Context()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range actions {
		action := strconv.Itoa(i)
		_, _ = l.Allow(ctx, "alice", action)
		store.(core.WaitWatcher).Waiting(ctx, core.Charge{User: "alice", Action: action, Cost: 1, Terms: &core.Terms{Limits: []core.Limit{limit}}})
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / actions; each > 2000 {
		t.Errorf("a new action allocates %d bytes", each)
	}
}
