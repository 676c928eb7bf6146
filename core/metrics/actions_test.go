package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

func TestActionsAreBounded(t *testing.T) {
	log := logged(t)
	m := metrics.New(nil)
	store := m.Watch(memorystore.New(nil))
	short := core.Must(core.New(store, core.Funnel(9, core.Every(time.Hour))))
	long := core.Must(core.New(store, core.FixedWindow(9, time.Hour)))
	const actions = 10_000
	for i := range actions {
		action := fmt.Sprintf("action %d", i)
		_, _ = short.Allow(t.Context(), "alice", action)
		_, _ = long.Allow(t.Context(), "alice", action)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for i := range 2 * 1000 {
		_, _ = long.Wait(ctx, "alice", fmt.Sprintf("wait %d", i))
	}
	s := m.Snapshot()
	counted, other := uint64(0), uint64(0)
	for _, d := range s.Decisions {
		counted += d.Count
		if d.Action == "other" {
			other++
		}
	}
	if counted != 2*actions+2000 || len(s.Decisions) != 1000+2 || other != 2 {
		t.Errorf("%d decisions are counted in %d series, %d of other", counted, len(s.Decisions), other)
	}
	if len(s.Waiting) > 1001 {
		t.Errorf("there are %d actions waited for", len(s.Waiting))
	}
	if n := strings.Count(log.String(), "too-many-pairs"); n != 1 {
		t.Errorf("the log says %d times that there are too many:\n%s", n, log.String())
	}
}

// logged returns what the test logs.
func logged(t *testing.T) *strings.Builder {
	log, was := new(strings.Builder), slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return log
}

func TestLimitsAreBoundedToo(t *testing.T) {
	log := logged(t)
	m := metrics.New(&metrics.Options{MaxPairs: 10})
	store := m.Watch(memorystore.New(nil))
	for i := range 500 {
		l := core.Must(core.New(store, core.FixedWindow(9, time.Hour).Named(fmt.Sprint("n", i))))
		_, _ = l.Allow(t.Context(), "u", "a")
	}
	s := m.Snapshot()
	if n := len(s.Decisions); n != 10+100+1 {
		t.Errorf("there are %d series", n)
	}
	if n := strings.Count(log.String(), "too-many-pairs"); n != 1 {
		t.Errorf("the log says %d times that there are too many:\n%s", n, log)
	}
}

func TestActionsThatWaitAreBoundedToo(t *testing.T) {
	log := logged(t)
	m := metrics.New(&metrics.Options{MaxPairs: 10})
	waits := m.Watch(memorystore.New(nil)).(core.WaitWatcher)
	terms := &core.Terms{Limits: []core.Limit{core.FixedWindow(9, time.Hour)}}
	for i := range 500 {
		waits.Waiting(t.Context(), core.Charge{User: "u", Action: fmt.Sprint("a", i), Cost: 1, Terms: terms})
	}
	if n := len(m.Snapshot().Waiting); n != 10+1 {
		t.Errorf("%d actions wait", n)
	}
	if n := strings.Count(log.String(), "too-many-pairs"); n != 1 {
		t.Errorf("the log says %d times that there are too many:\n%s", n, log)
	}
}

// The labels must tell nothing of users, and be such that Prometheus takes them.
func TestMetricsContainNoUser(t *testing.T) {
	m := metrics.New(nil)
	var seen []metrics.Decision
	m.OnDecision(func(_ context.Context, d metrics.Decision) { seen = append(seen, d) })
	l := core.Must(core.Must(core.New(m.Watch(memorystore.New(nil)), core.Funnel(1, core.Every(time.Hour)))).
		With(core.BanPolicy{Refusals: 1, Within: time.Hour, Bans: []time.Duration{time.Hour}, PerUser: true}))
	times(4, func() { _, _ = l.Allow(t.Context(), "alice", "a\xff") })
	all, err := json.Marshal([]any{m.Snapshot(), seen})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(all), "alice") || !utf8.Valid(all) || len(seen) != 4 {
		t.Errorf("it tells %s", all)
	}
}
