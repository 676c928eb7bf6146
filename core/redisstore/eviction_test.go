package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tailcut/tailcut/core"
	"github.com/tailcut/tailcut/core/redisstore"
	"github.com/tailcut/tailcut/core/storetest/redistest"
)

// aroundInfo is a hook that runs functions before each INFO and after it.
func aroundInfo(before, after func()) hook {
	return func(cmd redis.Cmder, next func() error) error {
		if cmd.Name() == "info" {
			defer after()
			before()
		}
		return next()
	}
}

// It logs a warning if limits can be evicted, once, by a question that holds up nobody, is asked once and does no harm
// where it is not answered.
func TestEvictionIsLoggedOnce(t *testing.T) {
	evicting := []string{"maxmemory 100mb", "maxmemory-policy volatile-ttl"}
	for _, tt := range []struct {
		name   string
		config []string
		acl    bool // the user of the documentation
		before func(over <-chan struct{})
		said   bool
	}{
		{name: "noeviction", config: []string{"maxmemory 100mb", "maxmemory-policy noeviction"}},
		{name: "no bound on memory", config: []string{"maxmemory 0", "maxmemory-policy allkeys-lru"}},
		{name: "volatile", config: evicting, said: true},
		{name: "allkeys", config: []string{"maxmemory 100mb", "maxmemory-policy allkeys-lru"}, said: true},
		{name: "a user who may not ask", config: evicting, acl: true},
		{name: "a hook that panics", config: evicting, before: func(<-chan struct{}) { panic("a bug in a hook") }},
		{name: "a question that hangs", config: evicting, before: func(over <-chan struct{}) { <-over }, said: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			log := logged(t)
			server := redistest.Start(t, tt.config...)
			login := &redis.Options{Addr: server.Addr}
			if tt.acl {
				words := documented(t, "ACL")
				server.Do(words...)
				login.Username, login.Password = words[2], "password"
			}
			rdb := connect(t, login)
			over, asked := make(chan struct{}), make(chan struct{}, 100)
			rdb.AddHook(aroundInfo(
				func() {
					if tt.before != nil {
						tt.before(over)
					}
				},
				func() { asked <- struct{}{} },
			))
			lim := core.Must(core.New(redisstore.New(rdb, &redisstore.Options{Timeout: patient}), plenty))
			for range 300 { // also while the question hangs
				if _, err := lim.Allow(t.Context(), user, action); err != nil {
					t.Fatal(err)
				}
			}
			close(over)
			select {
			case <-asked:
			case <-time.After(patient):
				t.Fatal("it does not ask")
			}
			want := 0
			if tt.said {
				want = 1
				within(t, "it is said", func() bool { return strings.Contains(log.String(), "code=redis-evicts") })
			}
			if got := strings.Count(log.String(), "code=redis-evicts"); got != want || len(asked) > 0 {
				t.Errorf("said %d times, want %d; asked %d times more: %s", got, want, len(asked), log)
			}
			if tt.said && !strings.Contains(log.String(), "maxmemory_policy="+strings.Fields(tt.config[1])[1]) {
				t.Errorf("%s", log)
			}
		})
	}
}

// A policy that changes while the process runs is noticed, and each time said once.
func TestEvictionIsCheckedAgain(t *testing.T) {
	log := logged(t)
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy noeviction")
	rdb := connect(t, &redis.Options{Addr: server.Addr})
	asked := make(chan struct{}, 100)
	rdb.AddHook(aroundInfo(func() {}, func() { asked <- struct{}{} }))
	store := redisstore.New(rdb, &redisstore.Options{Timeout: patient})
	lim := core.Must(core.New(store, plenty))
	for i, policy := range []string{"noeviction", "volatile-ttl", "volatile-ttl", "noeviction", "allkeys-lru"} {
		server.Do("CONFIG", "SET", "maxmemory-policy", policy)
		store.AskPolicyAgain()
		for range 150 {
			if _, err := lim.Allow(t.Context(), user, action); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-asked:
		case <-time.After(patient):
			t.Fatal("it does not ask")
		}
		want := []int{0, 1, 1, 1, 2}[i]
		within(t, "it is said", func() bool { return strings.Count(log.String(), "code=redis-evicts") >= want })
		if n := strings.Count(log.String(), "code=redis-evicts"); n != want {
			t.Errorf("after %s: said %d times: %s", policy, n, log)
		}
	}
}
