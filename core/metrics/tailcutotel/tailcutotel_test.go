package tailcutotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
	"github.com/tailcut/tailcut/core/metrics/tailcutotel"
)

// failing is a store that is down.
type failing struct{ core.Store }

var errDown = errors.New("the store is down")

func (failing) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return core.Decision{}, nil, errDown
}

// run makes decisions with every kind of outcome on stores that m watches.
func run(ctx context.Context, m *metrics.Metrics) {
	memory := m.Watch(memorystore.New(nil))
	fleet := m.Watch(core.Fallback(failing{memorystore.New(nil)}, memorystore.New(nil)))
	bare := m.Watch(failing{memorystore.New(nil)})
	window := core.FixedWindow(2, time.Hour)
	likes := core.Must(core.New(memory, core.Funnel(3, core.Every(time.Hour))))
	replies := core.Must(core.Must(core.New(memory, window)).With(core.BanPolicy{Refusals: 2, Within: time.Hour, Bans: []time.Duration{time.Hour}}))
	posts := core.Must(core.New(memory, core.FixedWindow(9, time.Hour), core.FixedWindow(2, time.Hour).Named("two").Shadow()))
	fallen, broken := core.Must(core.New(fleet, window)), core.Must(core.New(bare, window))
	for range 4 {
		_, _ = likes.Allow(ctx, "alice", "like")
		_, _ = replies.Allow(ctx, "alice", "reply")
		_, _ = posts.Allow(ctx, "alice", "post")
		_, _ = fallen.Allow(ctx, "alice", "fallen")
		_, _ = broken.Allow(ctx, "alice", "broken")
	}
	wait := core.Must(core.New(memory, core.Funnel(1, core.Every(20*time.Millisecond))))
	for range 2 {
		_, _ = wait.Wait(ctx, "alice", "wait")
	}
}

// read collects all instruments: each value by its name, unit and attributes.
func read(t *testing.T, reader sdkmetric.Reader) map[string]string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			note := func(set attribute.Set, value any) {
				values[fmt.Sprintf("%s %s [%s]", m.Name, m.Unit, set.Encoded(attribute.DefaultEncoder()))] = fmt.Sprint(value)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, p.Value)
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					note(p.Attributes, p.Value)
				}
			default:
				t.Errorf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	return values
}

func TestAReaderSeesTheSnapshot(t *testing.T) {
	m, reader := metrics.New(nil), sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	if err := tailcutotel.Register(m, provider); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), m)
	s, got := m.Snapshot(), read(t, reader)

	want := map[string]string{
		"tailcut.store.down 1 []":                                               "1",
		"tailcut.waiting {call} [action=wait]":                                  "0",
		"tailcut.memory.keys {key} []":                                          fmt.Sprint(s.MemoryKeys),
		"tailcut.memory.keys.max {key} []":                                      fmt.Sprint(2 << 20),
		"tailcut.near.total {decision} [action=post,limit=shadow:fixed:1h:two]": "1",
	}
	for _, d := range s.Decisions {
		want[fmt.Sprintf("tailcut.decisions.total {decision} [action=%s,limit=%s,outcome=%s,source=%s]", d.Action, d.Limit, d.Outcome, d.Source)] = fmt.Sprint(d.Count)
	}
	for name, h := range map[string]metrics.Histogram{"tailcut.store.seconds": s.Store, "tailcut.wait.seconds": s.Wait} {
		want[name+".count {call} []"] = fmt.Sprint(h.Count)
		want[name+".sum s []"] = fmt.Sprint(h.Sum.Seconds())
		want[name+".bucket {call} [le=+Inf]"] = fmt.Sprint(h.Count)
		for _, b := range h.Buckets {
			want[fmt.Sprintf("%s.bucket {call} [le=%v]", name, b.UpTo.Seconds())] = fmt.Sprint(b.Count)
		}
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %s", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d values, want %d: %v", len(got), len(want), got)
	}
	// What the run is known to be.
	for name, value := range map[string]string{
		"action=like,limit=funnel:3:1/1h,outcome=allowed,source=store":        "3",
		"action=like,limit=funnel:3:1/1h,outcome=limited,source=store":        "1",
		"action=reply,limit=fixed:1h,outcome=allowed,source=store":            "2",
		"action=reply,limit=fixed:1h,outcome=limited,source=store":            "1",
		"action=reply,limit=ban,outcome=banned,source=store":                  "1",
		"action=post,limit=shadow:fixed:1h:two,outcome=shadowed,source=store": "2",
		"action=fallen,limit=fixed:1h,outcome=allowed,source=fallback":        "2",
		"action=fallen,limit=fixed:1h,outcome=limited,source=fallback":        "2",
		"action=broken,limit=fixed:1h,outcome=error,source=none":              "4",
		"action=wait,limit=funnel:1:1/20ms,outcome=allowed,source=store":      "2",
	} {
		if name = "tailcut.decisions.total {decision} [" + name + "]"; got[name] != value {
			t.Errorf("%s is %q, want %s", name, got[name], value)
		}
	}
}

func TestRefusalsAreEventsOnTheSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	m := metrics.New(nil)
	for range 2 { // two providers, and still one event for each refusal
		if err := tailcutotel.Register(m, noop.NewMeterProvider()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, span := tracer.Start(t.Context(), "request")
	run(ctx, m)
	span.End()
	run(ctx, m) // a span that has ended records nothing
	run(t.Context(), m)

	seen := map[string]int{}
	for _, e := range spans.Ended()[0].Events() {
		labels, retry := "", false
		for _, a := range e.Attributes {
			if a.Key == "tailcut.retry_after" {
				retry = a.Value.AsFloat64() > 3000
				continue
			}
			labels += string(a.Key) + "=" + a.Value.String() + " "
		}
		seen[fmt.Sprint(e.Name, " ", labels, retry)]++
	}
	want := map[string]int{
		"tailcut.refused tailcut.action=like tailcut.limit=funnel:3:1/1h tailcut.outcome=limited tailcut.source=store true": 1,
		"tailcut.refused tailcut.action=reply tailcut.limit=fixed:1h tailcut.outcome=limited tailcut.source=store true":     1,
		"tailcut.refused tailcut.action=reply tailcut.limit=ban tailcut.outcome=banned tailcut.source=store true":           1,
		"tailcut.refused tailcut.action=fallen tailcut.limit=fixed:1h tailcut.outcome=limited tailcut.source=fallback true": 2,
		"tailcut.refused tailcut.action=broken tailcut.limit=fixed:1h tailcut.outcome=error tailcut.source=none false":      4,
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("the events are\n%v\nwant\n%v", seen, want)
	}
}

// A decision is attributes of the span in the context, whatever it is; of several, the last one.
func TestADecisionIsAttributesOfTheSpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	m := metrics.New(&metrics.Options{ShowUsers: true})
	if err := tailcutotel.Register(m, noop.NewMeterProvider()); err != nil {
		t.Fatal(err)
	}
	likes := core.Must(core.New(m.Watch(memorystore.New(nil)), core.Funnel(1, core.Every(time.Hour))))
	fallen := core.Must(core.New(m.Watch(core.Fallback(failing{memorystore.New(nil)}, memorystore.New(nil))), core.FixedWindow(2, time.Hour)))
	dry := core.Must(core.New(m.Watch(core.Shadow(memorystore.New(nil))), core.FixedWindow(1, time.Hour)))
	broken := core.Must(core.New(m.Watch(failing{memorystore.New(nil)}), core.FixedWindow(2, time.Hour)))
	for _, tt := range []struct {
		l    *core.Limiter
		n    int
		want string
	}{
		{likes, 1, "rate_limit.decision=allowed rate_limit.limit=funnel:1:1/1h rate_limit.source=store"},
		{likes, 1, "rate_limit.decision=limited rate_limit.limit=funnel:1:1/1h rate_limit.source=store"},
		{fallen, 1, "rate_limit.decision=allowed rate_limit.limit=fixed:1h rate_limit.source=fallback"},
		{dry, 2, "rate_limit.decision=shadowed rate_limit.limit=fixed:1h rate_limit.source=store"},
		{broken, 1, "rate_limit.decision=error rate_limit.limit=fixed:1h rate_limit.source=none"},
		{likes, 0, ""},
	} {
		ctx, span := tracer.Start(t.Context(), "request")
		for range tt.n {
			_, _ = tt.l.Allow(ctx, "alice", "act")
		}
		_, _ = tt.l.Peek(ctx, "alice", "act")
		span.End()
		got := ""
		for _, a := range spans.Ended()[len(spans.Ended())-1].Attributes() {
			got += " " + string(a.Key) + "=" + a.Value.String()
		}
		if strings.TrimSpace(got) != tt.want {
			t.Errorf("the span has%s, want %s", got, tt.want)
		}
	}
}

// Without a span, or with one that does not record, a decision costs nothing more.
func TestNoSpanNoCost(t *testing.T) {
	m := metrics.New(nil)
	if err := tailcutotel.Register(m, noop.NewMeterProvider()); err != nil {
		t.Fatal(err)
	}
	l := core.Must(core.New(m.Watch(memorystore.New(nil)), core.FixedWindow(50, time.Hour)))
	ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test").Start(t.Context(), "request")
	defer span.End()
	for name, ctx := range map[string]context.Context{"no span": t.Context(), "a span that does not record": ctx} {
		if n := testing.AllocsPerRun(100, func() { _, _ = l.Allow(ctx, "alice", "act") }); n > 0 {
			t.Errorf("with %s a decision allocates %v times", name, n)
		}
	}
}

// BenchmarkWithoutASpan tells what Register adds to an in-process decision.
func BenchmarkWithoutASpan(b *testing.B) {
	for _, name := range []string{"watched", "registered"} {
		m := metrics.New(nil)
		if name == "registered" {
			if err := tailcutotel.Register(m, noop.NewMeterProvider()); err != nil {
				b.Fatal(err)
			}
		}
		l := core.Must(core.New(m.Watch(memorystore.New(nil)), core.Funnel(1_000_000_000, core.Per(1_000_000_000, time.Second))))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				_, _ = l.Allow(b.Context(), "alice", "act")
			}
		})
	}
}

// With ExportRefused the refused users are values.
func TestAReaderSeesWhoWasRefused(t *testing.T) {
	m, reader := metrics.New(&metrics.Options{ShowUsers: true, ExportRefused: 5}), sdkmetric.NewManualReader()
	if err := tailcutotel.Register(m, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		t.Fatal(err)
	}
	run(t.Context(), m)
	if got := read(t, reader)["tailcut.refused.users {decision} [hashed=false,user=alice]"]; got != "5" {
		t.Errorf("alice has %q refusals", got)
	}
}

func TestRegisterNeedsBoth(t *testing.T) {
	if tailcutotel.Register(nil, noop.NewMeterProvider()) == nil || tailcutotel.Register(metrics.New(nil), nil) == nil {
		t.Error("nil is no error")
	}
}

// More series than the SDK keeps by default are exported with the limit that the package's
// documentation names.
func TestManySeries(t *testing.T) {
	m, reader := metrics.New(nil), sdkmetric.NewManualReader()
	if err := tailcutotel.Register(m, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(20_000))); err != nil {
		t.Fatal(err)
	}
	for _, store := range []core.Store{memorystore.New(nil), core.Fallback(failing{memorystore.New(nil)}, memorystore.New(nil))} {
		l := core.Must(core.New(m.Watch(store), core.FixedWindow(1, time.Hour)))
		for i := range 2 * 600 {
			_, _ = l.Allow(t.Context(), "alice", fmt.Sprintf("action %d", i%600))
		}
	}
	got := 0
	for name := range read(t, reader) {
		if strings.HasPrefix(name, "tailcut.decisions.total ") {
			got++
		}
	}
	if want := len(m.Snapshot().Decisions); got != want || want <= 2000 {
		t.Errorf("%d series are exported of %d", got, want)
	}
}
