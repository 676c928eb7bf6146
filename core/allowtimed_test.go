package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/internal/mono"
	"github.com/tailcut/tailcut/core/internal/short"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

// A slowAnswer is a store that is asked at once and answers a second later.
type slowAnswer struct{ core.Store }

func (s slowAnswer) Take(ctx context.Context, c core.Charge) (core.Decision, error) {
	d, err := s.Store.Take(ctx, c)
	time.Sleep(time.Second)
	return d, err
}

// AllowTimed decides as AllowN does, and its instant is the time of day then: of the store's
// reading, or of the answer's arrival.
func TestAllowTimed(t *testing.T) {
	window := core.FixedWindow(2, time.Hour)
	for name, tt := range map[string]struct {
		store  func() core.Store
		limits []core.Limit
	}{
		"a meter":                         {func() core.Store { return memorystore.New(nil) }, []core.Limit{core.Funnel(2, core.Every(time.Hour))}},
		"a window":                        {func() core.Store { return memorystore.New(nil) }, []core.Limit{window}},
		"a limit of all actions":          {func() core.Store { return memorystore.New(nil) }, []core.Limit{window.PerUser()}},
		"several limits":                  {func() core.Store { return memorystore.New(nil) }, []core.Limit{window, core.SlidingWindow(5, time.Hour)}},
		"a store that is watched":         {func() core.Store { return metrics.New(nil).Watch(memorystore.New(nil)) }, []core.Limit{window}},
		"a store with a clock of its own": {func() core.Store { return memorystore.New(&memorystore.Options{Clock: elsewhere}) }, []core.Limit{window}},
		"a store that answers later":      {func() core.Store { return slowAnswer{memorystore.New(nil)} }, []core.Limit{window}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timed, plain := core.Must(core.New(tt.store(), tt.limits...)), core.Must(core.New(tt.store(), tt.limits...))
				for _, n := range []int{0, 1, 1, 1, 3} {
					time.Sleep(7*time.Millisecond + 11*time.Microsecond)
					got, at, err := timed.AllowTimed(t.Context(), "u", "a", n)
					if now := time.Now(); err != nil || !at.Equal(now) {
						t.Errorf("a cost of %d was decided at %v, %v, and it is %v", n, at, err, now)
					}
					if want, _ := plain.AllowN(t.Context(), "u", "a", n); got != want {
						t.Errorf("a cost of %d: %+v, want %+v", n, got, want)
					}
				}
			})
		})
	}
	d, _, err := core.Must(core.New(memorystore.New(nil), window)).AllowTimed(t.Context(), "u", "a", -1)
	if err != core.ErrCost || d != (core.Decision{}) {
		t.Errorf("a negative cost: %+v, %v", d, err)
	}
}

// A store that has read the process's clock for its decision is not asked for another reading.
func TestAllowTimedIsTheStoresInstant(t *testing.T) {
	at := mono.Now() - mono.Time(time.Second)
	for name, store := range map[string]core.Store{
		"itself":  readingStore{at: at},
		"watched": metrics.New(nil).Watch(readingStore{at: at}),
	} {
		_, got, err := core.Must(core.New(store, core.FixedWindow(2, time.Hour))).AllowTimed(t.Context(), "u", "a", 1)
		if want := time.Unix(0, at.UnixNano()); err != nil || got.Sub(want).Abs() > 100*time.Microsecond {
			t.Errorf("%s: decided at %v, want %v, %v", name, got, want, err)
		}
	}
}

// A readingStore admits everything, at an instant that it has read before.
type readingStore struct {
	core.Store
	at mono.Time
}

func (s readingStore) TakeOne(string, string, *machine.Rule, int64) (machine.Verdict, mono.Time) {
	return machine.Verdict{Outcome: machine.Admitted}, s.at
}

func init() {
	short.Register(func(store, _ any) short.Taker {
		if s, ok := store.(readingStore); ok {
			return s
		}
		return nil
	})
}

// elsewhere is a clock that has stopped.
func elsewhere() time.Time { return time.Date(1984, 1, 1, 0, 0, 0, 0, time.UTC) }
