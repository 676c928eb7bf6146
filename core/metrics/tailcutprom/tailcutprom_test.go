package tailcutprom_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutprom"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// A tally is what the callers of a known run were told: a count by action, limit, outcome
// and source.
type tally struct {
	t      *testing.T
	mu     sync.Mutex
	counts map[string]int
}

// call makes calls of one action and notes what each was told. limits are those that an
// outcome is to be counted under; "" is any other outcome's.
func (y *tally) call(n int, l *core.Limiter, user, action string, limits map[string]string) (last core.Decision) {
	y.t.Helper()
	for range n {
		d, err := l.Allow(y.t.Context(), user, action)
		if err != nil {
			y.t.Fatal(err)
		}
		y.note(action, limits, d)
		last = d
	}
	return last
}

func (y *tally) note(action string, limits map[string]string, d core.Decision) {
	outcome := "allowed"
	if !d.Allowed || d.Reason == core.ReasonShadowed {
		outcome = string(d.Reason)
	}
	limit, ok := limits[outcome]
	if !ok {
		limit = limits[""]
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.counts[fmt.Sprint(action, " ", limit, " ", outcome, " ", d.Source)]++
}

func (y *tally) wait(l *core.Limiter, action, limit string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(y.t.Context(), patience)
	defer cancel()
	d, _ := l.Wait(ctx, "u", action)
	y.note(action, map[string]string{"": limit}, d)
}

func (y *tally) strings() map[string]string {
	all := map[string]string{}
	for labels, n := range y.counts {
		all[labels] = fmt.Sprint(n)
	}
	return all
}

func TestPrometheusSeesEveryDecision(t *testing.T) {
	program(t, "prometheus")
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })

	m := metrics.New(nil)
	registry := client.NewPedanticRegistry()
	registry.MustRegister(tailcutprom.Collector(m))
	prom := startPrometheus(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))

	memory := m.Watch(memorystore.New(&memorystore.Options{MaxKeys: 1000}))
	onRedis := redisstore.New(rdb, &redisstore.Options{Timeout: 2 * time.Second})
	fleet := m.Watch(core.Fallback(onRedis, memorystore.New(&memorystore.Options{MaxKeys: 500})))
	full := m.Watch(memorystore.New(&memorystore.Options{MaxKeys: 1}))
	dry := m.Watch(core.Shadow(memorystore.New(&memorystore.Options{MaxKeys: 499})))

	y := &tally{t: t, counts: map[string]int{}}
	ban := core.BanPolicy{Refusals: 2, Within: time.Hour, Bans: []time.Duration{time.Hour}}
	for where, store := range map[string]core.Store{"memory": memory, "redis": fleet} {
		likes := core.Must(core.New(store, core.Funnel(3, core.Every(time.Hour))))
		y.call(5, likes, "u", where+" like", map[string]string{"": "funnel:3:1/1h"})
		replies := core.Must(core.New(store, core.SlidingWindow(2, time.Hour)))
		replies = core.Must(replies.With(ban))
		y.call(6, replies, "u", where+" reply", map[string]string{"": "sliding:1h", "banned": "ban"})
		posts := core.Must(core.New(store, core.FixedWindow(6, 24*time.Hour), core.FixedWindow(5, 24*time.Hour).Named("five").Shadow()))
		y.call(8, posts, "u", where+" post", map[string]string{"": "fixed:24h", "shadowed": "shadow:fixed:24h:five"})
		everything := core.Must(core.New(store, core.MovingWindow(2, time.Hour).PerUser()))
		y.call(3, everything, "v", where+" any", map[string]string{"": "*:moving:1h"})
		for _, w := range []core.Limit{core.Funnel(1, core.Every(50*time.Millisecond)), core.FixedWindow(1, 50*time.Millisecond)} {
			var group sync.WaitGroup
			waits := core.Must(core.New(store, w))
			for range 5 {
				group.Go(func() { y.wait(waits, where+" wait", w.Identity(), time.Hour) })
			}
			group.Wait()
		}
		slow := core.Must(core.New(store, core.Funnel(1, core.Every(time.Hour))))
		y.wait(slow, where+" slow", "funnel:1:1/1h", time.Minute)
		y.wait(slow, where+" slow", "funnel:1:1/1h", time.Minute)
	}
	window := core.FixedWindow(1, time.Hour)
	y.call(2, core.Must(core.New(full, window)), "u", "full", map[string]string{"": "fixed:1h"})
	y.call(1, core.Must(core.New(full, window)), "v", "full", map[string]string{"": "fixed:1h"}) // by the quota that new users share
	y.call(1, core.Must(core.New(full, window)), "w", "full", map[string]string{"": "fixed:1h"})
	y.call(3, core.Must(core.New(dry, window)), "u", "dry", map[string]string{"": "fixed:1h"})

	// What the run is known to be, besides what its callers were told.
	for labels, want := range map[string]int{
		"memory like funnel:3:1/1h allowed store": 3, "memory like funnel:3:1/1h limited store": 2,
		"redis reply ban banned store": 1, "redis reply ban banned cache": 1, "memory reply ban banned store": 3,
		"memory post shadow:fixed:24h:five shadowed store": 1, "full fixed:1h full store": 1,
		"redis wait funnel:1:1/50ms allowed store": 5, "redis wait fixed:50ms allowed store": 5,
		"redis slow funnel:1:1/1h limited store": 1, "dry fixed:1h shadowed store": 2,
	} {
		if got := y.counts[labels]; got < want || strings.HasPrefix(labels, "memory") && got != want {
			t.Errorf("%s: the callers were told %d, want %d; all: %v", labels, got, want, y.counts)
		}
	}
	decisions := []string{"action", "limit", "outcome", "source"}
	prom.until(y.strings(), "tailcut_decisions_total", decisions...)
	prom.until(map[string]string{"": "0"}, "tailcut_store_down")
	prom.until(map[string]string{"memory wait": "0", "redis wait": "0", "memory slow": "0", "redis slow": "0"}, "tailcut_waiting", "action")
	prom.until(map[string]string{"": "24"}, "tailcut_wait_seconds_count")
	prom.until(map[string]string{"memory post shadow:fixed:24h:five": "2", "redis post shadow:fixed:24h:five": "2"}, "tailcut_near_total", "action", "limit")
	prom.until(map[string]string{"": "2000"}, "tailcut_memory_keys_max")
	if s := m.Snapshot(); s.MemoryKeys < 5 {
		t.Errorf("there are %d keys in memory", s.MemoryKeys)
	}

	// An outage.
	outage := core.Must(core.New(fleet, core.FixedWindow(1000, time.Hour)))
	limits := map[string]string{"": "fixed:1h"}
	y.call(5, outage, "u", "outage", limits)
	answered := m.Snapshot().Store.Count
	server.Kill()
	y.call(10, outage, "u", "outage", limits)
	if n := y.counts["outage fixed:1h allowed fallback"]; n < 10 {
		t.Errorf("the fallback decided %d of 10", n)
	}
	prom.until(map[string]string{"": "1"}, "tailcut_store_down")
	server.Run()
	for end := time.Now().Add(patience); y.call(1, outage, "u", "outage", limits).Source != core.SourceStore; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the store does not serve again")
		}
	}
	prom.until(map[string]string{"": "0"}, "tailcut_store_down")
	prom.until(y.strings(), "tailcut_decisions_total", decisions...)
	if n := m.Snapshot().Store.Count - answered; n != 1 {
		t.Errorf("the store answered %d times after the outage, and was timed %d times", 1, n)
	}
	prom.until(map[string]string{"": fmt.Sprint(m.Snapshot().Store.Count)}, "tailcut_store_seconds_count")
	prom.until(map[string]string{"": fmt.Sprint(m.Snapshot().Store.Count)}, `tailcut_store_seconds_bucket{le="+Inf"}`)
}

// slow is a store that takes a while to answer. It is not a memorystore, so it is timed.
type slow struct{ core.Store }

func (s slow) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	time.Sleep(30 * time.Millisecond)
	return s.Store.Take(ctx, c)
}

// A Prometheus that scrapes native histograms tells a quantile to within a fifth. The classic buckets tell
// that it is from 25 to 50 ms.
func TestPrometheusReadsNativeHistograms(t *testing.T) {
	m := metrics.New(nil)
	registry := client.NewPedanticRegistry()
	registry.MustRegister(tailcutprom.Collector(m))
	prom := startPrometheus(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}), "--enable-feature=native-histograms")
	l := core.Must(core.New(m.Watch(slow{memorystore.New(nil)}), core.FixedWindow(1000, time.Hour)))
	for range 20 {
		if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatal(err)
		}
	}
	prom.until(map[string]string{"": "20"}, "histogram_count(tailcut_store_seconds)")
	prom.until(map[string]string{"": "0"}, "histogram_count(tailcut_wait_seconds)")
	times := m.Snapshot().Store
	mean := times.Sum.Seconds() / float64(times.Count)
	got, err := prom.query("histogram_quantile(0.5, tailcut_store_seconds)")
	median, err2 := strconv.ParseFloat(got[""], 64)
	if err != nil || err2 != nil || median < 0.025 || median > mean*1.25 {
		t.Errorf("the median is %v (%v, %v), and the mean %g", got, err, err2, mean)
	}
}

// Processes with one key add up to the users who were refused most.
func TestPrometheusAddsUpWhoWasRefused(t *testing.T) {
	o := &metrics.Options{ExportRefused: 2, HashKey: []byte("0123456789abcdef")}
	registry := client.NewPedanticRegistry()
	for process, refusals := range []map[string]int{{"alice": 3, "bob": 2, "carol": 1}, {"alice": 4, "carol": 9}} {
		m := metrics.New(o)
		client.WrapRegistererWith(client.Labels{"process": fmt.Sprint(process)}, registry).MustRegister(tailcutprom.Collector(m))
		l := core.Must(core.New(m.Watch(memorystore.New(nil)), core.FixedWindow(1, time.Hour)))
		for user, n := range refusals {
			for range n + 1 {
				_, _ = l.Allow(t.Context(), user, "a")
			}
		}
	}
	prom := startPrometheus(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	hash := func(user string) string {
		mac := hmac.New(sha256.New, o.HashKey)
		mac.Write([]byte(user))
		return hex.EncodeToString(mac.Sum(nil))[:12]
	}
	prom.until(map[string]string{hash("alice"): "7", hash("bob"): "2", hash("carol"): "9"}, "sum by (user) (tailcut_refused_users)", "user")
}

// promtool knows the conventions for names, units and help.
func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	promtool := program(t, "promtool")
	m := metrics.New(nil)
	l := core.Must(core.New(m.Watch(memorystore.New(nil)), core.FixedWindow(1, time.Hour), core.FixedWindow(1, time.Hour).Named("x").Shadow()))
	for _, action := range []string{"a", "b\n\"\\", "c\xff"} {
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = l.Wait(ctx, "u", action)
			cancel()
		}
	}
	registry := client.NewPedanticRegistry()
	registry.MustRegister(tailcutprom.Collector(m))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(w.Body.String())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s\nof\n%s", err, out, w.Body)
	}
	for _, name := range []string{
		"tailcut_decisions_total", "tailcut_near_total", "tailcut_store_seconds", "tailcut_store_down",
		"tailcut_waiting", "tailcut_wait_seconds", "tailcut_memory_keys", "tailcut_memory_keys_max",
	} {
		if !strings.Contains(w.Body.String(), "# TYPE "+name+" ") {
			t.Errorf("there is no %s in\n%s", name, w.Body)
		}
	}
	if strings.Contains(w.Body.String(), "user") {
		t.Error("something is said of users")
	}
}
