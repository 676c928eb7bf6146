// Package tailcutprom exports the counts of package metrics to Prometheus.
//
//	m := metrics.New(nil)
//	store := m.Watch(memorystore.New(nil))
//	prometheus.MustRegister(tailcutprom.Collector(m))
//
// Package metrics explains the labels. The program examples/metrics has a dashboard and alerts.
//
//	tailcut_decisions_total{action,limit,outcome,source}  decisions
//	tailcut_near_total{action,limit}                      near misses of shadow limits
//	tailcut_store_seconds                                 histogram: how long the store took to answer
//	tailcut_store_down                                    1 while a store is down
//	tailcut_waiting{action}                               calls of Wait in progress, and requests that are held
//	tailcut_wait_seconds                                  histogram: how long those calls took
//	tailcut_lease_units_total{what}                       units of leased limits: taken, returned, lost
//	tailcut_plans_generation{version}                     the number of the document of plans in force, if there is one
//	tailcut_plans_rejected_total                          documents that were not put in force because of an error
//	tailcut_memory_keys, tailcut_memory_keys_max          the number of a memorystore's keys, and its bound
//	tailcut_refused_users{user,hashed}                    gauge: a user's refusals in the window, with Options.ExportRefused
//
// The histograms have classic buckets and the buckets of native histograms. If your Prometheus
// scrapes native histograms, it reads times to within a fifth, and drops the classic buckets. If
// your queries use the classic buckets (_bucket), set always_scrape_classic_histograms.
//
// tailcut_refused_users has only the users with the most refusals. If all processes have the same
// metrics.Options.HashKey, add up their numbers: topk(10, sum by (user) (tailcut_refused_users)).
package tailcutprom

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tailcut/tailcut/core/metrics"
)

var (
	decisions = describe("tailcut_decisions_total", "Decisions by action, limit, outcome and source.", "action", "limit", "outcome", "source")
	near      = describe("tailcut_near_total", "Actions that a shadow limit would have allowed with a fifth of its quota or less left.", "action", "limit")
	answers   = describe("tailcut_store_seconds", "How long the store took to answer. A memorystore alone is not timed.")
	down      = describe("tailcut_store_down", "1 if a store's last three calls failed, the last of them within a minute; else 0.")
	waiting   = describe("tailcut_waiting", "Calls that wait for their turn, held requests included.", "action")
	waits     = describe("tailcut_wait_seconds", "How long calls waited for their turn.")
	keys      = describe("tailcut_memory_keys", "Keys in memory, those included that have expired and are not dropped yet.")
	keysMax   = describe("tailcut_memory_keys_max", "The bound of the keys in memory.")
	leases    = describe("tailcut_lease_units_total", "Units of leased limits that were taken in advance, returned, and lost.", "what")
	refused   = describe("tailcut_refused_users", "Refusals of the most refused users in the window of Options.RefusedWindow.", "user", "hashed")
	inForce   = describe("tailcut_plans_generation", "The number of the document of plans in force in this process, by the version that replicas with the same document share.", "version")
	rejected  = describe("tailcut_plans_rejected_total", "Documents of plans that were not put in force because of an error.")

	all = []*prometheus.Desc{decisions, near, answers, down, waiting, waits, keys, keysMax, leases, inForce, rejected, refused}
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Collector returns a collector that exports the counts of m. It panics if m is nil.
func Collector(m *metrics.Metrics) prometheus.Collector {
	if m == nil {
		panic("tailcutprom: Collector: the Metrics is nil; use metrics.New(nil)")
	}
	return collector{m}
}

type collector struct{ m *metrics.Metrics }

func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range all {
		out <- d
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.m.Snapshot()
	for _, d := range s.Decisions {
		out <- prometheus.MustNewConstMetric(decisions, prometheus.CounterValue, float64(d.Count), d.Action, d.Limit, d.Outcome, d.Source)
	}
	for _, n := range s.Near {
		out <- prometheus.MustNewConstMetric(near, prometheus.CounterValue, float64(n.Count), n.Action, n.Limit)
	}
	for _, w := range s.Waiting {
		out <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(w.Calls), w.Action)
	}
	out <- histogram(answers, s.Store)
	out <- histogram(waits, s.Wait)
	isDown := 0.0
	if s.Down {
		isDown = 1
	}
	out <- prometheus.MustNewConstMetric(down, prometheus.GaugeValue, isDown)
	if s.Leases.Taken > 0 {
		for what, n := range map[string]uint64{"taken": s.Leases.Taken, "returned": s.Leases.Returned, "lost": s.Leases.Lost} {
			out <- prometheus.MustNewConstMetric(leases, prometheus.CounterValue, float64(n), what)
		}
	}
	for _, u := range s.Refused {
		out <- prometheus.MustNewConstMetric(refused, prometheus.GaugeValue, float64(u.Refused), u.User, strconv.FormatBool(u.Hashed))
	}
	if p := s.Plans; p.Generation > 0 {
		out <- prometheus.MustNewConstMetric(inForce, prometheus.GaugeValue, float64(p.Generation), p.Version)
		out <- prometheus.MustNewConstMetric(rejected, prometheus.CounterValue, float64(p.Rejected))
	}
	if s.MemoryKeysMax > 0 {
		out <- prometheus.MustNewConstMetric(keys, prometheus.GaugeValue, float64(s.MemoryKeys))
		out <- prometheus.MustNewConstMetric(keysMax, prometheus.GaugeValue, float64(s.MemoryKeysMax))
	}
}

// histogram returns a metric with classic buckets and with the finer buckets of a native histogram.
func histogram(desc *prometheus.Desc, h metrics.Histogram) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Buckets))
	for _, b := range h.Buckets {
		buckets[b.UpTo.Seconds()] = b.Count
	}
	return both{
		prometheus.MustNewConstHistogram(desc, h.Count, h.Sum.Seconds(), buckets),
		prometheus.MustNewConstNativeHistogram(desc, h.Count, h.Sum.Seconds(), h.Exponential, nil, 0, schema, prometheus.DefNativeHistogramZeroThreshold, time.Time{}),
	}
}

// schema 2 of a native histogram has four buckets per doubling, as metrics.Histogram.Exponential
// has.
const schema = 2

// both is a histogram that is written with classic and native buckets.
type both struct{ classic, native prometheus.Metric }

func (b both) Desc() *prometheus.Desc { return b.classic.Desc() }

func (b both) Write(out *dto.Metric) error {
	var fine dto.Metric
	if err := errors.Join(b.classic.Write(out), b.native.Write(&fine)); err != nil {
		return err
	}
	h, n := out.Histogram, fine.Histogram
	h.Schema, h.ZeroThreshold, h.ZeroCount = n.Schema, n.ZeroThreshold, n.ZeroCount
	h.PositiveSpan, h.PositiveDelta = n.PositiveSpan, n.PositiveDelta
	return nil
}
