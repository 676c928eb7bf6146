package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/memorystore"
	"github.com/tailcut/tailcut/core/redisstore"
)

// Processes ask at random, for some units each, and give some back. Replies come late, or are lost after
// Redis has charged. A recount then admits all actions at their instants by the limit as it is declared.
func TestLeaseUnderRandomFaults(t *testing.T) {
	tests := []struct {
		limit core.Limit
		lease time.Duration
	}{
		{core.MovingWindow(300, time.Second), 20 * time.Millisecond},
		{core.MovingWindow(4500, time.Second), 100 * time.Millisecond},
		{core.Funnel(200, core.Per(1000, time.Second)), 20 * time.Millisecond},
		{core.TokenBucket(1000, core.Per(700, time.Second)), 70 * time.Millisecond},
	}
	var passed, leases, lost int // of all limits and seeds: a busy machine changes those of one seed
	for _, test := range tests {
		for seed := range uint64(2) {
			t.Run(fmt.Sprint(test.limit.Leased(test.lease), " ", seed), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					m := newMini(t)
					m.ClockTTL(true)
					defer m.Close()
					var mu sync.Mutex
					var actions []instant
					var wg sync.WaitGroup
					start := time.Now()
					for process := range 3 {
						r := &randomly{Rand: rand.New(rand.NewPCG(seed, uint64(process)))}
						rdb := inBubble(m)
						defer rdb.Close()
						rdb.AddHook(faulty(r))
						lim := core.Must(core.Must(core.New(dated{redisstore.New(rdb, nil)}, test.limit.Leased(test.lease))).With(core.Refundable{}))
						for range 6 {
							wg.Go(func() {
								for time.Since(start) < 3*time.Second {
									if r.one(8) { // the others may take the rest meanwhile
										time.Sleep(time.Duration(r.below(400)) * time.Millisecond)
									}
									time.Sleep(time.Duration(r.below(1+20*(process+1))) * time.Millisecond / 10)
									for range 1 + r.below(10) {
										cost := 1 + r.below(6)
										var at time.Time // by Redis
										d, err := lim.AllowN(context.WithValue(t.Context(), dated{}, &at), user, action, cost)
										if err == nil && d.Allowed && r.one(10) {
											_ = lim.Refund(t.Context(), d)
											d.Allowed = false
										}
										mu.Lock()
										switch {
										case err != nil:
											lost++
										case !d.Allowed:
										case d.Source == core.SourceLease:
											leases++
											actions = append(actions, instant{time.Now(), cost})
										default: // Redis decided before the reply came
											actions = append(actions, instant{at, cost})
										}
										mu.Unlock()
									}
								}
							})
						}
					}
					wg.Wait()
					time.Sleep(time.Minute) // leases end
					slices.SortStableFunc(actions, func(a, b instant) int { return a.at.Compare(b.at) })
					now := start
					declared := core.Must(core.New(memorystore.New(&memorystore.Options{Clock: func() time.Time { return now }}), test.limit))
					units := 0
					for _, a := range actions {
						now = a.at
						d, err := declared.AllowN(t.Context(), user, action, a.cost)
						if err != nil || !d.Allowed {
							t.Fatalf("%d units more at %s: %+v, %v", a.cost, now.Sub(start), d, err)
						}
						units += a.cost
					}
					passed += len(actions)
					t.Logf("%d units in %d actions; of %d actions so far %d by leases, %d errors", units, len(actions), passed, leases, lost)
				})
			})
		}
	}
	if leases < passed/4 || lost < 10 {
		t.Errorf("%d of %d actions by leases, %d errors", leases, passed, lost)
	}
}

// An instant is when an action of some units passed.
type instant struct {
	at   time.Time
	cost int
}

// faulty is a hook that makes some requests and replies late, and loses some replies.
func faulty(r *randomly) hook {
	late := func() {
		if r.one(30) {
			time.Sleep(time.Duration(r.below(80)) * time.Millisecond)
		}
	}
	return func(cmd redis.Cmder, next func() error) error {
		if !strings.HasPrefix(cmd.Name(), "eval") { // it opens a connection
			return next()
		}
		late()
		err := next()
		late()
		if r.one(30) {
			return errors.New("the reply is lost")
		}
		return err
	}
}

// randomly is a source of randomness for many goroutines.
type randomly struct {
	sync.Mutex
	*rand.Rand
}

func (r *randomly) below(n int) int {
	r.Lock()
	defer r.Unlock()
	return r.IntN(n)
}

func (r *randomly) one(of int) bool { return r.below(of) == 0 }

// Redis hangs up and comes back all the time under a leased limit with a fallback. In no period does
// Redis, with what the process has leased, pass more than the limit, nor does the fallback.
func TestLeaseUnderAFallbackThatFlaps(t *testing.T) {
	t.Parallel()
	const quota, period = 100, time.Second
	_, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	store := redisstore.New(rdb, nil)
	limit := core.MovingWindow(quota, period).Leased(100 * time.Millisecond)
	l := core.Must(core.New(core.Fallback(store, memorystore.New(nil)), limit))
	if _, err := l.Allow(t.Context(), "another", action); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shared, own []leaseAction
	leased := 0
	end := time.Now().Add(4 * time.Second)
	var flaps sync.WaitGroup
	flaps.Go(func() {
		for down := true; time.Now().Before(end); down = !down {
			if down {
				lose := rand.N(2) == 0
				proxy.Spoil(func([]string, []byte) ([]byte, bool) { return nil, !lose })
			} else {
				proxy.Spoil(nil)
			}
			time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
		}
	})
	together(8, func(int) {
		for time.Now().Before(end) {
			a := leaseAction{Start: nanotime()}
			d, err := l.Allow(t.Context(), user, action)
			a.End = nanotime()
			mu.Lock()
			switch {
			case err != nil:
				t.Error(err)
			case d.Allowed && d.Source == core.SourceFallback:
				own = append(own, a)
			case d.Allowed:
				shared = append(shared, a)
				if d.Source == core.SourceLease {
					leased++
				}
			}
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	})
	flaps.Wait()
	proxy.Spoil(nil)
	for name, actions := range map[string][]leaseAction{"Redis": shared, "the fallback": own} {
		if n := crowded(actions, period); n > quota {
			t.Errorf("by %s %d passed in a period", name, n)
		}
	}
	t.Logf("%d passed by Redis, %d of them leased, and %d by the fallback", len(shared), leased, len(own))
	if leased == 0 || len(own) == 0 {
		t.Error("the lease or the fallback has decided nothing")
	}
}

// dated tells the instant of each record, in what its type is the context key of.
type dated struct{ *redisstore.Store }

func (s dated) Take(ctx context.Context, c core.Charge) (core.Decision, *core.Record, error) {
	d, r, err := s.Store.Take(ctx, c)
	if at, ok := ctx.Value(dated{}).(*time.Time); ok && r != nil {
		*at = time.UnixMicro(r.At)
	}
	return d, r, err
}
