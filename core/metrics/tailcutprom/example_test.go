package tailcutprom_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutprom"
)

// What Prometheus reads of seven replies, five of which pass.
func ExampleCollector() {
	m := metrics.New(nil)
	registry := client.NewRegistry()
	registry.MustRegister(tailcutprom.Collector(m))

	replies := core.Must(core.New(m.Watch(memorystore.New(nil)), core.SlidingWindow(5, time.Minute)))
	for range 7 {
		_, _ = replies.Allow(context.Background(), "alice", "reply")
	}

	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "tailcut_decisions_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// tailcut_decisions_total{action="reply",limit="sliding:1m",outcome="allowed",source="store"} 5
	// tailcut_decisions_total{action="reply",limit="sliding:1m",outcome="limited",source="store"} 2
}
