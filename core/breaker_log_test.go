package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// note notes for each action whether the store is down.
func note(down map[string]bool) func(context.Context, core.Observation) {
	return func(_ context.Context, o core.Observation) { down[o.Action] = o.Down }
}

// The log says once that the store fails, and once that it is over.
func TestBreakerLog(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails func(at time.Duration) bool
		lines []string // what is said, as 1.0s: words
	}{
		{"nothing of a store that answers", func(time.Duration) bool { return false }, nil},
		{"an outage once, and that it is over 5 s after", func(at time.Duration) bool { return at >= 10*time.Second && at < 20*time.Second },
			[]string{"10.02s WARN its fallback decides until it answers, store-fails", "25.02s INFO answers again, store-answers"}},
		{"of one that comes and goes, the same", func(at time.Duration) bool {
			return at >= 10*time.Second && at < 70*time.Second && at%(3*time.Second) < time.Second
		},
			[]string{"12.02s WARN its fallback decides until it answers, store-fails", "1m15.02s INFO answers again, store-answers"}},
		{"of one that fails now and then, once a minute", func(at time.Duration) bool { return at%(100*time.Millisecond) == 0 && at < 150*time.Second },
			[]string{"10ms WARN not every call, store-falters", "1m0.01s WARN not every call, store-falters", "2m0.01s WARN not every call, store-falters"}},
		{"two outages", func(at time.Duration) bool {
			return at >= 10*time.Second && at < 20*time.Second || at >= 60*time.Second && at < 70*time.Second
		}, []string{"10.02s WARN its fallback decides until it answers, store-fails", "25.02s INFO answers again, store-answers", "1m0.02s WARN its fallback decides until it answers, store-fails", "1m15.02s INFO answers again, store-answers"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var lines []string
				was := slog.Default()
				defer slog.SetDefault(was)
				slog.SetDefault(slog.New(ofCore{handler(func(r slog.Record) {
					_, message, _ := strings.Cut(r.Message, ": ")
					line := fmt.Sprint(time.Since(start), " ", r.Level, " ", message)
					r.Attrs(func(a slog.Attr) bool {
						if a.Key == "code" {
							line += ", " + a.Value.String()
						}
						return true
					})
					lines = append(lines, line)
				})}))
				store := sound()
				l := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
				for ; time.Since(start) < 200*time.Second; time.Sleep(10 * time.Millisecond) {
					if store.err = nil; tt.fails(time.Since(start)) {
						store.err = errDown
					}
					if _, err := allow(l); err != nil {
						t.Fatal(err)
					}
				}
				ok := len(lines) == len(tt.lines)
				for i := range min(len(lines), len(tt.lines)) {
					at, words, _ := strings.Cut(tt.lines[i], "s ")
					level, words, _ := strings.Cut(words, " ")
					ok = ok && strings.HasPrefix(lines[i], at) && strings.Contains(lines[i], level) && strings.Contains(lines[i], words)
				}
				if !ok {
					t.Errorf("said:\n%s\nnot:\n%s", strings.Join(lines, "\n"), strings.Join(tt.lines, "\n"))
				}
			})
		})
	}
}

type handler func(slog.Record)

func (handler) Enabled(context.Context, slog.Level) bool        { return true }
func (h handler) Handle(_ context.Context, r slog.Record) error { h(r); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h handler) WithGroup(string) slog.Handler                 { return h }

// A key that holds nonsense is said, though nobody else is troubled.
func TestBreakerLogNamesAnErrorOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs(t)
		l := core.Must(core.New(core.FailOpen(scriptedStore(nonsense)), plenty))
		for range 10 {
			_, _ = allow(l)
		}
		if n := strings.Count(log.String(), "store: nonsense"); n != 1 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("said %d times:\n%s", n, log)
		}
	})
}

// Observe shows an open breaker wherever within it is.
func TestObserveShowsThatAStoreIsDown(t *testing.T) {
	for name, decorate := range map[string]func(core.Store) core.Store{
		"FailOpen":         core.FailOpen,
		"Shadow":           core.Shadow,
		"Fallback":         breakers["Fallback"],
		"Fallback's other": func(s core.Store) core.Store { return core.Fallback(scriptedStore(nonsense), core.FailOpen(s)) },
		"under Fallback":   func(s core.Store) core.Store { return core.Fallback(core.FailOpen(s), memorystore.New(nil)) },
		"under Shadow":     func(s core.Store) core.Store { return core.Shadow(core.FailOpen(s)) },
		"under FailOpen":   func(s core.Store) core.Store { return core.FailOpen(core.Shadow(s)) },
		"under Divide":     func(s core.Store) core.Store { return core.Divide(core.FailOpen(s), 3) },
		"under Observe": func(s core.Store) core.Store {
			return core.Observe(core.FailOpen(s), func(context.Context, core.Observation) {})
		},
		"deep under them all": func(s core.Store) core.Store { return core.Shadow(core.Divide(core.FailOpen(core.FailOpen(s)), 3)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				var seen core.Observation
				see := func(_ context.Context, o core.Observation) { seen = o }
				store := scriptedStore(answers)
				l := core.Must(core.New(core.Observe(decorate(store), see), plenty))
				ask := func(while does, want bool) {
					store.does.Store(int64(while))
					if _, _ = allow(l); seen.Down != want || seen.Err != nil {
						t.Errorf("%+v", seen)
					}
				}
				ask(answers, false)
				ask(fails, false)
				ask(fails, false)
				ask(fails, true)
				ask(answers, true)
				time.Sleep(time.Second)
				ask(fails, true)
				time.Sleep(time.Second)
				ask(answers, false)
			})
		})
	}
	t.Run("a bare store", func(t *testing.T) {
		var seen core.Observation
		store := scriptedStore(fails)
		l := core.Must(core.New(core.Observe(store, func(_ context.Context, o core.Observation) { seen = o }), plenty))
		for range 9 {
			if _, _ = allow(l); seen.Down || !errors.Is(seen.Err, errDown) {
				t.Errorf("%+v", seen)
			}
		}
	})
}
