package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A script is a store that does as it is told, one letter a call: s answers, f fails,
// c answers from a cache, k has an error of its key, l finds that the caller leaves, p
// panics, h hangs for a second and answers, H hangs for a second and fails. After the last
// it does as then.
type script struct {
	core.Store
	mu    sync.Mutex
	does  string
	asked atomic.Int64
	left  atomic.Int64
}

var errKey = fmt.Errorf("store: nonsense: %w", core.ErrKey)

func scripted(does string) *script { return &script{Store: memorystore.New(nil), does: does} }

func (s *script) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	s.asked.Add(1)
	s.mu.Lock()
	does := s.does[0]
	if len(s.does) > 1 {
		s.does = s.does[1:]
	}
	s.mu.Unlock()
	switch does {
	case 'f':
		return core.Decision{}, errDown
	case 'c':
		d, err := s.Store.Take(ctx, c)
		d.Source = core.SourceCache
		return d, err
	case 'k':
		return core.Decision{}, errKey
	case 'l':
		s.left.Add(1)
		ctx.Value(leave{}).(context.CancelFunc)()
		return core.Decision{}, ctx.Err()
	case 'p':
		panic("the store panics")
	case 'h':
		time.Sleep(time.Second)
	case 'H':
		time.Sleep(time.Second)
		return core.Decision{}, errDown
	}
	return s.Store.Take(ctx, c)
}

type leave struct{}

// allow asks once, as a caller who can leave, and swallows a panic.
func allow(l *core.Limiter) (d core.Decision, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer func() { _ = recover() }()
	return l.Allow(context.WithValue(ctx, leave{}, cancel), "u", "a")
}

var breakers = map[string]func(core.Store) core.Store{
	"FailOpen": core.FailOpen,
	"Shadow":   core.Shadow,
	"Fallback": func(s core.Store) core.Store { return core.Fallback(s, memorystore.New(nil)) },
}

var plenty = core.FixedWindow(1_000_000, time.Hour)

// Of the calls c is one, g one that goes on by itself; a dot waits for 249 ms, a comma
// for 1 ms, a semicolon for 1 s. asked is how often the store was, in all.
func TestBreaker(t *testing.T) {
	for _, tt := range []struct {
		name, does, calls string
		asked             int64
	}{
		{"a store that answers is always asked", "s", "cccccccccc", 10},
		{"two failures in a row open nothing", "ffs", "cccccccccc", 10},
		{"nor does every second call that fails", "fsfsfsfsfsfs", "cccccccccccc", 12},
		{"nor do two of three", "ffsffsffsffs", "cccccccccccc", 12},
		{"three in a row do", "f", "cccccccccc", 3},
		{"and three after others", "ffsfff", "cccccccccc", 6},
		{"open, it asks nothing for a quarter of a second", "f", "ccc.cccc", 3},
		{"then one call", "f", "ccc.,cccc", 4},
		{"and one after each other quarter", "f", "ccc.,ccc.c,ccc.c,cc", 6},
		{"however long nobody asks", "f", "ccc........,cccc", 4},
		{"an answer to the probe closes", "fffs", "ccc.,ccccc", 8},
		{"and three failures open again", "fffsf", "ccc.,cccccccccc", 7},
		{"an error of a key opens nothing", "k", "cccccccccc", 10},
		{"and ends no run of failures", "ffkf", "cccccccccc", 4},
		{"and does not close, nor hold up the next probe", "fffkf", "ccc.,cccc", 5},
		{"nor after an answer", "fffks", "ccc.,cccc", 7},
		{"an answer from a cache ends no run of failures", "ffcf", "cccccccccc", 4},
		{"and does not close, nor hold up the probe", "fffcf", "ccc.,cccc", 5},
		{"a caller who leaves opens nothing", "l", "cccccccccc", 10},
		{"and ends no run of failures either", "fflf", "cccccccccc", 4},
		{"and does not close, nor hold up the probe", "ffflf", "ccc.,cccc", 5},
		{"nor do many", "fffllllls", "ccc.,cccccccc", 11},
		{"a probe that panics has failed", "fffps", "ccc.,cccc.,ccc", 7},
		{"a call that panics opens nothing", "p", "cccccccccc", 10},
		{"an answer to a call from before it opened does not close", "hf", "gccc;ccccc", 5},
		{"nor end a later run of failures", "hfffsf", "gccc.,ccc;ccccc", 8},
		{"failures of calls from before do not open what has closed", "HHHfffs", "gggccc.,c...,,,,,ccccc", 12},
	} {
		for name, decorate := range breakers {
			t.Run(name+": "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					logs(t)
					store := scripted(tt.does)
					l := core.Must(core.New(decorate(store), plenty))
					left := int64(0)
					for _, c := range tt.calls {
						switch c {
						case '.':
							time.Sleep(249 * time.Millisecond)
						case ',':
							time.Sleep(time.Millisecond)
						case ';':
							time.Sleep(time.Second)
						case 'g':
							go allow(l)
						default:
							switch _, err := allow(l); {
							case errors.Is(err, context.Canceled):
								left++
							case err != nil:
								t.Errorf("a call with a decision to fall back on: %v", err)
							}
						}
						synctest.Wait()
					}
					if n := store.left.Load(); left != n {
						t.Errorf("%d callers left, and %d were told so", n, left)
					}
					if n := store.asked.Load(); n != tt.asked {
						t.Errorf("asked %d times, not %d", n, tt.asked)
					}
				})
			})
		}
	}
}

// While a probe is under way nobody else asks, however long it takes.
func TestBreakerProbesOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		var here, most, asked atomic.Int64
		var opened atomic.Bool
		store := sound()
		store.err = errDown
		slow := &meanwhile{store, func() {
			if opened.Load() {
				asked.Add(1)
				most.Store(max(most.Load(), here.Add(1)))
				time.Sleep(3 * time.Second)
				here.Add(-1)
			}
		}}
		l := core.Must(core.New(core.FailOpen(slow), plenty))
		for range 3 {
			_, _ = allow(l)
		}
		opened.Store(true)
		start := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for time.Since(start) < 10*time.Second {
					_, _ = allow(l)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 || asked.Load() != 3 {
			t.Errorf("%d probes, %d at a time; want one at a time, at 0.25, 3.5 and 6.75 s", asked.Load(), most.Load())
		}
	})
}

type meanwhile struct {
	core.Store
	first func()
}

func (s *meanwhile) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	s.first()
	return s.Store.Take(ctx, c)
}

// However many ask, in an outage the store is asked by those who found it closed,
// and when it is back everybody is served within the quarter of a second.
func TestBreakerUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		const callers = 50
		var dead atomic.Bool
		var failures atomic.Int64
		store := &dying{Store: memorystore.New(nil), dead: &dead, failures: &failures}
		l := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), plenty))
		var back atomic.Int64 // calls that the store decided, after its return
		var wg sync.WaitGroup
		start := time.Now()
		for range callers {
			wg.Go(func() {
				for time.Since(start) < 10*time.Second {
					d, err := allow(l)
					if err != nil {
						t.Error(err)
					}
					if s := time.Since(start); s > 8*time.Second+310*time.Millisecond {
						if d.Source != core.SourceStore {
							t.Errorf("the fallback decides at %s", s)
						}
						back.Add(1)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		dead.Store(true)
		time.Sleep(7 * time.Second)
		dead.Store(false)
		wg.Wait()
		// All of them once, before it opened; then one in 300 ms.
		if n := failures.Load(); n < callers || n > callers+7000/300+1 {
			t.Errorf("%d calls met the outage", n)
		}
		if back.Load() == 0 {
			t.Error("nothing was asked at the end")
		}
	})
}

type dying struct {
	core.Store
	dead     *atomic.Bool
	failures *atomic.Int64
}

func (s *dying) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	if s.dead.Load() {
		s.failures.Add(1)
		time.Sleep(50 * time.Millisecond)
		return core.Decision{}, errDown
	}
	return s.Store.Take(ctx, c)
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
			[]string{"10.02s WARN its fallback decides", "25.02s INFO answers again"}},
		{"of one that comes and goes, the same", func(at time.Duration) bool {
			return at >= 10*time.Second && at < 70*time.Second && at%(3*time.Second) < time.Second
		},
			[]string{"12.02s WARN its fallback decides", "1m15.02s INFO answers again"}},
		{"of one that fails now and then, once a minute", func(at time.Duration) bool { return at%(100*time.Millisecond) == 0 && at < 150*time.Second },
			[]string{"10ms WARN not every call", "1m0.01s WARN not every call", "2m0.01s WARN not every call"}},
		{"two outages", func(at time.Duration) bool {
			return at >= 10*time.Second && at < 20*time.Second || at >= 60*time.Second && at < 70*time.Second
		}, []string{"10.02s WARN its fallback decides", "25.02s INFO answers again", "1m0.02s WARN its fallback decides", "1m15.02s INFO answers again"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var lines []string
				was := slog.Default()
				defer slog.SetDefault(was)
				slog.SetDefault(slog.New(handler(func(r slog.Record) {
					_, message, _ := strings.Cut(r.Message, ": ")
					lines = append(lines, fmt.Sprint(time.Since(start), " ", r.Level, " ", message))
				})))
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
		l := core.Must(core.New(core.FailOpen(scripted("k")), plenty))
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
		"Fallback's other": func(s core.Store) core.Store { return core.Fallback(scripted("k"), core.FailOpen(s)) },
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
				// The store within fails at its third, fourth and fifth call, and once as a probe.
				l := core.Must(core.New(core.Observe(decorate(scripted("ssfffffs")), see), plenty))
				for i, want := range []bool{false, false, false, false, true, true} {
					if _, _ = allow(l); seen.Down != want || seen.Err != nil {
						t.Errorf("call %d: %+v", i, seen)
					}
				}
				for _, want := range []bool{true, true, false, false} {
					time.Sleep(time.Second)
					if _, _ = allow(l); seen.Down != want {
						t.Errorf("at a probe: %+v", seen)
					}
				}
			})
		})
	}
	t.Run("a bare store", func(t *testing.T) {
		var seen core.Observation
		store := scripted("f")
		l := core.Must(core.New(core.Observe(store, func(_ context.Context, o core.Observation) { seen = o }), plenty))
		for range 9 {
			if _, _ = allow(l); seen.Down || !errors.Is(seen.Err, errDown) {
				t.Errorf("%+v", seen)
			}
		}
	})
}

// Reset asks the store though it is down, says what came of it, and is no probe.
func TestResetWhileOpen(t *testing.T) {
	for name, decorate := range breakers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				store := sound()
				l := core.Must(core.New(decorate(store), plenty))
				_, _ = allow(l)
				store.err = errDown
				for range 3 {
					_, _ = allow(l)
				}
				for range 5 {
					if err := l.Reset(t.Context(), "u", "a"); !errors.Is(err, errDown) {
						t.Errorf("Reset: %v", err)
					}
				}
				store.err = nil
				if err := l.Reset(t.Context(), "u", "a"); err != nil {
					t.Errorf("Reset: %v", err)
				}
				if _, _ = allow(l); store.asked.Load() != 4 {
					t.Errorf("after a Reset the store is asked: %d", store.asked.Load())
				}
				time.Sleep(time.Second)
				if d, err := l.Peek(t.Context(), "u", "a"); err != nil || d.Remaining != plenty.Quota() || d.Source != core.SourceStore {
					t.Errorf("the store was not reset: %+v, %v", d, err)
				}
			})
		})
	}
}

func TestBreakerCostsNothing(t *testing.T) {
	for name, decorate := range breakers {
		l := core.Must(core.New(decorate(memorystore.New(nil)), core.Funnel(1_000_000, core.Every(time.Minute))))
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkBreaker(b *testing.B) {
	down := sound()
	down.err = errDown
	for name, store := range map[string]core.Store{
		"bare":    memorystore.New(nil),
		"healthy": core.Fallback(memorystore.New(nil), memorystore.New(nil)),
		"open":    core.Fallback(down, memorystore.New(nil)),
		"divided": core.Divide(memorystore.New(nil), 4),
	} {
		b.Run(name, func(b *testing.B) {
			l := core.Must(core.New(store, core.Funnel(1_000_000, core.Every(time.Minute))))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(context.Background(), "u", "a")
			}
		})
	}
}
