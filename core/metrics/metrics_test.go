package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/metrics"
)

var errDown = errors.New("the store is down")

// faulty is a store that fails as long as it is down.
type faulty struct {
	core.Store
	down atomic.Bool
	took time.Duration
}

func newFaulty() *faulty { return &faulty{Store: memorystore.New(nil)} }

func (s *faulty) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	time.Sleep(s.took)
	if s.down.Load() {
		return core.Decision{}, nil, errDown
	}
	return s.Store.Take(ctx, c)
}

// told is what a snapshot says of decisions, a line for each.
func told(m *metrics.Metrics) string {
	var b strings.Builder
	s := m.Snapshot()
	for _, d := range s.Decisions {
		fmt.Fprintln(&b, d.Action, d.Limit, d.Outcome, d.Source, d.Count)
	}
	for _, n := range s.Near {
		fmt.Fprintln(&b, n.Action, n.Limit, "near", n.Count)
	}
	return b.String()
}

func expect(t *testing.T, m *metrics.Metrics, want ...string) {
	t.Helper()
	if got := told(m); got != strings.Join(append(want, ""), "\n") {
		t.Errorf("it counts\n%swant\n%s", got, strings.Join(want, "\n"))
	}
}

func times(n int, call func()) {
	for range n {
		call()
	}
}

func TestEveryDecisionIsCountedOnce(t *testing.T) {
	perHour := func(n int) core.Limit { return core.FixedWindow(n, time.Hour) }
	ban := core.BanPolicy{Refusals: 2, Within: time.Minute, Bans: []time.Duration{time.Hour}}
	all := ban
	all.PerUser = true
	watched := func(m *metrics.Metrics) core.Store { return m.Watch(memorystore.New(nil)) }
	apart := func(m *metrics.Metrics) core.Store { return m.Watch(separate{memorystore.New(nil)}) }
	inside := func(m *metrics.Metrics) core.Store { return core.Divide(m.Watch(memorystore.New(nil)), 4) }
	peekAtMuch := func(t *testing.T, store core.Store) {
		l := core.Must(core.New(store, perHour(8)))
		for cost := range 10 {
			_, _ = core.PeekAll(t.Context(), l.For("u", "a").Cost(cost))
			_, _ = core.PeekAll(t.Context(), l.For("u", "a").Cost(cost), l.For("v", "b"))
		}
	}
	tests := []struct {
		name  string
		store func(*metrics.Metrics) core.Store
		run   func(t *testing.T, store core.Store)
		want  []string
	}{
		{"several subjects' for the one that binds", watched, func(t *testing.T, store core.Store) {
			user, org := core.Must(core.New(store, perHour(2))), core.Must(core.New(store, core.Funnel(3, core.Every(time.Hour))))
			a, o := user.For("alice", "post"), org.For("org", "any")
			times(3, func() { _, _ = core.All(t.Context(), a, o) })
			_, _ = core.All(t.Context(), user.For("bob", "post"), o.Cost(1))
			_, _ = core.All(t.Context(), user.For("bob", "post"), o.Cost(4))
			_, _ = core.WaitAll(t.Context(), time.Second, user.For("bob", "post"), o)
			_, _ = core.PeekAll(t.Context(), a, o)
			_, _ = core.PeekAll(t.Context(), a, o.Cost(4))
		}, []string{"any funnel:3:1/1h allowed store 1", "any funnel:3:1/1h limited store 2", "post fixed:1h allowed store 2", "post fixed:1h limited store 1"}},
		{"a funnel's", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, core.Funnel(3, core.Every(time.Hour))))
			times(5, func() { _, _ = l.Allow(t.Context(), "u", "like") })
			_, _ = l.AllowN(t.Context(), "v", "like", 2)
			times(2, func() { _, _ = l.Allow(t.Context(), "u", "dislike") })
		}, []string{"dislike funnel:3:1/1h allowed store 2", "like funnel:3:1/1h allowed store 4", "like funnel:3:1/1h limited store 2"}},
		{"a funnel's of all actions, under the action", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, core.Funnel(3, core.Every(time.Hour)).PerUser()))
			for _, action := range []string{"a", "b", "c", "d"} {
				_, _ = l.Allow(t.Context(), "u", action)
			}
		}, []string{"a *:funnel:3:1/1h allowed store 1", "b *:funnel:3:1/1h allowed store 1", "c *:funnel:3:1/1h allowed store 1", "d *:funnel:3:1/1h limited store 1"}},
		{"by the limit that binds", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2), perHour(5).Named("all").PerUser()))
			times(3, func() { _, _ = l.Allow(t.Context(), "u", "a") })
			times(4, func() { _, _ = l.Allow(t.Context(), "u", "b") })
			times(2, func() { _, _ = l.Allow(t.Context(), "u", "c") })
		}, []string{"a fixed:1h allowed store 2", "a fixed:1h limited store 1", "b fixed:1h allowed store 2", "b fixed:1h limited store 2",
			"c *:fixed:1h:all allowed store 1", "c *:fixed:1h:all limited store 1"}},
		{"a cost that can never pass", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2)))
			_, _ = l.AllowN(t.Context(), "u", "a", 3)
			_, _ = l.WaitN(t.Context(), "u", "a", 3)
		}, []string{"a fixed:1h limited store 2"}},
		{"of several subjects the one whose cost can never pass", apart, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2)))
			_, _ = core.All(t.Context(), l.For("u", "a"), l.For("v", "b").Cost(3))
		}, []string{"b fixed:1h limited store 1"}},
		{"a cost above a share", inside, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(8)))
			_, _ = l.AllowN(t.Context(), "u", "a", 3)
			_, _ = l.AllowN(t.Context(), "u", "a", 9)
			_, _ = core.All(t.Context(), l.For("u", "a"), l.For("v", "b").Cost(3))
		}, []string{"a fixed:1h limited store 2", "b fixed:1h limited store 1"}},
		{"and no Peek, whatever the cost", watched, peekAtMuch, nil},
		{"and no Peek of subjects apart", apart, peekAtMuch, nil},
		{"and no Peek of a share", inside, peekAtMuch, nil},
		{"and nothing that decides no action", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.Must(core.New(store, perHour(2))).With(ban, core.Refundable{}))
			_, _ = l.Peek(t.Context(), "u", "a")
			_, _ = l.Status(t.Context(), "u", "a")
			_, _ = l.AllowN(t.Context(), "u", "a", 0)
			_, _ = l.AllowN(t.Context(), "u", "a", -1)
			_, _ = l.Allow(t.Context(), "", "a")
			_, _ = l.Surcharge(t.Context(), "u", "a", 1)
			d, _ := l.Allow(t.Context(), "u", "a")
			_ = l.Refund(t.Context(), d)
			_ = l.Ban(t.Context(), "u", "a", time.Hour)
			_ = l.Unban(t.Context(), "u", "a")
			_ = l.Reset(t.Context(), "u", "a")
		}, []string{"a fixed:1h allowed store 1"}},
		{"and not for a caller who cancels", func(m *metrics.Metrics) core.Store { return m.Watch(leaving{memorystore.New(nil)}) }, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2)))
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), leave{}, leave{}))
			defer cancel()
			_, _ = l.Allow(context.WithValue(ctx, leave{}, cancel), "u", "a")
		}, nil},
		{"a ban's, under the ban", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.Must(core.New(store, perHour(1))).With(ban))
			times(6, func() { _, _ = l.Allow(t.Context(), "u", "a") })
			l = core.Must(core.Must(core.New(store, perHour(1))).With(all))
			times(6, func() { _, _ = l.Allow(t.Context(), "v", "b") })
		}, []string{"a ban banned store 4", "a fixed:1h allowed store 1", "a fixed:1h limited store 1",
			"b *:ban banned store 4", "b fixed:1h allowed store 1", "b fixed:1h limited store 1"}},
		{"a full store's", func(m *metrics.Metrics) core.Store { return m.Watch(memorystore.New(&memorystore.Options{MaxKeys: 1})) }, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(1)))
			times(2, func() { _, _ = l.Allow(t.Context(), "u", "a") })
			_, _ = l.Allow(t.Context(), "v", "a") // by the quota that new users share
			_, _ = l.Allow(t.Context(), "w", "a")
		}, []string{"a fixed:1h allowed store 2", "a fixed:1h full store 1", "a fixed:1h limited store 1"}},
		{"those that find no slot", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(3), core.InFlight(2)))
			times(3, func() { _, _ = l.Allow(t.Context(), "u", "a") })
			d, _ := l.Allow(t.Context(), "v", "a")
			times(3, func() { _ = l.Release(t.Context(), d) })
		}, []string{"a inflight:1m allowed store 3", "a inflight:1m in-flight store 1"}},
		{"a shadow limit's, under that limit", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(100), perHour(50).Named("wide").Shadow(), perHour(5).Named("tight").Shadow()))
			times(7, func() { _, _ = l.Allow(t.Context(), "u", "a") })
		}, []string{"a fixed:1h allowed store 5", "a shadow:fixed:1h:tight shadowed store 2", "a shadow:fixed:1h:tight near 2"}},
		{"a shadow store's", func(m *metrics.Metrics) core.Store { return m.Watch(core.Shadow(memorystore.New(nil))) }, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2)))
			times(3, func() { _, _ = l.Allow(t.Context(), "u", "a") })
		}, []string{"a fixed:1h allowed store 2", "a fixed:1h shadowed store 1"}},
		{"a failing store's", func(m *metrics.Metrics) core.Store {
			s := newFaulty()
			s.down.Store(true)
			return m.Watch(s)
		}, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2), perHour(9).PerUser()))
			times(3, func() { _, _ = l.Allow(t.Context(), "u", "a") })
			times(2, func() { _, _ = l.Wait(t.Context(), "u", "a") })
		}, []string{"a fixed:1h error none 5"}},
		{"FailOpen's", func(m *metrics.Metrics) core.Store {
			s := newFaulty()
			s.down.Store(true)
			return m.Watch(core.FailOpen(s))
		}, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, perHour(2)))
			times(3, func() { _, _ = l.Allow(t.Context(), "u", "a") })
		}, []string{"a fixed:1h allowed none 3"}},
		{"under a label that is valid and not too long", watched, func(t *testing.T, store core.Store) {
			l := core.Must(core.New(store, core.Funnel(9, core.Every(time.Hour))))
			_, _ = l.Allow(t.Context(), "u", "a\xff")
			_, _ = l.Allow(t.Context(), "u", "a\xfe")
			for i := range 3 {
				_, _ = l.Allow(t.Context(), "u", strings.Repeat("é", 200)+fmt.Sprint(i))
			}
		}, []string{"a\uFFFD funnel:9:1/1h allowed store 2", strings.Repeat("é", 100) + " funnel:9:1/1h allowed store 3"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := metrics.New(nil)
			test.run(t, test.store(m))
			expect(t, m, test.want...)
		})
	}
}

// separate is a store that decides about one subject at a time.
type separate struct{ store core.Store }

func (s separate) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	return s.store.Take(ctx, c)
}

func (s separate) Reset(ctx context.Context, user, action string, limits []core.Limit) error {
	return s.store.Reset(ctx, user, action, limits)
}

func TestWaitsAreOneDecision(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit core.Limit
		want  []string
	}{
		{"of a funnel, which reserves", core.Funnel(1, core.Every(time.Second)), []string{"a funnel:1:1/1s allowed store 3", "a funnel:1:1/1s limited store 2"}}, // the fifth is refused before it leaves
		{"of a window, which asks again", core.FixedWindow(1, time.Second), []string{"a fixed:1s allowed store 3", "a fixed:1s limited store 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := metrics.New(nil)
				l := core.Must(core.New(m.Watch(memorystore.New(nil)), test.limit))
				var group sync.WaitGroup
				for i := range 5 {
					ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
					defer cancel()
					group.Go(func() {
						if i == 4 { // leaves
							time.AfterFunc(500*time.Millisecond, cancel)
						}
						_, _ = l.Wait(ctx, "u", "a")
					})
					synctest.Wait()
				}
				if s := m.Snapshot(); len(s.Waiting) != 1 || s.Waiting[0].Action != "a" || s.Waiting[0].Calls < 2 {
					t.Errorf("waiting are %v", s.Waiting)
				}
				group.Wait()
				s := m.Snapshot()
				if s.Waiting[0].Calls != 0 {
					t.Errorf("%v wait when all are answered", s.Waiting)
				}
				if s.Wait.Count != 5 || s.Wait.Sum < 3*time.Second || s.Wait.Sum > 7*time.Second {
					t.Errorf("they waited %+v", s.Wait)
				}
				expect(t, m, test.want...)
			})
		})
	}
}

// A store that answers late lets the deadline of a caller end after it has reserved a turn.
func TestAWaitPastItsDeadlineIsNotAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(nil)
		l := core.Must(core.New(m.Watch(late{memorystore.New(nil)}), core.Funnel(1, core.Every(time.Second))))
		if _, err := l.Allow(t.Context(), "u", "a"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 990*time.Millisecond)
		defer cancel()
		if _, err := l.Wait(ctx, "u", "a"); err == nil {
			t.Fatal("it passes after its deadline")
		}
		for _, d := range m.Snapshot().Decisions {
			if d.Outcome == "error" {
				t.Errorf("it is counted as %+v", d)
			}
		}
	})
}

// late is a store that answers 30 ms after it has decided.
type late struct{ core.Store }

func (s late) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	defer time.Sleep(30 * time.Millisecond)
	return s.Store.Take(ctx, c)
}

func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	m := metrics.New(nil)
	l := core.Must(core.New(m.Watch(panics{memorystore.New(nil)}), core.FixedWindow(1, time.Second)))
	func() {
		defer func() { _ = recover() }()
		_, _ = l.Wait(t.Context(), "u", "a")
	}()
	if s := m.Snapshot(); s.Waiting[0].Calls != 0 {
		t.Errorf("%v wait", s.Waiting)
	}
	expect(t, m)
}

type panics struct{ core.Store }

func (panics) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) { panic("no") }

// foreign is a store that answers without core.Charge.
type foreign struct {
	core.Store
	decision core.Decision
}

func (s foreign) Take(context.Context, core.Charge) (core.Decision, *core.Record, error) {
	return s.decision, nil, nil
}

func TestAnInvalidBindingCountsAsTheFirstLimit(t *testing.T) {
	for _, binding := range []int{-1, 1, 300} {
		m := metrics.New(nil)
		store := m.Watch(foreign{memorystore.New(nil), core.Decision{Allowed: true, Binding: binding, Source: core.SourceStore}})
		_, _ = core.Must(core.New(store, core.FixedWindow(9, time.Hour))).Allow(t.Context(), "u", "a")
		expect(t, m, "a fixed:1h allowed store 1")
	}
}

// leaser is a store with leases.
type leaser struct {
	core.Store
	taken, returned, lost uint64
}

func (l *leaser) Unwrap() core.Store { return l.Store }

func (l *leaser) Leases() (taken, returned, lost uint64) { return l.taken, l.returned, l.lost }

// The units of all stores are added up, of each store once.
func TestLeases(t *testing.T) {
	m := metrics.New(nil)
	a, b := &leaser{memorystore.New(nil), 100, 20, 3}, &leaser{memorystore.New(nil), 7, 0, 1}
	m.Watch(a)
	m.Watch(core.FailOpen(a))
	m.Watch(core.Fallback(memorystore.New(nil), b))
	if got, want := m.Snapshot().Leases, (metrics.Leases{Taken: 107, Returned: 20, Lost: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
