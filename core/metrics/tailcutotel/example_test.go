package tailcutotel_test

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutotel"
)

// What a reader collects of five replies that pass. A program has a periodic reader with an
// exporter, and gives Register its otel.GetMeterProvider().
func ExampleRegister() {
	m := metrics.New(nil)
	reader := sdkmetric.NewManualReader()
	if err := tailcutotel.Register(m, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		fmt.Println(err)
		return
	}
	replies := core.Must(core.New(m.Watch(memorystore.New(nil)), core.SlidingWindow(5, time.Minute)))
	for range 5 {
		_, _ = replies.Allow(context.Background(), "alice", "reply")
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, instrument := range all.ScopeMetrics[0].Metrics {
		if sum, ok := instrument.Data.(metricdata.Sum[int64]); ok && instrument.Name == "tailcut.decisions.total" {
			for _, p := range sum.DataPoints {
				fmt.Println(instrument.Name, p.Attributes.Encoded(attribute.DefaultEncoder()), p.Value)
			}
		}
	}
	// Output: tailcut.decisions.total action=reply,limit=sliding:1m,outcome=allowed,source=store 5
}
