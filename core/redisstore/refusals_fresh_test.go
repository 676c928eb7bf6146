//go:build !race

package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
)

// Whatever is done in between, the answers are those of a store that is asked every
// time.
func TestCachedRefusalsEqualFreshOnes(t *testing.T) {
	t.Parallel()
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
