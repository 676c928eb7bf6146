package core_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// Whoever leaves while its call probes does not keep the breaker open either. If the store hangs, the
// probe ends after a second.
func TestAProbeOutlastsItsCaller(t *testing.T) {
	for name, decorate := range breakers {
		for does, want := range map[does]time.Duration{answersSoon: time.Millisecond, neverAnswers: time.Second} {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				store := scriptedStore(fails)
				l := core.Must(core.New(decorate(store), plenty))
				for range 3 {
					_, _ = allow(l)
				}
				time.Sleep(time.Second)
				store.does.Store(int64(does))
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(time.Microsecond, leave)
				start := time.Now()
				if _, err := l.Allow(ctx, "u", "a"); (err == nil) != (does == answersSoon) || time.Since(start) != want {
					t.Errorf("%s: the probe: %v after %s", name, err, time.Since(start))
				}
				store.does.Store(int64(answers))
				if d, err := allow(l); err != nil || (d.Source == core.SourceStore) != (does == answersSoon) {
					t.Errorf("%s: after the probe: %+v, %v", name, d, err)
				}
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

func (s *meanwhile) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
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
		// All of them three times, before it opened; then one in 300 ms.
		if n := failures.Load(); n < 3*callers || n > 3*callers+7000/300+1 {
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

func (s *dying) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	if s.dead.Load() {
		s.failures.Add(1)
		time.Sleep(50 * time.Millisecond)
		return core.Decision{}, nil, errDown
	}
	return s.Store.Take(ctx, c)
}
