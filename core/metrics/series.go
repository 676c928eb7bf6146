package metrics

// The counts of one action by one limit, and how they are found.

import (
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/tailcut/tailcut/core"
)

type outcome uint8

const (
	allowed outcome = iota
	limited
	banned
	full
	shadowed
	failed
)

var outcomes = [...]string{allowed: "allowed", limited: "limited", banned: "banned", full: "full", shadowed: "shadowed", failed: "error"}

var sources = [...]core.Source{core.SourceNone, core.SourceStore, core.SourceFallback, core.SourceCache}

// A pair identifies a series.
type pair struct {
	action, identity string
	perUser          bool
}

// A series has the counts of one action by one limit.
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

// series finds or makes the series of an action by a limit.
func (m *Metrics) series(action string, l *core.Limit) *series {
	p := pair{action, l.Identity(), l.IsPerUser()}
	if s := (*m.pairs.Load())[p]; s != nil {
		return s
	}
	p.action = clean(p.action)
	pairs := *m.pairs.Load()
	s := pairs[p]
	if s == nil && len(pairs) >= m.maxPairs {
		p.action = other
		s = pairs[p]
	}
	if s == nil {
		s = m.add(p)
	}
	return s
}

func (m *Metrics) add(p pair) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	pairs := *m.pairs.Load()
	if len(pairs) >= m.maxPairs && pairs[p] == nil {
		m.overflow()
		if p.action = other; len(pairs) >= m.maxPairs+maxOthers && pairs[p] == nil {
			p = pair{action: other, identity: other}
		}
	}
	s := pairs[p]
	if s == nil {
		p.action = strings.Clone(p.action) // it may be a part of a large string
		s = &series{action: p.action, limit: p.identity}
		if p.perUser {
			s.limit = "*:" + p.identity
		}
		pairs = maps.Clone(pairs)
		pairs[p] = s
		m.pairs.Store(&pairs)
	}
	return s
}

// overflow says once that there are too many actions. It is called with the lock held.
func (m *Metrics) overflow() {
	if !m.full {
		m.full = true
		slog.Default().Warn("metrics: too many pairs of action and limit; further actions are counted as \"other\"; use route templates for actions, or raise Options.MaxPairs", "pairs", m.maxPairs)
	}
}

// gauge finds or makes the number of waiting calls of an action.
func (m *Metrics) gauge(action string) *atomic.Int64 {
	if g := (*m.waiting.Load())[action]; g != nil {
		return g
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	action = clean(action)
	waiting := *m.waiting.Load()
	if len(waiting) >= m.maxPairs && waiting[action] == nil {
		m.overflow()
		action = other
	}
	g := waiting[action]
	if g == nil {
		g = new(atomic.Int64)
		waiting = maps.Clone(waiting)
		waiting[strings.Clone(action)] = g
		m.waiting.Store(&waiting)
	}
	return g
}

// maxLabel bounds an action's bytes as a label.
const maxLabel = 200

// clean makes a label of an action: not too long, and valid UTF-8. With one invalid label
// Prometheus would show no metric at all.
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
