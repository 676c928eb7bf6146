package metrics

// A series counts the decisions about one action by one limit. This file finds the series of a
// decision.

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
)

type outcome uint8

const (
	allowed outcome = iota
	limited
	inFlight
	banned
	full
	shadowed
	failed
)

var outcomes = [...]string{allowed: "allowed", limited: "limited", inFlight: "in-flight", banned: "banned", full: "full", shadowed: "shadowed", failed: "error"}

var sources = [...]core.Source{core.SourceNone, core.SourceStore, core.SourceFallback, core.SourceCache, core.SourceLease}

// A pair is the key of a series.
type pair struct {
	action, identity string
	perUser          bool
}

// A series has the counts of one pair of an action and a limit.
type series struct {
	action, limit string // the labels
	counts        [len(outcomes)][len(sources)]atomic.Uint64
	near          atomic.Uint64
}

func (s *series) add(o outcome, source core.Source) {
	if int(source) >= len(sources) {
		source = core.SourceNone
	}
	s.counts[o][source].Add(1)
}

// find returns the series of an action and a limit, and makes it if it is missing. It locks m.mu
// only to make one.
func (m *Metrics) find(action string, l *core.Limit) *series {
	p := pair{action, l.Identity(), l.IsPerUser()}
	if s, ok := m.pairs.Load(p); ok {
		return s.(*series)
	}
	p.action = clean(action)
	if _, s := m.home(p); s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, s := m.home(p)
	if s == nil {
		s = m.add(p)
	}
	return s
}

// home returns the pair under which p is counted, and the series of that pair. The pair is p itself
// if there is room for it, otherwise "other" with p's limit, otherwise "other" alone. The series is
// nil if it must still be made. If the caller does not hold m.mu, another goroutine may make it in
// the meantime.
func (m *Metrics) home(p pair) (pair, *series) {
	ofLimit, last := pair{other, p.identity, p.perUser}, pair{action: other, identity: other}
	for i, p := range [...]pair{p, ofLimit} {
		room := m.series.Load() < int64(m.options.MaxPairs+i*maxOthers) // read before the look-up, so that a series that is added in between is found
		if s, ok := m.pairs.Load(p); ok {
			return p, s.(*series)
		}
		if room {
			return p, nil
		}
		m.overflow()
	}
	s, _ := m.pairs.Load(last)
	found, _ := s.(*series)
	return last, found
}

// add makes a series. The caller holds m.mu.
func (m *Metrics) add(p pair) *series {
	p.action = strings.Clone(p.action) // p.action may be a substring of a large string
	s := &series{action: p.action, limit: p.identity}
	if p.perUser {
		s.limit = "*:" + p.identity
	}
	m.pairs.Store(p, s)
	m.series.Add(1)
	return s
}

// overflow logs once that there are too many pairs.
func (m *Metrics) overflow() {
	if m.full.Due() {
		slog.Default().Warn("metrics: too many pairs of action and limit; further actions are counted as \"other\"; use route templates for actions, or raise Options.MaxPairs", "code", "too-many-pairs", "pairs", m.options.MaxPairs)
	}
}

// gauge returns the number of waiting calls of an action, and makes it if it is missing. It locks
// m.mu only to make one.
func (m *Metrics) gauge(action string) *atomic.Int64 {
	if g, ok := m.waiting.Load(action); ok {
		return g.(*atomic.Int64)
	}
	action = clean(action)
	if _, g := m.gaugeHome(action); g != nil {
		return g
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	action, g := m.gaugeHome(action)
	if g == nil {
		g = new(atomic.Int64)
		m.waiting.Store(strings.Clone(action), g)
		m.gauges.Add(1)
	}
	return g
}

// gaugeHome is home for the number of waiting calls of an action.
func (m *Metrics) gaugeHome(action string) (string, *atomic.Int64) {
	room := m.gauges.Load() < int64(m.options.MaxPairs)
	g, ok := m.waiting.Load(action)
	if !ok && !room {
		m.overflow()
		action = other
		g, ok = m.waiting.Load(action)
	}
	if !ok {
		return action, nil
	}
	return action, g.(*atomic.Int64)
}

// maxLabel is the most bytes of an action's label.
const maxLabel = 200

// clean turns an action into a label value: it shortens a long action, and replaces invalid UTF-8.
// A single invalid label value would make Prometheus reject all metrics.
func clean(action string) string {
	if len(action) > maxLabel {
		end := maxLabel
		for end > maxLabel-utf8.UTFMax && !utf8.RuneStart(action[end]) {
			end--
		}
		action = action[:end]
	}
	return strings.ToValidUTF8(action, "\uFFFD")
}
