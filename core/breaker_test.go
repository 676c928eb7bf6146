package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
)

// A step: after a while, and while the store does that, so many calls come, of which so
// many ask the store.
type step struct {
	after time.Duration
	while does
	calls int
	asked int64

	together bool // the calls come at the same moment, and the next step does not wait for them
}

// "After three failures in a row, FailOpen stops asking store"
func TestBreaker(t *testing.T) {
	const ms = time.Millisecond
	opened := step{while: fails, calls: 3, asked: 3}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a store that answers is always asked", []step{{while: answers, calls: 10, asked: 10}}},
		{"two failures in a row do not open it", []step{{while: fails, calls: 2, asked: 2}, {while: answers, calls: 8, asked: 8}}},
		{"nor do two of three", []step{
			{while: fails, calls: 2, asked: 2}, {while: answers, calls: 1, asked: 1},
			{while: fails, calls: 2, asked: 2}, {while: answers, calls: 1, asked: 1},
			{while: fails, calls: 2, asked: 2}, {while: answers, calls: 1, asked: 1},
		}},
		{"three in a row do", []step{{while: fails, calls: 10, asked: 3}}},
		{"open, it asks nothing for a quarter of a second", []step{opened, {after: 249 * ms, while: fails, calls: 4}}},
		{"then one call asks, and one each quarter", []step{
			opened,
			{after: 250 * ms, while: fails, calls: 4, asked: 1},
			{after: 249 * ms, while: fails, calls: 4},
			{after: ms, while: fails, calls: 4, asked: 1},
			{after: time.Hour, while: fails, calls: 4, asked: 1},
		}},
		{"an answer to the probe closes", []step{opened, {after: 250 * ms, while: answers, calls: 5, asked: 5}}},
		{"and three failures open again", []step{
			opened, {after: 250 * ms, while: answers, calls: 1, asked: 1}, {while: fails, calls: 10, asked: 3},
		}},
		{"calls that fail together are one failure", []step{
			{while: failsLate, calls: 100, asked: 100, together: true},
			{after: 1001 * ms, while: failsLate, calls: 100, asked: 100, together: true},
			{after: 1001 * ms, while: answers, calls: 100, asked: 100},
		}},
		{"so are calls that began before the first of them failed", []step{
			{while: failsLate, calls: 1, asked: 1, together: true},
			{after: 300 * ms, while: failsLate, calls: 1, asked: 1, together: true},
			{after: 300 * ms, while: failsLate, calls: 1, asked: 1, together: true},
			{after: 300 * ms, while: failsLate, calls: 1, asked: 1, together: true},
			{after: 1001 * ms, while: answers, calls: 10, asked: 10},
		}},
		{"a store that hangs opens it after three of its timeouts", []step{
			{while: failsLate, calls: 10, asked: 10, together: true},
			{after: 1001 * ms, while: failsLate, calls: 10, asked: 10, together: true},
			{after: 1001 * ms, while: failsLate, calls: 10, asked: 10, together: true},
			{after: 1001 * ms, while: failsLate, calls: 10, together: true},
		}},
		{"an error of a key does not open it", []step{{while: nonsense, calls: 10, asked: 10}}},
		{"and does not end a run of failures", []step{
			{while: fails, calls: 2, asked: 2}, {while: nonsense, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"and does not close, nor hold up the next probe", []step{
			opened, {after: 250 * ms, while: nonsense, calls: 1, asked: 1}, {while: answers, calls: 5, asked: 5},
		}},
		{"an answer from a cache does not end a run of failures", []step{
			{while: fails, calls: 2, asked: 2}, {while: cached, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"and does not close, nor hold up the probe", []step{
			opened, {after: 250 * ms, while: cached, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"an answer from a lease does not end a run of failures", []step{
			{while: fails, calls: 2, asked: 2}, {while: leased, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"and does not close it", []step{
			opened, {after: 250 * ms, while: leased, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"a caller who cancels does not open it", []step{{while: canceled, calls: 10, asked: 10}}},
		{"and does not end a run of failures either", []step{
			{while: fails, calls: 2, asked: 2}, {while: canceled, calls: 1, asked: 1}, {while: fails, calls: 5, asked: 1},
		}},
		{"a probe that panics has failed", []step{
			opened, {after: 250 * ms, while: panics, calls: 1, asked: 1}, {while: answers, calls: 4}, {after: 250 * ms, while: answers, calls: 4, asked: 4},
		}},
		{"a call that panics does not open it", []step{{while: panics, calls: 10, asked: 10}}},
		{"once open, an answer to an earlier call does not close it", []step{
			{while: answersLate, calls: 1, asked: 1, together: true}, opened,
			{after: 1001 * ms, while: fails, calls: 5, asked: 1},
		}},
		{"failures of calls from before do not open what has closed", []step{
			{while: failsLate, calls: 3, asked: 3, together: true}, opened,
			{after: 250 * ms, while: answers, calls: 1, asked: 1},
			{after: 751 * ms, while: answers, calls: 5, asked: 5},
		}},
	} {
		for name, decorate := range breakers {
			t.Run(name+": "+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					logs(t)
					store := scriptedStore(answers)
					l := core.Must(core.New(decorate(store), plenty))
					call := func(d does) {
						if _, err := allow(l); errors.Is(err, context.Canceled) != (d == canceled) || err != nil && d != canceled {
							t.Errorf("a call while the store does %d: %v", d, err)
						}
					}
					for i, s := range tt.steps {
						time.Sleep(s.after)
						store.does.Store(int64(s.while))
						before := store.asked.Load()
						for range s.calls {
							if s.together {
								go call(s.while)
							} else {
								call(s.while)
							}
						}
						synctest.Wait()
						if n := store.asked.Load() - before; n != s.asked {
							t.Errorf("step %d, %+v: the store was asked %d times, not %d", i, s, n, s.asked)
						}
					}
					time.Sleep(time.Minute) // for those who are under way
				})
			})
		}
	}
}

// within asks once with a deadline.
func within(l *core.Limiter, d time.Duration) (core.Decision, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return l.Allow(ctx, "u", "a")
}

// "if the caller's deadline ends before store answers, other decides"
// A deadline that ends when the store has had a second is the store's failure: the breaker
// opens. The fallback decides, with a context that is not done. The others pass nothing
// whose deadline is over.
func TestBreakerCountsDeadlines(t *testing.T) {
	for name, decorate := range breakers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logs(t)
				store := scriptedStore(neverAnswers)
				var down bool
				l := core.Must(core.New(core.Observe(decorate(store), func(_ context.Context, o core.Observation) { down = o.Down }), plenty))
				for i := range 10 {
					d, err := within(l, time.Second)
					if over := name != "Fallback" && i < 3; errors.Is(err, context.DeadlineExceeded) != over || d.Allowed == over {
						t.Errorf("call %d: %+v, %v", i, d, err)
					}
				}
				if n := store.asked.Load(); n != 3 || !down || log.Len() == 0 {
					t.Errorf("asked %d times, not 3; Down %t, not true; log %q", n, down, log)
				}
			})
		})
	}
}

// A client may choose a deadline that is too short for any store. It then neither opens the breaker,
// nor keeps it from opening when the store fails, nor keeps it open.
func TestBreakerWithShortDeadlines(t *testing.T) {
	for name, decorate := range breakers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logs(t)
				store := scriptedStore(hangs)
				l := core.Must(core.New(decorate(store), plenty))
				short := func() {
					start := time.Now()
					for range 10 {
						d, err := within(l, 700*time.Microsecond)
						if over := name != "Fallback"; errors.Is(err, context.DeadlineExceeded) != over || d.Allowed == over {
							t.Errorf("a short deadline: %+v, %v", d, err)
						}
					}
					if took := time.Since(start); took != 7*time.Millisecond {
						t.Errorf("ten calls that each have 700 us took %s", took)
					}
				}
				ask := func(what string, want core.Source) {
					source := core.SourceFallback
					if name != "Fallback" {
						source = core.SourceNone
					}
					if want == core.SourceStore {
						source = want
					}
					if d, err := allow(l); err != nil || d.Source != source {
						t.Errorf("%s: %+v, %v", what, d, err)
					}
				}
				short()
				store.does.Store(int64(answers))
				ask("after short deadlines", core.SourceStore)

				for range 3 {
					store.does.Store(int64(hangs))
					short()
					store.does.Store(int64(fails))
					ask("the store fails", core.SourceNone)
				}
				before := store.asked.Load()
				if ask("it is open", core.SourceNone); store.asked.Load() != before {
					t.Error("among short deadlines three failures do not open it")
				}

				// The store answers again, each time after a millisecond.
				time.Sleep(time.Second)
				store.does.Store(int64(answersSoon))
				if d, err := within(l, 700*time.Microsecond); err != nil || !d.Allowed || d.Source != core.SourceStore {
					t.Errorf("the probe is a call with a short deadline: %+v, %v", d, err)
				}
				ask("after the probe", core.SourceStore)
			})
		})
	}
}

// A caller whose context is done before the call gets the context's error, and the store is not asked.
func TestBreakerWithAContextThatIsDone(t *testing.T) {
	for name, decorate := range breakers {
		for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if want == context.Canceled {
					cancel()
				}
				time.Sleep(2 * time.Second)
				store := scriptedStore(answers)
				c := core.Charge{User: "u", Action: "a", Cost: 1, Terms: &core.Terms{Limits: []core.Limit{plenty}}}
				if _, _, err := decorate(store).Take(ctx, c); err != want || store.asked.Load() != 0 {
					t.Errorf("%s: %v, and the store was asked %d times", name, err, store.asked.Load())
				}
			})
		}
	}
}

// The fallback of a caller whose deadline has ended is asked with a context that ends soon.
func TestFallbackAfterADeadlineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs(t)
		l := core.Must(core.New(core.Fallback(scriptedStore(hangs), scriptedStore(hangs)), plenty))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := l.Allow(ctx, "u", "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(start); took != 80*time.Millisecond {
			t.Errorf("it took %s", took)
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
