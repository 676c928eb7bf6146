package tailcutprom_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutprom"
	"github.com/tailcut/tailcut/core/plans"
)

func TestPrometheusSeesThePlans(t *testing.T) {
	m := metrics.New(nil)
	registry := client.NewRegistry()
	registry.MustRegister(tailcutprom.Collector(m))
	scrape := func() string {
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	if got := scrape(); strings.Contains(got, "tailcut_plans") {
		t.Errorf("without plans: %s", got)
	}
	p, err := plans.New(memorystore.New(nil), []byte(`{"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(5, 1m)"]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	m.WatchPlans(p)
	_ = p.Update([]byte("{"))
	got := scrape()
	for _, want := range []string{
		`tailcut_plans_generation{version="` + p.Generation().Version + `"} 1`,
		`tailcut_plans_rejected_total 1`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
}
