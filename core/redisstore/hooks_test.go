package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

func TestUsersHooksSeeDecisions(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	var seen atomic.Int32
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "fcall" {
			seen.Add(1)
		}
		return nil
	}))
	lim := core.Must(core.New(ready(t, redisstore.New(rdb, &redisstore.Options{Timeout: patient})), plenty))
	for range 10 {
		if _, err := lim.Allow(t.Context(), user, action); err != nil {
			t.Fatal(err)
		}
	}
	if seen.Load() != 11 { // Connect has asked once, without a charge
		t.Errorf("the hook saw %d calls for 10 decisions", seen.Load())
	}
}

func TestPanickingHookIsAnError(t *testing.T) {
	noLeak(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	var angry atomic.Bool
	rdb.AddHook(before(func(redis.Cmder) error {
		if angry.Load() {
			panic("a bug in a hook")
		}
		return nil
	}))
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, plenty))
	angry.Store(true)
	together(20, func(int) {
		if d, err := lim.Allow(t.Context(), user, action); err == nil || d != (core.Decision{}) {
			t.Errorf("%+v, %v", d, err)
		}
	})
	if err := lim.Reset(t.Context(), user, action); err == nil {
		t.Error("Reset: no error")
	}
	idle(t, store) // a sender that still opens a connection fails the calls that come meanwhile
	angry.Store(false)
	if _, err := lim.Allow(t.Context(), user, action); err != nil {
		t.Error(err)
	}
}

func TestResetThatDidNotRunIsAnError(t *testing.T) {
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	open := errors.New("the circuit is open")
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "del" {
			return open
		}
		return nil
	}))
	lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), plenty))
	together(20, func(int) {
		if err := lim.Reset(t.Context(), user, action); !errors.Is(err, open) {
			t.Errorf("%v", err)
		}
	})
}

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

// Connect pings in goroutines of its own, where a panic would end the process.
func TestAPanicInAPingOfConnect(t *testing.T) {
	rdb := connect(t, &redis.Options{Addr: redistest.Start(t).Addr})
	var pings atomic.Int64
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "ping" && pings.Add(1) > 2 { // the first two are not in a goroutine
			panic("a bug in a hook")
		}
		return nil
	}))
	if err := redisstore.New(rdb, nil).Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "a bug in a hook") {
		t.Errorf("%v, want the panic", err)
	}
}

// A panic while a connection is opened costs the client's pool a place for good; the log
// says so once a minute.
func TestAPanicInTheHandshakeIsLogged(t *testing.T) {
	log := logged(t)
	server := redistest.Start(t)
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	rdb.AddHook(before(func(cmd redis.Cmder) error {
		if cmd.Name() == "hello" {
			panic("a bug in a hook")
		}
		return nil
	}))
	lim := core.Must(core.New(redisstore.New(rdb, nil), plenty))
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			_, err := lim.Allow(t.Context(), user, action)
			discreet(t, err)
		})
	}
	wg.Wait()
	within(t, "it is said", func() bool { return strings.Contains(log.String(), "code=redis-panic") })
	if n := strings.Count(log.String(), "code=redis-panic"); n != 1 {
		t.Errorf("said %d times: %s", n, log)
	}
}
