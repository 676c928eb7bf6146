package tailcutotel_test

import (
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutotel"
	"github.com/tailcut/tailcut/core/plans"
)

func TestAReaderSeesThePlans(t *testing.T) {
	m, reader := metrics.New(nil), sdkmetric.NewManualReader()
	if err := tailcutotel.Register(m, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		t.Fatal(err)
	}
	p, err := plans.New(memorystore.New(nil), []byte(`{"default": "free", "plans": {"free": {"limits": {"*": ["SlidingWindow(5, 1m)"]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	m.WatchPlans(p)
	_ = p.Update([]byte("{"))
	got := read(t, reader)
	for name, want := range map[string]string{
		"tailcut.plans.generation {document} [version=" + p.Generation().Version + "]": "1",
		"tailcut.plans.rejected.total {document} []":                                   "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %s", name, got[name], want)
		}
	}
}
