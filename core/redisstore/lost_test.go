package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// takes reports whether a command is a charge that may take a slot.
func takes(command []string) bool { return strings.HasPrefix(command[len(command)-1], "=") }

// once is a fault of the first reply to a charge that may take a slot.
func once(hangUp bool) redistest.Fault {
	var spoiled atomic.Bool
	return func(command []string, reply []byte) ([]byte, bool) {
		if takes(command) && !spoiled.Swap(true) {
			return nil, hangUp
		}
		return reply, false
	}
}

// If the answer to a charge of core.InFlight is lost, the store releases the charge's slots in the background. The slots
// of others stay.
func TestALostSlotIsFreeSoon(t *testing.T) {
	noLeak(t)
	const lease = time.Minute
	one := core.InFlight(3).Lease(lease)
	several := []core.Limit{one, core.FixedWindow(100, time.Hour), core.InFlight(5).Lease(lease).PerUser(), core.InFlight(9).Lease(2 * lease).Named("s").Shadow()}
	allow := func(l *core.Limiter) error {
		_, err := l.AllowN(context.Background(), user, action, 2)
		return err
	}
	type tc struct {
		name   string
		open   func(addr string) redis.UniversalClient
		opts   redisstore.Options
		limits []core.Limit
		spoil  func(*redistest.Proxy)
		take   func(*core.Limiter) error
	}
	client := clients[0].open
	hangUp := func(p *redistest.Proxy) { p.Spoil(once(true)) }
	mute := func(p *redistest.Proxy) { p.Spoil(once(false)) }
	cases := []tc{
		{"scripts", client, redisstore.Options{NoFunctions: true}, []core.Limit{one}, hangUp, allow},
		{"several limits", client, redisstore.Options{}, several, hangUp, allow},
		{"a reply that cannot be read", client, redisstore.Options{}, []core.Limit{one}, func(p *redistest.Proxy) {
			spoil := once(false)
			p.Spoil(func(command []string, reply []byte) ([]byte, bool) {
				if reply, _ = spoil(command, reply); reply == nil {
					return []byte("+OK\r\n"), false
				}
				return reply, false
			})
		}, allow},
		{"several subjects", client, redisstore.Options{}, several, hangUp, func(l *core.Limiter) error {
			_, err := core.All(context.Background(), l.For("other", action), l.For(user, action).Cost(2))
			return err
		}},
		{"a batch", client, redisstore.Options{}, []core.Limit{one}, hangUp, func(l *core.Limiter) error {
			errs := make([]error, 20)
			together(len(errs), func(i int) {
				var d core.Decision
				if d, errs[i] = l.Allow(context.Background(), fmt.Sprint(user, i%2*i), action); d.Allowed { // in another batch
					errs[i] = l.Release(context.Background(), d)
				}
			})
			return errors.Join(errs...)
		}},
		{"Lua 5.4", client, redisstore.Options{}, []core.Limit{one}, func(p *redistest.Proxy) {
			redistest.RunLua54(t, p, nil)
			hangUp(p)
		}, allow},
		{"the charge comes after the release", client, redisstore.Options{}, []core.Limit{one}, func(p *redistest.Proxy) {
			var held atomic.Bool
			p.Instead(func(command []string) (bool, []byte) {
				if takes(command) && !held.Swap(true) {
					time.Sleep(1500 * time.Millisecond)
				}
				return false, nil
			})
		}, allow},
	}
	for _, c := range clients {
		cases = append(cases, tc{c.name + ", closed", c.open, redisstore.Options{}, []core.Limit{one}, hangUp, allow},
			tc{c.name + ", no reply", c.open, redisstore.Options{}, []core.Limit{one}, mute, allow})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server, proxy := proxied(t)
			rdb := c.open(proxy.Addr)
			defer rdb.Close()
			c.opts.Timeout = 200 * time.Millisecond
			store := ready(t, redisstore.New(rdb, &c.opts))
			lim := core.Must(core.New(store, c.limits...))
			within(t, "Redis answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
			others := core.Must(core.New(reliable(t, server.Addr), c.limits...))
			held, err := others.Allow(t.Context(), user, action)
			if err != nil || !held.Allowed {
				t.Fatal(held, err)
			}
			direct := connect(t, &redis.Options{Addr: server.Addr})
			taken := func() (n int64) {
				for _, key := range direct.Keys(t.Context(), "*inflight*").Val() {
					n += direct.ZCard(t.Context(), key).Val()
				}
				return n
			}
			before := taken()
			c.spoil(proxy)
			if err := c.take(lim); err == nil {
				t.Fatal("no answer is lost")
			}
			within(t, "the slots are free", func() bool { return taken() == before })
			if err := others.Renew(t.Context(), held); err != nil || before == 0 {
				t.Errorf("the slot of another: %v", err)
			}
			proxy.HangUp()
		})
	}
}

// An action within another takes no slot, so if its answer is lost, nothing is released.
func TestALostAnswerWithinAnotherAction(t *testing.T) {
	_, proxy := proxied(t)
	rdb := connect(t, &redis.Options{Addr: proxy.Addr})
	lim := core.Must(core.New(ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient})), core.InFlight(3)))
	d, err := lim.Allow(t.Context(), user, action)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	proxy.Commands()
	proxy.Spoil(once(true))
	if _, err := core.All(t.Context(), lim.For(user, action).Within(lim, d)); err == nil {
		t.Fatal("no answer is lost")
	}
	within(t, "Redis answers", func() bool { _, err := lim.Peek(t.Context(), user, action); return err == nil })
	time.Sleep(50 * time.Millisecond) // a release is not waited for
	for _, c := range proxy.Commands() {
		if len(c) > 1 && strings.HasSuffix(c[1], "_amend") {
			t.Errorf("sent: %q", c)
		}
	}
	if n := free(t, lim); n != 2 {
		t.Errorf("%d slots are free", n)
	}
}

// If answers are lost now and then, users of two slots who do two actions at a time are seldom refused, and those
// who try four never do more than two.
func TestLostSlotsUnderLoad(t *testing.T) {
	const users, slots, length = 8, 2, 4 * time.Second
	for _, tc := range []struct {
		oneIn   int
		hangUp  bool
		timeout time.Duration
		refused float64 // at most this part of two at a time
	}{
		{100, true, 250 * time.Millisecond, 0.3}, // 0.04 on a quiet machine
		{100, false, 250 * time.Millisecond, 0.3},
		{10, true, 250 * time.Millisecond, 0.5},
		{10, true, patient, 0.5}, // no call waits for the timeout
	} {
		for _, atATime := range []int{slots, 2 * slots} {
			t.Run(fmt.Sprintf("one in %d, hang up %t, timeout %s, %d at a time", tc.oneIn, tc.hangUp, tc.timeout, atATime), func(t *testing.T) {
				t.Parallel()
				_, proxy := proxied(t)
				rdb := connect(t, &redis.Options{Addr: redistest.Far(t, proxy.Addr, 25*time.Millisecond), ContextTimeoutEnabled: true})
				store := ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: tc.timeout}))
				lim := core.Must(core.New(store, core.InFlight(slots).Lease(8*time.Second)))
				proxy.Spoil(func(_ []string, reply []byte) ([]byte, bool) {
					if rand.N(tc.oneIn) == 0 {
						return nil, tc.hangUp
					}
					return reply, false
				})
				defer proxy.HangUp()
				var passed, refused, failed, most, longest atomic.Int64
				var running [users]atomic.Int64
				end := time.Now().Add(length)
				raise := func(a *atomic.Int64, n int64) {
					for old := a.Load(); old < n && !a.CompareAndSwap(old, n); old = a.Load() {
					}
				}
				together(users*atATime, func(i int) {
					for who := i % users; time.Now().Before(end); {
						begun := time.Now()
						d, err := lim.Allow(t.Context(), fmt.Sprint(user, who), action)
						raise(&longest, int64(time.Since(begun)))
						switch {
						case err != nil:
							failed.Add(1)
						case !d.Allowed:
							refused.Add(1)
							time.Sleep(25 * time.Millisecond)
						default:
							passed.Add(1)
							raise(&most, running[who].Add(1))
							time.Sleep(10 * time.Millisecond)
							running[who].Add(-1)
							for lim.Release(t.Context(), d) != nil && time.Now().Before(end) {
							}
						}
					}
				})
				asked := passed.Load() + refused.Load() + failed.Load()
				t.Logf("%d asked: %d passed, %d were refused, %d had no answer after %s at most", asked, passed.Load(), refused.Load(), failed.Load(), time.Duration(longest.Load()))
				if n := most.Load(); n > slots {
					t.Errorf("%d were in progress", n)
				}
				if part := float64(refused.Load()) / float64(asked); atATime == slots && part > tc.refused {
					t.Errorf("%.0f %% were refused", 100*part)
				}
				if l := time.Duration(longest.Load()); l > 5*time.Second {
					t.Errorf("a call took %s", l)
				}
			})
		}
	}
}
