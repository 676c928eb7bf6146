//go:build !race

package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// Ten thousand attempts a second for ten seconds cost two commands a second at most, and
// each is answered as if all were asked for.
func TestAbuseCostsLittle(t *testing.T) {
	for _, tc := range []struct {
		name    string
		limits  []core.Limit
		options []core.Option
	}{
		{"SlidingWindow", []core.Limit{core.SlidingWindow(5, 7*time.Second)}, nil},
		{"MovingWindow", []core.Limit{core.MovingWindow(5, 7*time.Second)}, nil},
		{"FixedWindow", []core.Limit{core.FixedWindow(5, 7*time.Second)}, nil},
		{"TokenBucket", []core.Limit{core.TokenBucket(5, core.Per(7, 40*time.Second))}, nil},
		{"Initial", []core.Limit{core.TokenBucket(5, core.Per(7, 40*time.Second)).Initial(2)}, nil},
		{"Funnel", []core.Limit{core.Funnel(5, core.Per(7, 40*time.Second))}, nil},
		{"several limits", []core.Limit{core.MovingWindow(1, 3*time.Second), core.Funnel(2, core.Per(3, 40*time.Second)), core.FixedWindow(200, time.Hour)}, nil},
		{"beside InFlight", []core.Limit{core.FixedWindow(5, 7*time.Second), core.InFlight(50)}, nil},
		{"receipts", []core.Limit{core.FixedWindow(5, 7*time.Second)}, []core.Option{core.Refundable{}}},
		{"a ban", []core.Limit{core.ElasticWindow(5, 7*time.Second)}, []core.Option{hammered}},
		{"bans by hand", []core.Limit{core.FixedWindow(5, 7*time.Second)}, []core.Option{core.BanPolicy{}}},
		{"a ban by several limits", []core.Limit{core.FixedWindow(5, 7*time.Second), core.Funnel(4, core.Per(7, 40*time.Second))}, []core.Option{hammered}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inDuo(t, func(w *duo) {
				ask := w.both(tc.limits, tc.options)
				for ask(w.allow).Allowed {
				}
				w.sent.Store(0)
				cached := 0
				pause := time.Millisecond
				if tc.name == "Funnel" { // for all it takes long
					pause /= 10
				}
				for range 10 * time.Second / pause {
					time.Sleep(pause)
					if ask(w.allow).Source == core.SourceCache {
						cached++
					}
				}
				if n := w.sent.Load(); n > 20 || n < 10 || cached < 9_900 {
					t.Errorf("%d commands in ten seconds, %d answers from here", n, cached)
				}
			})
		})
	}
}

// Of five thousand attempts in a second, which other actions in progress refuse, a few reach Redis. An attempt passes
// at once when this process has released a slot, and in time when another one has.
func TestAttemptsWithoutASlotCostLittle(t *testing.T) {
	for _, tc := range []struct {
		name    string
		limits  []core.Limit
		options []core.Option
	}{
		{"alone", []core.Limit{core.InFlight(2)}, nil},
		{"per user", []core.Limit{core.InFlight(2).PerUser()}, nil},
		{"beside windows", []core.Limit{core.FixedWindow(100, time.Hour), core.InFlight(2), core.ElasticWindow(100, time.Hour)}, nil},
		{"with a BanPolicy", []core.Limit{core.InFlight(2)}, []core.Option{hammered}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inDuo(t, func(w *duo) {
				ask := w.both(tc.limits, tc.options)
				lim := w.limiter(w.store, tc.limits, tc.options...)
				other := w.limiter(redisstore.New(w.rdb, nil), tc.limits, tc.options...)
				mine, others := allow(w, lim), allow(w, other)
				w.sent.Store(0)
				for range 5000 {
					if d := allow(w, lim); d.Allowed || d.Reason != core.ReasonInFlight || d.RetryAfter < 50*time.Second {
						w.Fatalf("%+v", d)
					}
					time.Sleep(time.Second / 5000)
				}
				if n := w.sent.Load(); n > 200 || n < 20 {
					w.Errorf("%d commands", n)
				}
				if err := lim.Release(w.Context(), mine); err != nil {
					w.Fatal(err)
				}
				mine = allow(w, lim)
				if allow(w, lim); !mine.Allowed {
					w.Errorf("after a release by this process: %+v", mine)
				}
				if err := other.Release(w.Context(), others); err != nil {
					w.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				if d := allow(w, lim); !d.Allowed {
					w.Errorf("10 ms after a release by another process: %+v", d)
				}
				if err := lim.Reset(w.Context(), user, action); err != nil {
					w.Fatal(err)
				}
				for range 500 { // as memorystore, which is asked every time
					ask(w.allow)
					time.Sleep(time.Second / 5000)
				}
			})
		})
	}
}

// So do few attempts in a ban, while an action of the user is in progress.
func TestAttemptsInABanCostLittleWhileASlotIsTaken(t *testing.T) {
	inDuo(t, func(w *duo) {
		ask := w.both([]core.Limit{core.InFlight(2), core.FixedWindow(1, time.Hour)}, []core.Option{hammered})
		for ask(w.allow).Reason != core.ReasonBanned {
		}
		w.sent.Store(0)
		for range 5000 {
			if d := ask(w.allow); d.Reason != core.ReasonBanned {
				w.Fatalf("%+v", d)
			}
			time.Sleep(time.Second / 5000)
		}
		if n := w.sent.Load(); n > 200 {
			w.Errorf("%d commands", n)
		}
	})
}

// In a ban other limits bind as time goes on.
func TestRepeatedBansNameTheLimitThatBinds(t *testing.T) {
	for _, limits := range [][]core.Limit{
		{core.FixedWindow(3, 1200*time.Millisecond), core.Funnel(2, core.Every(400*time.Millisecond))},
		{core.SlidingWindow(4, 2*time.Second), core.FixedWindow(2, 600*time.Millisecond)},
		{core.SlidingWindow(2, 2*time.Second)},
		{core.TokenBucket(3, core.Every(400*time.Millisecond)).Initial(2)},
	} {
		t.Run(fmt.Sprint(limits), func(t *testing.T) {
			inDuo(t, func(w *duo) {
				ask := w.both(limits, []core.Option{core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{5 * time.Second}}})
				repeated := 0
				for range 530 {
					if ask(w.allow).Source == core.SourceCache {
						repeated++
					}
					time.Sleep(10 * time.Millisecond)
				}
				if repeated < 50 {
					t.Errorf("%d were answered from here", repeated)
				}
			})
		})
	}
}

// The store always asks Redis in these cases.
func TestWhatIsNeverCached(t *testing.T) {
	elastic, funnel := core.ElasticWindow(2, time.Minute), core.Funnel(2, core.Every(time.Minute))
	one := func(l *core.Limiter, ctx context.Context) (core.Decision, error) { return l.Allow(ctx, user, action) }
	for _, tc := range []struct {
		name    string
		limits  []core.Limit
		options []core.Option
		ask     func(l *core.Limiter, ctx context.Context) (core.Decision, error)
	}{
		{"an ElasticWindow records what it refuses", []core.Limit{elastic}, nil, one},
		{"so does CountRefused", []core.Limit{core.SlidingWindow(2, time.Minute).CountRefused()}, nil, one},
		{"among other limits, too", []core.Limit{core.FixedWindow(1, time.Hour), elastic}, nil, one},
		{"and as a shadow", []core.Limit{funnel, core.ElasticWindow(1, time.Minute).Shadow()}, nil, one},
		{"a ban policy counts refusals", []core.Limit{funnel}, []core.Option{core.BanPolicy{Refusals: 100, Within: time.Hour, Bans: []time.Duration{time.Hour}}}, one},
		{"a slot of several may be released", []core.Limit{core.InFlight(3)}, nil, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			return l.AllowN(ctx, user, action, 2)
		}},
		{"beside InFlight, too", []core.Limit{core.ElasticWindow(2, time.Minute), core.InFlight(2)}, nil, one},
		{"something may be left", []core.Limit{core.Funnel(3, core.Every(time.Minute))}, nil, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			return l.AllowN(ctx, user, action, 2)
		}},
		{"a Peek is a look at the state", []core.Limit{funnel}, nil, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			if d, err := l.Allow(ctx, user, action); err != nil || d.Source == core.SourceStore {
				return d, err
			}
			return l.Peek(ctx, user, action)
		}},
		{"what can never pass is a Peek", []core.Limit{funnel}, nil, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			return l.AllowN(ctx, user, action, 3)
		}},
		{"a wait may have its turn", []core.Limit{funnel}, nil, func(l *core.Limiter, ctx context.Context) (core.Decision, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			return l.Wait(ctx, user, action)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inDuo(t, func(w *duo) {
				ask := w.both(tc.limits, tc.options)
				for range 50 {
					d := ask(func(l *core.Limiter) (core.Decision, error) { return tc.ask(l, w.Context()) })
					if d.Source != core.SourceStore {
						t.Fatalf("%+v", d)
					}
					time.Sleep(time.Millisecond)
				}
			})
		})
	}
}

// A bucket with Initial does not fill before its first action, so its wait does not shorten
// while a ban from another action lasts.
func TestABanBeforeTheFirstAction(t *testing.T) {
	inDuo(t, func(w *duo) {
		ask := w.both([]core.Limit{core.TokenBucket(10, core.Every(time.Second)).Initial(1)}, []core.Option{core.BanPolicy{
			Refusals: 100, Within: time.Hour, Bans: []time.Duration{time.Hour}, PerUser: true,
		}})
		ask(func(l *core.Limiter) (core.Decision, error) {
			return core.Decision{}, l.Ban(w.Context(), user, "another", 2*time.Second)
		})
		for range 4 {
			ask(func(l *core.Limiter) (core.Decision, error) { return l.AllowN(w.Context(), user, action, 5) })
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// An action that a larger PerUser window admits lengthens the wait of the user's other actions for a
// smaller one.
func TestAnAdmissionEndsThePerUserRefusalOfAnotherAction(t *testing.T) {
	inDuo(t, func(w *duo) {
		small, large := w.both([]core.Limit{core.SlidingWindow(1, 10*time.Second).PerUser()}, nil), w.both([]core.Limit{core.SlidingWindow(2, 10*time.Second).PerUser()}, nil)
		for small(w.allow).Source != core.SourceCache {
		}
		time.Sleep(100 * time.Millisecond)
		if d := large(func(l *core.Limiter) (core.Decision, error) { return l.Allow(w.Context(), user, "another") }); !d.Allowed {
			w.Fatalf("%+v", d)
		}
		small(w.allow)
	})
}

func TestACanceledCallerGetsNoRefusal(t *testing.T) {
	inDuo(t, func(w *duo) {
		l := spent(w, w.store)
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		c := core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: l.Limits()}}
		for _, from := range []core.Source{core.SourceStore, core.SourceCache} {
			if d, _, err := w.store.Take(w.Context(), c); err != nil || d.Source != from {
				t.Errorf("%+v, %v", d, err)
			}
		}
		if d, _, err := w.store.Take(ctx, c); err != context.Canceled || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// Whoever calls a store can make new terms for each charge.
func TestEachChargeCanHaveItsOwnTerms(t *testing.T) {
	inDuo(t, func(w *duo) {
		take := func(max int) (d, want core.Decision, err error) {
			limits := []core.Limit{core.SlidingWindow(max, 10*time.Second)}
			c := core.Charge{User: user, Action: action, Cost: 1, Terms: &core.Terms{Limits: limits}}
			d, _, err = w.store.Take(w.Context(), c)
			want, _, _ = w.memory.Take(w.Context(), c)
			want.Source = d.Source
			return d, want, err
		}
		for i, max := range []int{1, 1, 5, 1, 5} {
			if d, want, err := take(max); err != nil || d != want {
				t.Errorf("%d: %+v, %v\nwant %+v", i, d, err, want)
			}
		}
		time.Sleep(9500 * time.Millisecond)
		_, _, _ = take(1)
		w.around(func(_ redis.Cmder, next func() error) error { return errors.Join(next(), errors.New("lost")) })
		if _, want, err := take(5); err == nil || !want.Allowed { // delays the others
			t.Errorf("%+v, %v", want, err)
		}
		w.around(nil)
		if d, want, err := take(1); err != nil || d != want {
			t.Errorf("%+v, %v\nwant %+v", d, err, want)
		}
	})
}

func TestCachedRefusalsDoNotAllocate(t *testing.T) {
	store := redisstore.New(connect(t, &redis.Options{Addr: closed}), nil)
	store.SetClock(func() time.Duration { return 0 })
	c := chargeOf(1, core.Funnel(2, core.Every(time.Minute)))
	store.Deny(c)
	if n := testing.AllocsPerRun(100, func() {
		if d, _, err := store.Take(context.Background(), c); err != nil || d.Source != core.SourceCache {
			t.Errorf("%+v, %v", d, err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A panic of Options.Tag in a charge that can end refusals, which net/http recovers, does not end the cache for its user.
func TestAfterAPanicRefusalsAreKept(t *testing.T) {
	fails := true
	store := offline(t, &redisstore.Options{Tag: func(string) string {
		if fails {
			panic("a bug")
		}
		return ""
	}})
	store.SetClock(func() time.Duration { return 0 })
	lim := core.Must(core.New(store, core.Funnel(2, core.Every(time.Minute))))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = lim.Surcharge(t.Context(), user, action, 1)
	}()
	fails = false
	c := chargeOf(1, core.Funnel(2, core.Every(time.Minute)))
	store.Deny(c)
	if d, _, err := store.Take(t.Context(), c); err != nil || d.Source != core.SourceCache {
		t.Errorf("%+v, %v", d, err)
	}
}

// By clocks that run, as soon as Redis says that an action would pass, it passes.
func TestTheCacheRefusesNobodyWhoWouldPass(t *testing.T) {
	store := reliable(t, redistest.Start(t).Addr)
	for _, l := range []core.Limit{
		core.SlidingWindow(2, 13*time.Millisecond), core.MovingWindow(2, 13*time.Millisecond), core.FixedWindow(2, 13*time.Millisecond),
		core.TokenBucket(2, core.Every(7*time.Millisecond)), core.Funnel(2, core.Every(7*time.Millisecond)), core.Funnel(1, core.Every(2*time.Millisecond)).Named("quick"),
	} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			t.Parallel()
			lim, who := core.Must(core.New(store, l)), fmt.Sprint(user, l) // the charges of one user end each other's refusals
			cached := 0
			for start := time.Now(); time.Since(start) < 500*time.Millisecond || cached < 100 && time.Since(start) < patient; {
				would, err1 := lim.Peek(t.Context(), who, action)
				d, err2 := lim.Allow(t.Context(), who, action)
				if err1 != nil || err2 != nil || would.Allowed && !d.Allowed {
					t.Fatalf("%+v, %v\n%+v, %v", would, err1, d, err2)
				}
				if d.Source == core.SourceCache {
					cached++
				}
			}
			if cached < 100 {
				t.Errorf("%d were refused from here", cached)
			}
		})
	}
}
