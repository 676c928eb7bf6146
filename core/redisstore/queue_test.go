package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/machine"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// What was not run is an error, of Reset too, whatever the hook says in its place and
// whatever the client is.
func TestACommandThatAHookDropsIsAnError(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	for name, answer := range map[string]func() error{
		"an error": func() error { return errors.New("the breaker is open") },
		"nothing":  func() error { return nil },
		"a panic":  func() error { panic("a hook's") },
	} {
		for client, open := range map[string]func(redis.Hook) redis.UniversalClient{
			"Client": func(h redis.Hook) redis.UniversalClient {
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
				rdb.AddHook(h)
				return rdb
			},
			"Ring": func(h redis.Hook) redis.UniversalClient {
				rdb := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr}})
				rdb.AddHook(h)
				return rdb
			},
		} {
			t.Run(client+" "+name, func(t *testing.T) {
				var on atomic.Bool
				rdb := open(hook(func(_ redis.Cmder, next func() error) error {
					if on.Load() {
						return answer()
					}
					return next()
				}))
				defer rdb.Close()
				store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
				lim := core.Must(core.New(store, kinds[0]))
				who := user + client + name
				for range 3 {
					if _, err := lim.Allow(t.Context(), who, action); err != nil {
						t.Fatal(err)
					}
				}
				on.Store(true)
				together(100, func(i int) {
					discreet(t, lim.Reset(t.Context(), who, action))
					_, err := lim.Allow(t.Context(), fmt.Sprint(who, i), action)
					discreet(t, err)
				})
				on.Store(false)
				if n := charged(t, store, who, kinds[0]); n != 3 {
					t.Errorf("%d are charged, not 3", n)
				}
				idle(t, store)
			})
		}
	}
}

type limiter func()

func (l limiter) Allow() error     { l(); return nil }
func (limiter) ReportResult(error) {}

// The user's own circuit breaker is held to the timeout too, also if a caller could send its
// own call.
func TestTimeoutHoldsForClientsLimiter(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	for _, heeds := range []bool{false, true} {
		var hangs atomic.Bool
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		wait := func() {
			if hangs.Load() {
				hang(release)
			}
		}
		rdb := connect(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: heeds, Limiter: limiter(wait)})
		store := redisstore.New(rdb, nil)
		lim := core.Must(core.New(store, kinds[0]))
		works := func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil }
		within(t, "it works", works)
		idle(t, store)
		hangs.Store(true)
		together(10, func(int) {
			start := time.Now()
			d, err := lim.Allow(t.Context(), user, action)
			if took := time.Since(start); took > 50*time.Millisecond+slack {
				t.Errorf("it took %s", took)
			}
			if !errors.Is(err, redisstore.ErrTimeout) || d != (core.Decision{}) {
				t.Errorf("%+v, %v; not ErrTimeout", d, err)
			}
		})
		free()
		within(t, "it works again", works)
	}
}

// shared is how many charges, of so many limits each, were in the fullest run of the
// script that had key in it.
func shared(commands [][]string, key string, limits int) (most int) {
	for _, c := range commands {
		if slices.Contains(c, key) {
			n := 0
			_, _ = fmt.Sscan(c[2], &n)
			n /= limits
			last := c[len(c)-1]
			if takes(c) {
				last = c[len(c)-2]
			}
			for _, repeats := range strings.Split(last, "*")[1:] {
				_, times, _ := strings.Cut(repeats, ":")
				again, _ := strconv.Atoi(times)
				n += again
			}
			most = max(most, n)
		}
	}
	return most
}

// A charge that fails spoils no other of its run, and charges none of its limits.
func TestOneCorruptStateAmongMany(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	funnel := core.Funnel(5, hourly)
	for s, set := range [][]core.Limit{{funnel}, {funnel.Named("b"), core.FixedWindow(5, time.Hour)}, kinds} {
		lim := core.Must(core.New(store, set...))
		for what, spoil := range map[string]func(key string) error{
			"nonsense":     func(key string) error { return rdb.Set(t.Context(), key, "nonsense", 0).Err() },
			"another type": func(key string) error { return rdb.HSet(t.Context(), key, "a", "b").Err() },
		} {
			const corrupt = 40
			round := 0
			who := func(i int) string { return fmt.Sprint("user ", s, what, round, " ", i) }
			// Chance decides who shares a run, so it is tried until he does.
			within(t, "the corrupt one is among others", func() bool {
				round++
				key := store.Key(who(corrupt), action, set[0])
				if err := spoil(key); err != nil {
					t.Fatal(err)
				}
				proxy.Commands()
				together(64, func(i int) {
					d, err := lim.Allow(t.Context(), who(i), action)
					if i == corrupt {
						if !errors.Is(err, redisstore.ErrState) || d != (core.Decision{}) {
							t.Errorf("%s: %v: %+v, %v; not ErrState", what, set, d, err)
						}
					} else if err != nil || !d.Allowed || d.Remaining != 4 {
						t.Errorf("%s: %v: %+v, %v", what, set, d, err)
					}
				})
				return t.Failed() || shared(proxy.Commands(), key, len(set)) > 2
			})
			for _, l := range set[1:] {
				if n := charged(t, store, who(corrupt), l); n != 0 {
					t.Errorf("%s: %v: of the corrupt one's %v %d are charged", what, set, l, n)
				}
			}
		}
	}
}

// A user who is many times in one run is decided each time after the last.
func TestSameUserManyTimesInARun(t *testing.T) {
	noLeak(t)
	_, proxy := proxied(t)
	store := reliable(t, proxy.Addr)
	sets := [][]core.Limit{kinds}
	for _, l := range kinds {
		sets = append(sets, []core.Limit{l})
	}
	for s, set := range sets {
		lim := core.Must(core.New(store, set...))
		round := 0
		within(t, "he is many times in a run", func() bool {
			round++
			who := fmt.Sprint(user, s, " ", round)
			proxy.Commands()
			var mu sync.Mutex
			var left []int
			together(64, func(int) {
				d, err := lim.Allow(t.Context(), who, action)
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					mu.Lock()
					defer mu.Unlock()
					left = append(left, d.Remaining)
				}
			})
			slices.Sort(left)
			if !slices.Equal(left, []int{0, 1, 2, 3, 4}) {
				t.Errorf("%v: those who passed have %v left", set, left)
			}
			return t.Failed() || shared(proxy.Commands(), store.Key(who, action, set[0]), len(set)) > 5
		})
	}
}

// An encoded charge that is used again is that of an equal charge.
func TestAKeptRequestIsThatOfAnEqualCharge(t *testing.T) {
	store := redisstore.New(redis.NewClient(&redis.Options{}), nil)
	r := rand.New(rand.NewPCG(7, 8))
	var limits [3]core.Limit // in one place, though a limiter's never change
	for range 2000 {
		for i := range limits {
			limits[i] = kinds[r.IntN(2)]
		}
		c := core.Charge{User: user, Action: action, Cost: r.Int64N(2)}.With(core.Terms{
			Limits: limits[:1+r.IntN(3)], Receipt: r.IntN(2) == 0, Ask: machine.Ask{Mode: machine.Mode(r.IntN(5)), Ahead: r.Int64N(2)},
		})
		if !store.Anew(c) {
			t.Fatalf("%+v", c)
		}
	}
}

// Where the client heeds deadlines and nothing is under way, the caller sends its call
// itself: it leaves with the answer, though its context was canceled meanwhile. What comes
// meanwhile is sent by others.
func TestCallerSendsItself(t *testing.T) {
	noLeak(t)
	server, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, plenty))
	if _, err := lim.Peek(t.Context(), user, action); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		idle(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		proxy.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
			proxy.Spoil(nil)
			cancel()
			together(3, func(j int) {
				if d, err := lim.Allow(t.Context(), fmt.Sprint("another", i, j), action); err != nil || !d.Allowed {
					t.Errorf("meanwhile: %+v, %v", d, err)
				}
			})
			return reply, false
		})
		if d, err := lim.Allow(ctx, user, action); err != nil || d.Remaining != plenty.Quota()-i-1 {
			t.Errorf("%+v, %v", d, err)
		}
		cancel()
	}
	if n := charged(t, reliable(t, server.Addr), user, plenty); n != 20 {
		t.Errorf("%d are charged", n)
	}
}
