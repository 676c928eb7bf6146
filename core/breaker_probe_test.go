package core_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
)

// "A probe may take a second, even if its caller leaves earlier."
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
