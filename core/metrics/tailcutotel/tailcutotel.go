// Package tailcutotel exports the counts of package metrics to OpenTelemetry.
//
//	m := metrics.New(nil)
//	store := m.Watch(memorystore.New(nil))
//	err := tailcutotel.Register(m, otel.GetMeterProvider())
//
// The instruments are observable, so they are read only when metrics are collected. Package metrics
// explains the attributes of these instruments.
//
//	tailcut.decisions.total{action,limit,outcome,source}  counter, {decision}
//	tailcut.near.total{action,limit}                      counter, {decision}: near misses of shadow limits
//	tailcut.store.seconds                                 s: how long the store took to answer
//	tailcut.store.down                                    gauge: 1 while a store is down
//	tailcut.waiting{action}                               up-down counter, {call}
//	tailcut.wait.seconds                                  s: how long calls of Wait took
//	tailcut.lease.units.total{what}                       counter, {unit}: of leased limits: taken, returned, lost
//	tailcut.plans.generation{version}                     gauge, {document}: number of the document of plans in force
//	tailcut.plans.rejected.total                          counter, {document}: not put in force because of an error
//	tailcut.memory.keys, tailcut.memory.keys.max          up-down counter, {key}: if there is a memorystore
//	tailcut.refused.users{user,hashed}                    gauge, {decision}: a user's refusals, with metrics.Options.ExportRefused
//
// OpenTelemetry has no observable histogram. So tailcut.store.seconds and tailcut.wait.seconds are
// three counters each, as in Prometheus: .bucket{le}, which is cumulative, .count and .sum.
//
// The SDK exports at most 2,000 sets of attributes per instrument. It adds up all further sets under
// the attribute otel.metric.overflow. A pair of an action and a limit needs a set for each outcome
// and source that occurs, so 1,000 pairs may need more than 2,000 sets. If so, give the provider
// sdkmetric.WithCardinalityLimit(20_000), which usually is enough for the default of
// [metrics.Options].MaxPairs.
//
// Decisions and errors also set attributes of the span in the context, if the span records:
//
//	rate_limit.decision  the outcome
//	rate_limit.limit     the limit that decided
//	rate_limit.source    the source of the decision
//
// OpenTelemetry has no convention for these attributes yet: https://github.com/open-telemetry/semantic-conventions/issues/3361
//
// If a span has several decisions, the attributes are those of the last one. Each refused action and
// each error also adds the event "tailcut.refused" to the span. The event has the attributes
// tailcut.action, tailcut.limit, tailcut.outcome, tailcut.source and, if the action can pass later,
// tailcut.retry_after in seconds. No attribute of a span holds a user. Without a span, a decision
// allocates nothing.
package tailcutotel

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/metrics"
)

const scope = "github.com/tailcut/tailcut/core/metrics/tailcutotel"

// Register makes the instruments on a meter of provider, and from now on describes decisions in
// spans. Call it once for each provider. It returns an error if m or provider is nil, or if the
// provider fails.
func Register(m *metrics.Metrics, provider metric.MeterProvider) error {
	if m == nil || provider == nil {
		return errors.New("tailcutotel: Register: the Metrics or the provider is nil; use metrics.New(nil) and otel.GetMeterProvider()")
	}
	meter := provider.Meter(scope)
	i, err := newInstruments(meter)
	if err != nil {
		return err
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		i.observe(o, m.Snapshot())
		return nil
	}, i.all()...)
	if err != nil {
		return err
	}
	if _, done := onSpans.LoadOrStore(m, true); !done {
		m.OnDecision(annotate)
	}
	return nil
}

// onSpans has the Metrics whose decisions are already described in spans. Spans do not depend on a
// meter provider, so a second provider must not describe the decisions again. A Metrics stays in
// onSpans until the program ends.
var onSpans sync.Map

type instruments struct {
	decisions, near, leases, rejected metric.Int64ObservableCounter
	down, inForce, refused            metric.Int64ObservableGauge
	waiting, keys, keysMax            metric.Int64ObservableUpDownCounter
	answers, waits                    histogram
}

// A histogram is three counters, because OpenTelemetry has no observable histogram.
type histogram struct {
	bucket, count metric.Int64ObservableCounter
	sum           metric.Float64ObservableCounter
}

func newInstruments(meter metric.Meter) (i instruments, err error) {
	var errs []error
	counter := func(name, unit, text string) metric.Int64ObservableCounter {
		c, err := meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	level := func(name, unit, text string) metric.Int64ObservableUpDownCounter {
		c, err := meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, text string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return g
	}
	times := func(name, text string) (h histogram) {
		h.bucket = counter(name+".bucket", "{call}", text+" Calls that took at most le seconds.")
		h.count = counter(name+".count", "{call}", text+" All calls.")
		sum, err := meter.Float64ObservableCounter(name+".sum", metric.WithUnit("s"), metric.WithDescription(text+" The sum."))
		errs = append(errs, err)
		h.sum = sum
		return h
	}
	i.decisions = counter("tailcut.decisions.total", "{decision}", "Decisions by action, limit, outcome and source.")
	i.near = counter("tailcut.near.total", "{decision}", "Actions that a shadow limit would have allowed with a fifth of its quota or less left.")
	i.answers = times("tailcut.store.seconds", "How long the store took to answer.")
	i.waits = times("tailcut.wait.seconds", "How long calls waited for their turn.")
	i.waiting = level("tailcut.waiting", "{call}", "Calls that wait for their turn, held requests included.")
	i.leases = counter("tailcut.lease.units.total", "{unit}", "Units of leased limits that were taken in advance, returned, and lost.")
	i.keys = level("tailcut.memory.keys", "{key}", "Keys in memory, those included that have expired and are not dropped yet.")
	i.keysMax = level("tailcut.memory.keys.max", "{key}", "The bound of the keys in memory.")
	i.rejected = counter("tailcut.plans.rejected.total", "{document}", "Documents of plans that were not put in force because of an error.")
	i.down = gauge("tailcut.store.down", "1", "1 if a store's last three calls failed, the last of them within a minute; else 0.")
	i.inForce = gauge("tailcut.plans.generation", "{document}", "The number of the document of plans in force in this process, by the version that replicas with the same document share.")
	i.refused = gauge("tailcut.refused.users", "{decision}", "Refusals of the most refused users in the window of Options.RefusedWindow.")
	return i, errors.Join(errs...)
}

func (i *instruments) all() []metric.Observable {
	return []metric.Observable{
		i.decisions, i.near, i.down, i.refused, i.waiting, i.keys, i.keysMax, i.leases, i.inForce, i.rejected,
		i.answers.bucket, i.answers.count, i.answers.sum, i.waits.bucket, i.waits.count, i.waits.sum,
	}
}

func (i *instruments) observe(o metric.Observer, s metrics.Snapshot) {
	for _, d := range s.Decisions {
		o.ObserveInt64(i.decisions, int64(d.Count), metric.WithAttributes(
			attribute.String("action", d.Action), attribute.String("limit", d.Limit),
			attribute.String("outcome", d.Outcome), attribute.String("source", d.Source)))
	}
	for _, n := range s.Near {
		o.ObserveInt64(i.near, int64(n.Count), metric.WithAttributes(attribute.String("action", n.Action), attribute.String("limit", n.Limit)))
	}
	for _, w := range s.Waiting {
		o.ObserveInt64(i.waiting, w.Calls, metric.WithAttributes(attribute.String("action", w.Action)))
	}
	i.answers.observe(o, s.Store)
	i.waits.observe(o, s.Wait)
	down := int64(0)
	if s.Down {
		down = 1
	}
	o.ObserveInt64(i.down, down)
	if l := s.Leases; l.Taken > 0 {
		for what, n := range map[string]uint64{"taken": l.Taken, "returned": l.Returned, "lost": l.Lost} {
			o.ObserveInt64(i.leases, int64(n), metric.WithAttributes(attribute.String("what", what)))
		}
	}
	for _, u := range s.Refused {
		o.ObserveInt64(i.refused, int64(u.Refused), metric.WithAttributes(attribute.String("user", u.User), attribute.Bool("hashed", u.Hashed)))
	}
	if p := s.Plans; p.Generation > 0 {
		o.ObserveInt64(i.inForce, int64(p.Generation), metric.WithAttributes(attribute.String("version", p.Version)))
		o.ObserveInt64(i.rejected, int64(p.Rejected))
	}
	if s.MemoryKeysMax > 0 {
		o.ObserveInt64(i.keys, int64(s.MemoryKeys))
		o.ObserveInt64(i.keysMax, int64(s.MemoryKeysMax))
	}
}

func (h *histogram) observe(o metric.Observer, from metrics.Histogram) {
	for _, b := range from.Buckets {
		le := strconv.FormatFloat(b.UpTo.Seconds(), 'g', -1, 64)
		o.ObserveInt64(h.bucket, int64(b.Count), metric.WithAttributes(attribute.String("le", le)))
	}
	o.ObserveInt64(h.bucket, int64(from.Count), metric.WithAttributes(attribute.String("le", "+Inf")))
	o.ObserveInt64(h.count, int64(from.Count))
	o.ObserveFloat64(h.sum, from.Sum.Seconds())
}

// annotate describes a decision in the span of the context, if that span records.
func annotate(ctx context.Context, d metrics.Decision) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("rate_limit.decision", d.Outcome), attribute.String("rate_limit.limit", d.Limit), attribute.String("rate_limit.source", d.Source))
	if d.Passes {
		return
	}
	attributes := []attribute.KeyValue{
		attribute.String("tailcut.action", d.Action), attribute.String("tailcut.limit", d.Limit),
		attribute.String("tailcut.outcome", d.Outcome), attribute.String("tailcut.source", d.Source),
	}
	if d.RetryAfter > 0 && d.RetryAfter != core.Never {
		attributes = append(attributes, attribute.Float64("tailcut.retry_after", d.RetryAfter.Seconds()))
	}
	span.AddEvent("tailcut.refused", trace.WithAttributes(attributes...))
}
