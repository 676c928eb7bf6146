package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

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

// If the same Store changes the state, the store asks again at once.
func TestOwnChangesEndRefusals(t *testing.T) {
	ctx := context.Background()
	five := core.Funnel(5, core.Every(time.Minute))
	once := []core.Limit{core.FixedWindow(1, time.Minute)}
	ofUser := core.BanPolicy{Refusals: 1, Within: time.Minute, Bans: []time.Duration{2 * time.Hour}, PerUser: true}
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
		{"a ban of the user for another action", func(w *duo, s core.Store) *core.Limiter {
			_, _ = w.limiter(s, once, ofUser).Allow(ctx, user, "another action")
			l := w.limiter(s, []core.Limit{core.InFlight(1).Lease(time.Hour)}, core.Refundable{}, ofUser)
			allow(w, l)
			return l
		}, func(w *duo, s core.Store, _ *core.Limiter) error {
			_, err := w.limiter(s, once, ofUser).Allow(ctx, user, "another action")
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

// A change by another process, or an outage, is noticed within a second: here an outage.
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
