package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
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
				if tc.name == "Funnel" { // for all, or it takes long under -race
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

// What may not be repeated is asked for every time.
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

// Whatever is done in between, the answers are those of a store that is asked every
// time.
func TestCachedRefusalsEqualFreshOnes(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inDuo(t, func(w *duo) { hammer(w, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

func hammer(w *duo, r *rand.Rand) {
	second := func(n int) []core.Limit { // of so much, in all states
		return allKinds(w, []core.Limit{
			core.CalendarWindow(n, core.Minute, nil), core.InFlight(n).Lease(time.Second),
			core.SlidingWindow(n, time.Second), core.MovingWindow(n, 3*time.Second), core.FixedWindow(n, 2*time.Second),
			core.TokenBucket(n, core.Per(7, 11*time.Second)), core.TokenBucket(n, core.Per(3, time.Second)).Named("i").Initial(1),
			core.Funnel(n, core.Per(3, 2*time.Second)), core.Throttle(n, core.Per(7, 2*time.Second)).Named("t"),
			core.SlidingWindow(n, time.Second).CountRefused(), core.ElasticWindow(n, 300*time.Millisecond),
		})
	}
	policy := core.BanPolicy{Refusals: 3, Within: time.Second, Bans: []time.Duration{700 * time.Millisecond, 3 * time.Second}, ForgetAfter: 5 * time.Second}
	total, cached := 0, 0
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		// Limiters of the same states by other numbers.
		var ask []func(func(*core.Limiter) (core.Decision, error)) core.Decision
		var punished []bool
		which := r.Perm(9)[:1+r.IntN(3)]
		if r.IntN(4) == 0 {
			which[0] = 9 + r.IntN(2)
		}
		for range 3 {
			all := second(1 + r.IntN(4))
			var limits []core.Limit
			for _, i := range which {
				limits = append(limits, all[i])
			}
			if r.IntN(4) == 0 {
				limits = append(limits, all[r.IntN(len(all))].Shadow())
			}
			var options []core.Option
			if r.IntN(2) == 0 {
				options = append(options, policy)
			}
			punished = append(punished, len(options) > 0)
			if r.IntN(2) == 0 {
				options = append(options, core.Refundable{})
			}
			ask = append(ask, w.both(limits, options))
		}
		var passed []map[*core.Limiter]core.Decision
		last, i := core.Decision{}, 0
		ctx, who := w.Context(), fmt.Sprint(user, r.Uint64())
		for range 400 {
			switch r.IntN(12) {
			case 0:
				time.Sleep(time.Duration(r.IntN(1_500_000)) * time.Microsecond)
			case 1:
				time.Sleep(min(last.RetryAfter, time.Minute))
			case 2:
				time.Sleep(max(0, min(last.RetryAfter, time.Minute)-time.Microsecond))
			case 3:
				i = r.IntN(len(ask))
			default:
				time.Sleep(time.Duration(r.IntN(60_000)) * time.Microsecond)
			}
			ahead := map[*core.Limiter]core.Decision{}
			do := func(what func(l *core.Limiter) (core.Decision, error)) {
				last = ask[i](what)
			}
			none := core.Decision{}
			switch op := r.IntN(60); {
			case op == 0:
				do(func(l *core.Limiter) (core.Decision, error) { return none, l.Reset(ctx, who, action) })
			case op == 1:
				do(func(l *core.Limiter) (core.Decision, error) { return l.Surcharge(ctx, who, action, 2) })
			case op == 2 && punished[i]:
				do(func(l *core.Limiter) (core.Decision, error) {
					return none, l.Ban(ctx, who, action, 400*time.Millisecond)
				})
			case op == 3 && punished[i]:
				do(func(l *core.Limiter) (core.Decision, error) { return none, l.Unban(ctx, who, action) })
			case op < 7:
				do(func(l *core.Limiter) (core.Decision, error) { return l.Peek(ctx, who, action) })
			case op < 12 && len(passed) > 0:
				back, actual := passed[r.IntN(len(passed))], max(0, r.IntN(12)-4)
				for l, d := range back {
					if err := l.Settle(ctx, d, actual); err != nil && err != core.ErrNoReceipt {
						w.Fatal(err)
					}
				}
			default:
				cost := 1
				if op < 20 {
					cost = r.IntN(4)
				}
				do(func(l *core.Limiter) (core.Decision, error) {
					d, err := l.AllowN(ctx, who, action, cost)
					if ahead[l] = d; d.Source == core.SourceCache {
						cached++
					}
					total++
					return d, err
				})
				if last.Allowed && cost > 0 {
					passed = append(passed, ahead)
				}
			}
		}
	}
	if cached < total/2/20 {
		w.Errorf("%d of %d were answered from here", cached, total/2)
	}
	w.Logf("%d of %d were answered from here", cached, total/2)
}

// spent is a limiter of two a minute, of which nothing is left.
func spent(w *duo, s core.Store) *core.Limiter {
	w.Helper()
	l := w.limiter(s, []core.Limit{core.FixedWindow(2, time.Minute)})
	w.exhaust(l)
	return l
}

func TestWithoutARefusalCacheRedisDecidesEveryAttempt(t *testing.T) {
	inDuo(t, func(w *duo) {
		store := redisstore.New(w.rdb, &redisstore.Options{Timeout: patient, NoRefusalCache: true, NoFunctions: true})
		l := core.Must(core.New(store, core.SlidingWindow(1, time.Minute)))
		for i := range 4 {
			d, err := l.Allow(w.Context(), "u", action)
			if err != nil || d.Allowed != (i == 0) || d.Source != core.SourceStore {
				w.Errorf("attempt %d: %+v, %v", i, d, err)
			}
		}
		if n := w.sent.Load(); n != 4 {
			w.Errorf("%d commands for 4 attempts", n)
		}
	})
}

// A refusal is repeated for a second from when it was asked for. Before that is over
// one caller asks again, and the others are answered from here.
func TestOneCallerAsksAgain(t *testing.T) {
	inDuo(t, func(w *duo) {
		start := time.Now()
		l := spent(w, w.store)
		release := make(chan struct{})
		w.around(func(_ redis.Cmder, next func() error) error {
			<-release
			return next()
		})
		w.sent.Store(0)
		repeated := func() {
			w.Helper()
			left := time.Minute - time.Since(start).Truncate(time.Microsecond)
			want := core.Decision{Limit: 2, RetryAfter: left, ResetAfter: left, Reason: core.ReasonLimited, Source: core.SourceCache}
			if d := allow(w, l); d != want {
				t.Errorf("after %s: %+v", time.Since(start), d)
			}
		}
		var wg sync.WaitGroup
		ask := func() {
			wg.Go(func() { allow(w, l) })
			synctest.Wait()
		}
		time.Sleep(750*time.Millisecond - time.Nanosecond)
		repeated()
		if w.sent.Load() != 0 {
			t.Error("it was asked for again at once")
		}
		time.Sleep(time.Nanosecond)
		ask()
		for time.Since(start) < time.Second {
			repeated()
			time.Sleep(10 * time.Millisecond)
		}
		if w.sent.Load() != 1 {
			t.Errorf("%d asked again before it was over", w.sent.Load())
		}
		ask()
		if w.sent.Load() != 2 {
			t.Errorf("%d asked in all", w.sent.Load())
		}
		close(release)
		wg.Wait()
	})
}

// However long the way, nobody is refused who would pass, and nobody is told to come
// too early.
func TestCachedRefusalsOverASlowNetwork(t *testing.T) {
	inDuo(t, func(w *duo) {
		const there, back, period = 30 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond
		w.around(func(_ redis.Cmder, next func() error) error {
			time.Sleep(there)
			err := next()
			time.Sleep(back)
			return err
		})
		l := w.limiter(w.store, []core.Limit{core.FixedWindow(1, period)})
		allow(w, l)
		free := time.Now().Add(period - back)
		sent := time.Now()
		told := allow(w, l).RetryAfter
		got := time.Now()
		if told != free.Sub(got)+back {
			t.Fatalf("told %s", told)
		}
		// By its own clock, which may be a thousandth slow or fast, it is not over.
		last := sent.Add(told - told/1000 - time.Microsecond)
		for ; time.Until(last) > 0; time.Sleep(min(time.Until(last), 7*time.Millisecond)) {
			if d := allow(w, l); d.Allowed || d.Source != core.SourceCache || d.RetryAfter != told-time.Since(got).Truncate(time.Microsecond) {
				t.Fatalf("%s before it is free: %+v", time.Until(free), d)
			}
		}
		if d := allow(w, l); d.Source != core.SourceStore {
			t.Errorf("%s before it is free: %+v", time.Until(free), d)
		}
	})
}

// What this process does is seen at once.
func TestOwnChangesEndRefusals(t *testing.T) {
	ctx := context.Background()
	five := core.Funnel(5, core.Every(time.Minute))
	funnels := func(w *duo, store core.Store) *core.Limiter {
		l := w.limiter(store, []core.Limit{five}, core.Refundable{}, core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{time.Hour}})
		w.exhaust(l)
		return l
	}
	for _, tc := range []struct {
		name   string
		start  func(w *duo, store core.Store) *core.Limiter // refused
		change func(w *duo, store core.Store, l *core.Limiter) error
	}{
		{"Reset", spent, func(w *duo, _ core.Store, l *core.Limiter) error { return l.Reset(ctx, user, action) }},
		{"Reset by another limiter", spent, func(w *duo, s core.Store, _ *core.Limiter) error {
			return w.limiter(s, []core.Limit{core.FixedWindow(7, time.Minute), five}).Reset(ctx, user, action)
		}},
		{"Unban", funnels, func(w *duo, _ core.Store, l *core.Limiter) error { return l.Unban(ctx, user, action) }},
		{"a shorter ban", funnels, func(w *duo, _ core.Store, l *core.Limiter) error {
			return l.Ban(ctx, user, action, time.Millisecond)
		}},
		{"the same ban again", funnels, func(w *duo, _ core.Store, l *core.Limiter) error {
			if err := l.Ban(ctx, user, action, 2*time.Minute); err != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond)
			return l.Ban(ctx, user, action, 2*time.Minute)
		}},
		{"Refund", func(w *duo, s core.Store) *core.Limiter { return w.limiter(s, []core.Limit{five}, core.Refundable{}) }, func(w *duo, _ core.Store, l *core.Limiter) error {
			d, err := l.AllowN(ctx, user, action, 4)
			if err == nil && !allow(w, l).Allowed {
				err = l.Refund(ctx, d)
			}
			return err
		}},
		{"Settle for less", func(w *duo, s core.Store) *core.Limiter { return w.limiter(s, []core.Limit{five}, core.Refundable{}) }, func(w *duo, _ core.Store, l *core.Limiter) error {
			d, err := l.AllowN(ctx, user, action, 4)
			if err == nil && !allow(w, l).Allowed {
				err = l.Settle(ctx, d, 1)
			}
			return err
		}},
		{"Settle for more", func(w *duo, s core.Store) *core.Limiter { return w.limiter(s, []core.Limit{five}, core.Refundable{}) }, func(w *duo, _ core.Store, l *core.Limiter) error {
			d, err := l.AllowN(ctx, user, action, 4)
			if err == nil && !allow(w, l).Allowed {
				err = l.Settle(ctx, d, 7)
			}
			return err
		}},
		{"Surcharge", func(w *duo, s core.Store) *core.Limiter {
			l := w.limiter(s, []core.Limit{five, core.FixedWindow(6, time.Minute)})
			w.exhaust(l)
			return l
		}, func(w *duo, _ core.Store, l *core.Limiter) error {
			_, err := l.Surcharge(ctx, user, action, 1)
			return err
		}},
		{"a larger quota", spent, func(w *duo, s core.Store, l *core.Limiter) error {
			*l = *w.limiter(s, []core.Limit{core.FixedWindow(3, time.Minute)})
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inDuo(t, func(w *duo) {
				var got [2][]core.Decision
				for i, s := range []core.Store{w.store, w.memory} {
					l := tc.start(w, s)
					time.Sleep(time.Millisecond)
					got[i] = append(got[i], anyones(allow(w, l)))
					if err := tc.change(w, s, l); err != nil {
						t.Fatal(err)
					}
					got[i] = append(got[i], anyones(allow(w, l)))
				}
				if fmt.Sprint(got[0]) != fmt.Sprint(got[1]) {
					t.Errorf("before and after:\n%+v, asked every time\n%+v", got[0], got[1])
				}
			})
		})
	}
}

// An answer that was under way when things changed is not repeated.
func TestAnswersOvertakenByAChange(t *testing.T) {
	// held has the next commands of that name wait, after they are run, for what is
	// returned.
	held := func(w *duo, name string) (release func()) {
		let := make(chan struct{})
		w.around(func(cmd redis.Cmder, next func() error) error {
			if cmd.Name() != name {
				return next()
			}
			err := next()
			<-let
			return err
		})
		return func() { w.around(nil); close(let); synctest.Wait() }
	}
	passes := func(w *duo, l *core.Limiter) {
		w.Helper()
		if d := allow(w, l); !d.Allowed {
			w.Errorf("refused: %+v", d)
		}
	}
	full := func(w *duo, quota int) *core.Limiter {
		l := w.limiter(w.store, []core.Limit{core.Funnel(quota, core.Every(time.Minute))})
		if d, err := l.AllowN(w.Context(), user, action, quota); err != nil || !d.Allowed {
			w.Fatalf("%+v, %v", d, err)
		}
		return l
	}
	aside := func(do func()) {
		go do()
		synctest.Wait()
	}

	t.Run("by a Reset", func(t *testing.T) {
		inDuo(t, func(w *duo) {
			l := full(w, 2)
			release := held(w, "evalsha")
			aside(func() { allow(w, l) })
			if err := l.Reset(w.Context(), user, action); err != nil {
				t.Error(err)
			}
			release()
			passes(w, l)
		})
	})
	t.Run("while a Reset is under way", func(t *testing.T) {
		inDuo(t, func(w *duo) {
			l := full(w, 2)
			first := held(w, "evalsha")
			aside(func() { allow(w, l) }) // refused
			second := held(w, "del")
			aside(func() { _ = l.Reset(w.Context(), user, action) }) // done
			first()
			passes(w, l)
			second()
		})
	})
	t.Run("by a Reset that has failed, and is done later", func(t *testing.T) {
		inDuo(t, func(w *duo) {
			l := full(w, 2)
			w.around(func(cmd redis.Cmder, next func() error) error {
				if cmd.Name() == "del" {
					return context.DeadlineExceeded
				}
				return next()
			})
			if err := l.Reset(w.Context(), user, action); err == nil {
				t.Error("no error")
			}
			w.exhaust(l)
			time.Sleep(time.Second - time.Nanosecond)
			w.exhaust(l)
			w.server.FlushAll()
			passes(w, l)
			w.exhaust(l)
			time.Sleep(time.Nanosecond)
			w.exhaust(l)
			if d := allow(w, l); d.Source != core.SourceCache {
				t.Errorf("a second later: %+v", d)
			}
		})
	})
}

// What others do, and what Redis forgets, is seen within a second.
func TestWhatHappensElsewhereIsSeenSoon(t *testing.T) {
	for name, happens := range map[string]func(w *duo) error{
		"another process resets": func(w *duo) error {
			return w.limiter(redisstore.New(w.rdb, nil), []core.Limit{core.FixedWindow(2, time.Minute)}).Reset(w.Context(), user, action)
		},
		"Redis is empty":                    func(w *duo) error { w.server.FlushAll(); return nil },
		"its clock steps by more than that": func(w *duo) error { w.server.SetTime(time.Now().Add(time.Hour)); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inDuo(t, func(w *duo) {
				l := spent(w, w.store)
				for range 1000 {
					time.Sleep(time.Millisecond)
					allow(w, l)
				}
				if err := happens(w); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				for !allow(w, l).Allowed && time.Since(start) <= time.Second {
					time.Sleep(time.Millisecond)
				}
				if time.Since(start) >= time.Second {
					t.Errorf("not within %s", time.Since(start))
				}
				if d := allow(w, l); !d.Allowed {
					t.Errorf("and then: %+v", d)
				}
			})
		})
	}
}

// Redis's absence shows within a second.
func TestRefusalsDoNotOutliveRedis(t *testing.T) {
	inDuo(t, func(w *duo) {
		l := spent(w, w.store)
		start := time.Now()
		w.around(func(redis.Cmder, func() error) error { return context.DeadlineExceeded })
		failed := 0
		for range 1000 {
			if _, err := l.Allow(w.Context(), user, action); err != nil {
				failed++
			}
			time.Sleep(time.Millisecond)
		}
		if failed != 1 {
			t.Errorf("%d calls failed in the first second, not the one that asked again", failed)
		}
		if _, err := l.Allow(w.Context(), user, action); err == nil {
			t.Errorf("an answer after %s", time.Since(start))
		}
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
			lim := core.Must(core.New(store, l))
			cached := 0
			for start := time.Now(); time.Since(start) < 500*time.Millisecond || cached < 100 && time.Since(start) < patient; {
				would, err1 := lim.Peek(t.Context(), user, action)
				d, err2 := lim.Allow(t.Context(), user, action)
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
