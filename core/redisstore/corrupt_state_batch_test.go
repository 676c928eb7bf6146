//go:build !race

package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// One charge that fails takes no other of its run with it.
func TestOneBadKeyInARun(t *testing.T) {
	server := redistest.Start(t)
	store := redisstore.New(connect(t, &redis.Options{Addr: server.Addr}), &redisstore.Options{Timeout: patient})
	l := core.Funnel(1000, core.Per(1000, time.Hour))
	lim := core.Must(core.New(store, l))
	server.Do("LPUSH", store.Key("corrupt", action, l), "x")
	together(64, func(g int) {
		for range 20 {
			if g%8 == 0 {
				if d, err := lim.Allow(t.Context(), "corrupt", action); !errors.Is(err, redisstore.ErrState) || d != (core.Decision{}) {
					t.Errorf("%+v, %v", d, err)
				}
			} else if d, err := lim.Allow(t.Context(), fmt.Sprint("user", g), action); err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		}
	})
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
